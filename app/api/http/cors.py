"""Pages of other origins that may call the API: which, and what their browsers are told (CORS)."""

from __future__ import annotations

from collections.abc import Collection

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.dialects import DIALECTS
from app.api.simple import routes as simple

METHODS = ("GET", "POST", "DELETE")
# Beside those that every page may send. A browser asks before it sends these.
REQUEST_HEADERS = ("Authorization", "Content-Type", "X-Request-Id", "Inference-Header-Content-Length")
# Those of an answer that a page may read beside the few that it always may.
EXPOSED_HEADERS = (
    "Content-Disposition",
    "Inference-Header-Content-Length",
    "Retry-After",
    "Server-Timing",
    "X-Request-Id",
    "X-Trace-Id",
    "X-Transduce-Cached-Sentences",
)
# In which a browser need not ask again whether it may.
MAX_AGE_S = 600


class CrossOrigin:
    """The outermost middleware, so that errors have the headers too, and a browser's question needs no key.

    Not added where no origin is listed. The routes at the root answer for themselves: every page may ask them.
    """

    def __init__(self, app: ASGIApp, *, origins: Collection[str]) -> None:
        """origins: such as https://example.org; `*` for all. Cookies are never allowed: none is used."""
        self._app = app
        self._cors = CORSMiddleware(
            app,
            allow_origins=tuple(origins),
            allow_methods=METHODS,
            allow_headers=REQUEST_HEADERS,
            expose_headers=EXPOSED_HEADERS,
            max_age=MAX_AGE_S,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        is_at_root = scope["type"] == "http" and DIALECTS.of(scope["path"]) is simple.DIALECT
        await (self._app if is_at_root else self._cors)(scope, receive, send)
