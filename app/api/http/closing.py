"""uvicorn's HTTP protocol with what it lacks for the end of a connection.

If the write buffer of a connection is full and its client reads nothing for `stall_s`, the connection is cut off.

A response may be complete before the request's body has arrived, such as an early 413. If the server closes the
connection at once, the kernel answers the rest of the body with a reset, and the client may lose the response. So the
server ends its own side only, reads the rest of the body, drops it, and then closes. With TLS the server closes at
once: the TLS layer announces the end to the client, and drops what still arrives.

If the body of a request is late, the application answers with 408, and the connection ends in the same way.
"""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from collections.abc import Callable
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.server import ServerState

from app.api.http.connections import ConnectionLimits
from app.api.http.pipelining import PipeliningProtocol
from app.observability.metrics import Metrics

# Key of the extension in a request's scope. The extension has these entries:
# - is_disconnected: a function that tells whether the client has disconnected;
# - has_stalled: a function that tells whether the client has read nothing for `stall_s`;
# - late_after_s: a function that returns the time limit that the body has exceeded; None if it is not late;
# - on_disconnect: a function that sets the callback for a disconnect;
# - unread_s: seconds that the request waited unread.
CONNECTION = "transduce.connection"


class ClosingProtocol(PipeliningProtocol):
    """The protocol of one connection. A subclass sets its limits and metrics.

    extension: the value of CONNECTION in the scopes of the connection's requests.
    """

    _limits: ConnectionLimits
    _metrics: Metrics
    _stall_timer: asyncio.TimerHandle | None = None
    _has_stalled = False
    _late_after_s: float | None = None  # the time limit that the current request has exceeded
    _is_lingering = False  # whether the last response is complete and the rest of its request is dropped

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._on_disconnect: Callable[[], None] | None = None
        self.extension: dict[object, object] = {
            "has_stalled": lambda: self._has_stalled,
            "is_disconnected": self._is_disconnected,
            "late_after_s": lambda: self._late_after_s,
            "on_disconnect": self._watch_disconnect,
            "unread_s": 0.0,
        }

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer and report the disconnect.

        Also remove the references to this object: from the extension of the scopes, and from the last request, whose
        `_HeldTransport` has one. So this object and the last request's body are freed at once, and not by the garbage
        collector.
        """
        self._stop_stall_timer()
        super().connection_lost(exc)
        if self.cycle is not None:
            self.cycle.transport = self.transport
        if self._on_disconnect is not None:
            self._on_disconnect()
        loop, has_stalled = self.loop, self._has_stalled
        self.extension.update(
            has_stalled=lambda: has_stalled,
            is_disconnected=lambda: True,
            late_after_s=lambda: None,
            on_disconnect=lambda callback: loop.call_soon(callback) if callback is not None else None,
        )

    def pause_writing(self) -> None:
        """Start to watch whether the client reads, because the write buffer is full."""
        super().pause_writing()
        self._start_stall_timer()

    def resume_writing(self) -> None:
        """Stop watching, because the client has read a part of the buffer."""
        self._stop_stall_timer()
        super().resume_writing()

    def is_answering(self) -> bool:
        """See `Connection.is_answering`."""
        cycle = self._current_cycle
        if cycle is None or cycle.response_complete:
            return self._num_undelivered_bytes() > 0
        return cycle.response_started or not cycle.more_body or self._num_undelivered_bytes() > 0

    def _is_disconnected(self) -> bool:
        return self.transport.is_closing()

    def _watch_disconnect(self, callback: Callable[[], None] | None) -> None:
        """Set the function to call when the client disconnects; None for no function."""
        self._on_disconnect = callback
        if callback is not None and self.transport.is_closing():
            self.loop.call_soon(callback)
        elif callback is not None:
            self.flow.resume_reading()  # a disconnect is noticed only while the socket is read

    def _close_after(self, cycle: RequestResponseCycle) -> None:
        """Close the connection when a request has arrived completely and its response is complete.

        uvicorn would close it when the response is complete.
        """
        cycle.transport = _HeldTransport(self.transport, self._close_or_linger)

    def _answer_late(self, cycle: RequestResponseCycle, limit_s: float) -> None:
        """Wake the application, so that it answers with 408 (`RequestScope`), and close the connection after that."""
        self._late_after_s = limit_s
        cycle.keep_alive = False
        self._close_after(cycle)
        cycle.message_event.set()

    def _close_or_linger(self) -> None:
        cycle = self._current_cycle
        if cycle is not None and cycle.response_complete and cycle.more_body:
            self._linger()
        else:
            self.transport.close()

    def _linger(self) -> None:
        """Send nothing more, and drop the rest of the body.

        The connection is closed when the body ends, when the read timer runs out, when another connection needs its
        place, or when the server ends.
        """
        self._is_lingering = True
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:  # with TLS, whose layer drops further data only if reading is not paused
            self.flow.resume_reading()
            self.loop.call_soon(self.transport.close)

    def _start_stall_timer(self) -> None:
        num_bytes = self._num_undelivered_bytes()
        self._stall_timer = self.loop.call_later(self._limits.stall_s, self._check_client, num_bytes)

    def _check_client(self, num_before: int) -> None:
        """Abort the connection if the client has read nothing since `num_before` bytes were undelivered.

        `close` would wait until the client has read the rest.
        """
        if self._num_undelivered_bytes() < num_before:
            self._start_stall_timer()
        else:
            self._has_stalled = True
            self._metrics.stalled_readers.inc()
            self.transport.abort()

    def _num_undelivered_bytes(self) -> int:
        """Bytes that the client has not received. The kernel may hold megabytes of them."""
        return self.transport.get_write_buffer_size() + self._num_in_kernel(termios.TIOCOUTQ)

    def _stop_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _num_in_kernel(self, request: int) -> int:
        """Bytes in a buffer of the kernel: TIOCOUTQ for undelivered ones, FIONREAD for unread ones."""
        connection = self.transport.get_extra_info("socket")
        if connection is None:  # with TLS, just before `connection_lost`
            return 0
        try:
            return int(struct.unpack("i", fcntl.ioctl(connection.fileno(), request, bytes(4)))[0])
        except OSError:  # the socket is closed
            return 0


class _HeldTransport(asyncio.Transport):
    """A transport's methods that a response uses. `close` calls another function instead of the transport's."""

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        super().__init__()
        self._transport = transport
        self._close = close

    def write(self, data: Any) -> None:
        """Send data."""
        self._transport.write(data)

    def is_closing(self) -> bool:
        """Whether the connection is closed or about to be."""
        return self._transport.is_closing()

    def close(self) -> None:
        """Close the connection when nothing more is to be read."""
        self._close()
