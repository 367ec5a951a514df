"""uvicorn's HTTP protocol with what it lacks for the end of a connection.

If the write buffer of a connection is full and its client reads nothing for `stall_s`, the connection is cut off.

A response may be complete before the request's body has arrived, such as an early 413. If the server closes the
connection at once, the kernel answers the rest of the body with a reset, and the client may lose the response. So the
server ends its own side only, reads the rest of the body, drops it, and then closes. With TLS it closes at once: the
TLS layer tells the client the end, and drops what still arrives.
"""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from app.api.http.connections import ConnectionLimits
from app.api.http.pipelining import PipeliningProtocol
from app.observability.metrics import Metrics


class ClosingProtocol(PipeliningProtocol):
    """The protocol of one connection. A subclass sets its limits and metrics."""

    _limits: ConnectionLimits
    _metrics: Metrics
    _stall_timer: asyncio.TimerHandle | None = None
    _has_stalled = False
    _is_lingering = False  # whether the last response is complete and the rest of its request is dropped

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer, and replace the last request's `_HeldTransport`, which refers to this object."""
        self._stop_stall_timer()
        super().connection_lost(exc)
        if self.cycle is not None:
            self.cycle.transport = self.transport

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

    def _close_after(self, cycle: RequestResponseCycle) -> None:
        """Close the connection when a request has arrived completely and its response is complete.

        uvicorn would close it when the response is complete.
        """
        cycle.transport = _HeldTransport(self.transport, self._close_or_linger)

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
