"""uvicorn's HTTP protocol with what it lacks for pipelined requests and for HTTP/1.0.

A pipelined request arrives before the response to an earlier one is complete. While it waits, uvicorn reads no more, so
that a client cannot fill the memory. Then uvicorn does not see that the client disconnects, so this protocol asks the
kernel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.api.http.arrival import has_hung_up

App = Callable[[Any, Any, Any], Awaitable[None]]
# Seconds between two questions to the kernel while a pipelined request waits. If longer, the work of a client that has
# disconnected ends later. If shorter, connections with pipelined requests take more CPU time.
HANG_UP_INTERVAL_S = 0.25


class PipeliningProtocol(HttpToolsProtocol):
    """The protocol of one connection."""

    # The request that is being answered, or was answered last. uvicorn's `cycle` is the request that arrived last.
    _current_cycle: RequestResponseCycle | None = None
    _hang_up_timer: asyncio.TimerHandle | None = None

    def on_headers_complete(self) -> None:
        """Call the application, or let the request wait for the responses to the earlier ones."""
        super().on_headers_complete()
        if self.pipeline and self._hang_up_timer is None:
            self._expect_hang_up()

    def connection_lost(self, exc: Exception | None) -> None:
        """Mark the request that is being answered as disconnected. uvicorn marks only the one that arrived last."""
        if self._hang_up_timer is not None:
            self._hang_up_timer.cancel()
            self._hang_up_timer = None
        super().connection_lost(exc)
        current, self._current_cycle = self._current_cycle, None
        if current is not None and not current.response_complete:
            current.disconnected = True
            current.message_event.set()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: App) -> None:
        self._current_cycle = cycle
        is_old = cycle.scope["http_version"] != "1.1"
        super()._start_asgi_task(cycle, _until_close(app, cycle) if is_old else app)

    def _expect_hang_up(self) -> None:
        self._hang_up_timer = self.loop.call_later(HANG_UP_INTERVAL_S, self._on_hang_up_timer)

    def _on_hang_up_timer(self) -> None:
        """Close the connection if the client has closed it, as uvicorn does while it reads."""
        self._hang_up_timer = None
        if not self.pipeline or self.transport.is_closing():
            return
        connection = self.transport.get_extra_info("socket")
        if connection is None or has_hung_up(connection):  # None with TLS, just before `connection_lost`
            self.transport.close()
        else:
            self._expect_hang_up()


def _until_close(app: App, cycle: RequestResponseCycle) -> App:
    """The application for a request of HTTP/1.0. A response without a length then ends with the connection.

    uvicorn would send it in chunks, which HTTP/1.0 does not know (RFC 9112, section 6.1).
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        has_length = True

        async def send_unframed(message: Message) -> None:
            nonlocal has_length
            if message["type"] == "http.response.start":
                has_length = any(name.lower() == b"content-length" for name, _ in message.get("headers", ()))
                if not has_length:
                    cycle.chunked_encoding = False
            elif not has_length:
                cycle.expected_content_length = len(message.get("body", b""))  # of this part
            await send(message)

        await app(scope, receive, send_unframed)

    return answer
