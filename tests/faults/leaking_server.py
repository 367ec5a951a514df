"""A server that leaks LEAKED_BYTES for each request while the file LEAK_FILE exists. Only tests set these variables."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from app.main import Application, run
from app.observability.logging import configure_logging
from app.settings import load_settings


class Leak:
    """ASGI middleware that keeps some bytes of each request for ever."""

    def __init__(self, app: ASGIApp, *, num_bytes: int, file: Path) -> None:
        self._app, self._num_bytes, self._file = app, num_bytes, file
        self._kept: list[bytes] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Leak, then serve."""
        if scope["type"] == "http" and self._file.exists():
            self._kept.append(os.urandom(self._num_bytes))
        await self._app(scope, receive, send)


class LeakingApplication(Application):
    """The server with the leak."""

    def _build(self, admin_token: str | None) -> FastAPI:
        app = super()._build(admin_token)
        app.add_middleware(
            Leak, num_bytes=int(os.environ["LEAKED_BYTES"]), file=Path(os.environ["LEAK_FILE"])
        )
        return app


if __name__ == "__main__":
    settings = load_settings()
    configure_logging(settings.log_level)
    sys.exit(run(LeakingApplication(settings)))
