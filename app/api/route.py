"""Routes whose endpoint reads its request and makes its answer itself, as all of ours do."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send


class PlainRoute(APIRoute):
    """FastAPI's route, without its search for dependencies and parameters where an endpoint takes the request alone.

    For those it is a tenth of a millisecond that finds nothing. What describes the route is FastAPI's.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        """As APIRoute."""
        super().__init__(path, endpoint, **options)
        takes_request = list(inspect.signature(endpoint).parameters) == ["request"]
        if takes_request and inspect.iscoroutinefunction(endpoint) and not self.dependencies:
            self.app = _answering(endpoint)


def _answering(endpoint: Callable[[Request], Awaitable[Response]]) -> ASGIApp:
    """What an endpoint raises is answered further out: by RequestScope, and the app's handlers of HTTPException."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        response = await endpoint(Request(scope, receive, send))
        await response(scope, receive, send)

    return app
