"""The routes of the server. Each endpoint reads the request and makes the response itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response


class RequestRoute(APIRoute):
    """A route that calls its endpoint with the request only.

    FastAPI's own handler looks for parameters and dependencies in each request, and these endpoints have none. The
    search takes as long as the routing does.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the endpoint. Raises TypeError if it needs more than the request."""
        if len(inspect.signature(self.endpoint).parameters) != 1 or self.dependencies:
            raise TypeError(
                f"the endpoint of {self.path} must have one parameter, the request, and no dependencies"
            )
        handler: Callable[[Request], Coroutine[Any, Any, Response]] = self.endpoint
        return handler
