"""uvicorn's HTTP protocol with what it lacks: limits on how long and how large a request may arrive.

A connection that says nothing, and one that sends its header or body in drips, is closed `read_timeout_s` after
the first byte of a request was due. A request whose answer is being made, and an idle connection kept alive
between requests, are not touched. A reader that takes nothing of an answer is cut off after `stall_s`; until then what
the system does not take waits for it, and no more is written: some 64 KiB and the message under way.
"""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from app.api.error_table import HTTP_CODES, error_body
from app.api.whole_answer import WholeAnswer
from app.observability.metrics import Metrics

# In a scope's extensions: whether its reader was cut off, and a way to be told that the caller has left.
READER = "transduce.reader"
_REASONS = {400: b"Bad Request", 431: b"Request Header Fields Too Large", 503: b"Service Unavailable"}


@dataclass(frozen=True)
class ConnectionLimits:
    """What one connection may cost. Times in seconds, sizes in bytes. stall_s: in which a reader may take nothing."""

    read_timeout_s: float
    stall_s: float
    max_header_bytes: int
    max_connections: int


class HeaderTooLarge(Exception):
    """Raised into the parser, which ends the connection."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: ConnectionLimits,
        metrics: Metrics,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = limits
        self._metrics = metrics
        self._read_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._has_stalled = False
        self._has_arrived = False  # a whole request, with the data that came last
        self._on_leave: Callable[[], None] | None = None
        self._extensions: dict[str, dict[object, object]] = {
            READER: {"has_stalled": lambda: self._has_stalled, "on_leave": self._watch_caller}
        }
        self._is_header_open = True
        self._num_parsed_bytes = 0  # of the request line and headers, as the parser tells them
        self._num_open_bytes = 0  # of a header that the parser still waits for the end of
        self._refusal = 400

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Refuse one connection too many; else wait for its first request."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.max_connections:
            self._metrics.connections_refused.inc()
            self._refuse(503, "not_ready", "too many connections")
            return
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers."""
        self._stop_reading_timer()
        self._stop_stall_timer()
        super().connection_lost(exc)
        if self._on_leave is not None:
            self._on_leave()

    def data_received(self, data: bytes) -> None:
        """Count a header that is not whole yet, and hand the data to the parser."""
        if self.transport.is_closing():
            return
        begins = self._read_timer is None and self._is_idle()
        self._has_arrived = False
        if self._is_header_open:
            self._num_open_bytes += len(data)
            if self._num_open_bytes > self._limits.max_header_bytes + len(data):
                self._refusal = 431
                self.send_400_response("")
                return
        super().data_received(data)
        if begins and not self._has_arrived and not self.transport.is_closing():
            self._expect_request()

    def on_message_begin(self) -> None:
        """A request line begins."""
        self._is_header_open = True
        self._num_parsed_bytes = 0
        self._num_open_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of the request line."""
        self._num_parsed_bytes += len(url)
        if self._num_parsed_bytes > self._limits.max_header_bytes:
            self._refuse_header()
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer of a chunked body."""
        self._num_parsed_bytes += len(name) + len(value) + 4
        if self._num_parsed_bytes > self._limits.max_header_bytes:
            self._refuse_header()
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The header is whole; its trailers still count."""
        self._is_header_open = False
        super().on_headers_complete()
        self.scope["extensions"] = self._extensions

    def on_message_complete(self) -> None:
        """The request has arrived whole."""
        self._stop_reading_timer()
        self._is_header_open = False
        self._has_arrived = True
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """The application answers through `WholeAnswer`."""

        def serve(scope: Any, receive: Any, _send: Any) -> Awaitable[None]:
            return app(scope, receive, WholeAnswer(cycle).send)  # type: ignore[arg-type]

        super()._start_asgi_task(cycle, serve)

    def on_response_complete(self) -> None:
        """The answer is sent. A pipelined request whose body is not here yet gets its time now."""
        super().on_response_complete()
        if not self._is_idle() and self.cycle.more_body and self._read_timer is None:
            self._expect_request()

    def pause_writing(self) -> None:
        """So much waits for the reader that nothing more is written until it has taken some."""
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        """It has."""
        self._stop_stall_timer()
        super().resume_writing()

    def shutdown(self) -> None:
        """The server ends: a request that is not whole yet will not be."""
        if self._read_timer is not None:
            self._stop_reading_timer()
            self.transport.close()
        else:
            super().shutdown()

    def timeout_keep_alive_handler(self) -> None:
        """Idle for too long. A caller that does not even take its answer gets no more time."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def send_400_response(self, msg: str) -> None:
        """The answer to what is not HTTP, in the shape of our errors."""
        refusal = self._refusal
        message = (
            f"header above {self._limits.max_header_bytes} bytes" if refusal == 431 else "not valid HTTP"
        )
        self._refuse(refusal, HTTP_CODES[refusal], message)

    def _is_idle(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def _refuse_header(self) -> NoReturn:
        self._refusal = 431
        raise HeaderTooLarge

    def _watch_caller(self, on_leave: Callable[[], None] | None) -> None:
        """Have the request under way told, once, that its caller has left; None: it need not know any more."""
        self._on_leave = on_leave
        if on_leave is None:
            return
        if self.transport.is_closing():
            self.loop.call_soon(on_leave)
        else:
            self.flow.resume_reading()  # who does not read sees nobody leave

    def _expect_request(self) -> None:
        self._read_timer = self.loop.call_later(self._limits.read_timeout_s, self._on_read_timeout)

    def _stop_reading_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _on_read_timeout(self) -> None:
        self._read_timer = None
        if not self.transport.is_closing():
            self._metrics.read_timeouts.inc()
            self.transport.abort()

    def _watch_reader(self) -> None:
        self._stall_timer = self.loop.call_later(self._limits.stall_s, self._check_reader, self._waiting())

    def _check_reader(self, waited: int) -> None:
        """An orderly close would wait for a reader that takes nothing."""
        if self._waiting() < waited:
            self._watch_reader()
        else:
            self._has_stalled = True
            self._metrics.stalled_readers.inc()
            self.transport.abort()

    def _waiting(self) -> int:
        """Bytes that the reader has not taken, the system's among them: it takes megabytes before it asks for more."""
        connection = self.transport.get_extra_info("socket")
        sent = struct.unpack("i", fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4)))
        return self.transport.get_write_buffer_size() + int(sent[0])

    def _stop_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Answer without a request, and close."""
        self._stop_reading_timer()
        body = error_body(code, message, "")
        head = (
            b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            b"x-content-type-options: nosniff\r\ncache-control: no-store\r\nconnection: close\r\n\r\n"
        ) % (status, _REASONS[status], len(body))
        self.transport.write(head + body)
        self.transport.close()
