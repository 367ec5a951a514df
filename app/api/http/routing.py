"""Routes whose endpoint reads its request and makes its answer itself, as nearly all of ours do; the way to them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from fastapi import FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from fastapi.routing import APIRoute
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send


class PlainRoute(APIRoute):
    """FastAPI's route, without its search for dependencies and parameters where an endpoint takes the request alone.

    For those it is a tenth of a millisecond that finds nothing. What describes the route is FastAPI's.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        """As APIRoute."""
        super().__init__(path, endpoint, **options)
        # The library's `$` would also match before a newline at a path's end.
        self.path_regex = re.compile(self.path_regex.pattern.removesuffix("$") + r"\Z")
        takes_request = list(inspect.signature(endpoint).parameters) == ["request"]
        self.is_plain = takes_request and inspect.iscoroutinefunction(endpoint) and not self.dependencies
        if self.is_plain:
            self.app = _answering(endpoint)


class PlainApp(FastAPI):
    """FastAPI's application without what it would put around our own middleware.

    That is telemetry, a page for errors and a limit of the body, through which every answer would go: RequestScope and
    Gate are these here.
    """

    def build_middleware_stack(self) -> ASGIApp:
        """Our own middleware, and inside what FastAPI needs for its routes."""
        handlers = {
            key: value for key, value in self.exception_handlers.items() if key not in {500, Exception}
        }
        stack: ASGIApp = ExceptionMiddleware(AsyncExitStackMiddleware(self.router), handlers=handlers)
        for middleware, args, options in reversed(self.user_middleware):
            stack = middleware(stack, *args, **options)
        return stack

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        if self.middleware_stack is None:
            self.middleware_stack = self.build_middleware_stack()
        scope["app"] = self
        await self.middleware_stack(scope, receive, send)


class PathRouter:
    """Hands a request to its plain route by method and path; whatever has none goes on to the router.

    The innermost middleware: the router, and FastAPI's own middleware around it, would add nothing to these.
    """

    def __init__(self, app: ASGIApp, *, routes: Iterable[BaseRoute]) -> None:
        """routes: all of the app; those with parameters in their path are left to the router."""
        self._app = app
        self._routes = {
            (method, route.path): route
            for route in routes
            if isinstance(route, PlainRoute) and route.is_plain and "{" not in route.path
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        route = self._routes.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"], scope["endpoint"], scope["path_params"] = route, route.endpoint, {}
        await route.app(scope, receive, send)


def _answering(endpoint: Callable[[Request], Awaitable[Response]]) -> ASGIApp:
    """What an endpoint raises is answered further out, by RequestScope."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        response = await endpoint(Request(scope, receive, send))
        await response(scope, receive, send)

    return app
