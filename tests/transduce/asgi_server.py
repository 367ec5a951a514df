"""Serves an ASGI application of a test over a real socket."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from tests.transduce.bad_server import TIMEOUT_S


@contextmanager
def asgi_server(app: Any) -> Iterator[str]:
    """Serve an application on a free port. Yields its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        runner = uvicorn.Server(uvicorn.Config(app, lifespan="off", ws="none", log_level="critical"))
        thread = threading.Thread(target=runner.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            runner.should_exit = True
            thread.join(timeout=TIMEOUT_S)
        assert not thread.is_alive()


async def read_body(receive: Any) -> bytes:
    """The whole body of a request."""
    body, is_more = b"", True
    while is_more:
        message = await receive()
        body += message.get("body", b"")
        is_more = message.get("more_body", False)
    return body
