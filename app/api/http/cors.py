"""Cross-origin resource sharing (CORS): lets pages of listed origins call the API."""

from __future__ import annotations

from collections.abc import Collection

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.dialects import DIALECTS
from app.api.simple import routes as simple

METHODS = ("GET", "POST", "DELETE")
# Request headers that need a preflight.
REQUEST_HEADERS = ("Authorization", "Content-Type", "X-Request-Id", "Inference-Header-Content-Length")
# Response headers that a page may read beside the few that are always readable.
EXPOSED_HEADERS = (
    "Content-Disposition",
    "Inference-Header-Content-Length",
    "RateLimit",
    "RateLimit-Policy",
    "Retry-After",
    "Server-Timing",
    "X-Request-Id",
    "X-Trace-Id",
    "X-Transduce-Cached-Sentences",
)
# Seconds for which a browser keeps the response to a preflight. A changed setting reaches browsers after that time.
MAX_AGE_S = 600


class CrossOrigin:
    """Adds CORS headers to responses, and answers preflights.

    It runs outside of `RequestScope` and `Gate`, so errors have the headers too, and a preflight needs no key. The
    server adds it only if an origin is listed. It does not change the routes of the simple dialect, which set their own
    headers.
    """

    def __init__(self, app: ASGIApp, *, origins: Collection[str]) -> None:
        """origins: such as https://example.org; `*` for all. Cookies are never allowed because the server uses none."""
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
        is_simple = scope["type"] == "http" and DIALECTS.of(scope["path"]) is simple.DIALECT
        await (self._app if is_simple else self._cors)(scope, receive, send)
