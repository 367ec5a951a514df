"""Sends HTTP/1.1 requests over raw connections, one at a time per connection, and times the parts of each response.

httptools parses the responses. httpx is too slow for a tester that shares a small machine and must keep its schedule:
it takes over a millisecond of CPU time per request, and more with every open connection (docs/load-testing.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import resource
import socket
import ssl
import time
from dataclasses import dataclass, field
from typing import cast

import httptools

from transduce.loadtest.pacing import Clock
from transduce.loadtest.plan import Target

# Seconds after which an idle connection is not reused. Servers close idle connections; uvicorn does so after 5 s.
MAX_IDLE_S = 4.0
CACHED_HEADER = b"x-transduce-cached-sentences"


# Errors of the tester's own machine: no file descriptor is left in this process or on the machine, or no local port.
OWN_ERRORS = (errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL)
# Statuses of interim responses. Another response to the same request follows each of them, except 101.
INTERIM = range(100, 200)
SWITCHING_PROTOCOLS = 101


class ConnectFailedError(Exception):
    """No connection could be opened. is_own: the cause is the tester's machine and not the server."""

    def __init__(self, message: str, *, is_own: bool = False) -> None:
        super().__init__(message)
        self.is_own = is_own


class ConnectionLostError(Exception):
    """The connection ended, or sent something other than HTTP, before the response was complete."""


@dataclass(slots=True)
class RawResponse:
    """One response. Times are in seconds of the connection's clock.

    first_text_at: when a stream first has text; 0 if it has none. num_cached: sentences that the server answered from
    its cache; None if it does not report them.
    """

    status: int = 0
    server_timing: str = ""
    num_cached: int | None = None
    body: bytearray = field(default_factory=bytearray)
    first_text_at: float = 0.0
    ended_at: float = 0.0


class Connection(asyncio.Protocol):
    """One connection.

    The event loop calls `connection_made`, `connection_lost` and `data_received`. The parser calls the methods `on_*`.
    """

    def __init__(self, text_marks: tuple[bytes, ...], clock: Clock) -> None:
        """text_marks: a streamed body contains text as soon as it contains one of these."""
        self._text_marks = text_marks
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._response: RawResponse | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._response_ends_with_connection = True
        self._keeps_alive = False
        self.idle_since = 0.0

    @property
    def is_usable(self) -> bool:
        """Whether the connection can be reused."""
        transport = self._transport
        return (
            self._keeps_alive
            and transport is not None
            and not transport.is_closing()
            and self._clock() - self.idle_since < MAX_IDLE_S
        )

    async def exchange(self, request: bytes, response: RawResponse) -> float:
        """Send a request, head and body, and receive its response. Returns the time at which it was sent.

        response: filled while it arrives.

        Raises:
            ConnectionLostError: the connection was closed, or failed before the response was complete.
        """
        if self._transport is None or self._transport.is_closing():
            raise ConnectionLostError
        self._parser = httptools.HttpResponseParser(self)
        self._response = response
        self._response_ends_with_connection = True
        waiter = self._waiter = asyncio.get_running_loop().create_future()
        sent_at = self._clock()
        self._transport.write(request)
        try:
            await waiter
        finally:
            self._waiter = None
        self.idle_since = response.ended_at
        return sent_at

    def close(self) -> None:
        """Abort the connection; a request in progress is lost."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport and disable Nagle's algorithm."""
        # uvloop's transport is no subclass of asyncio.Transport.
        self._transport = cast(asyncio.Transport, transport)
        raw = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the response in progress. It is complete if it has no declared length; any other response is lost."""
        response = self._response
        if exc is None and response is not None and response.status and self._response_ends_with_connection:
            self.on_message_complete()
        self._keeps_alive = False
        self._fail(ConnectionLostError())

    def data_received(self, data: bytes) -> None:
        """Parse a part of the response. Data that answers no request closes the connection."""
        response = self._response
        if response is None:
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._keeps_alive = False
            self.close()
            self._fail(ConnectionLostError())

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store the relevant headers."""
        lowered = name.lower()
        response = self._response
        if response is None:
            return
        if lowered == b"server-timing":
            separator = ", " if response.server_timing else ""  # a proxy may add a line of its own
            response.server_timing += separator + value.decode("latin-1")
        elif lowered == CACHED_HEADER and value.isdigit():
            response.num_cached = int(value)
        elif lowered in {b"content-length", b"transfer-encoding"}:
            self._response_ends_with_connection = False

    def on_headers_complete(self) -> None:
        """Store the status."""
        if self._response is not None:
            self._response.status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        """Append to the body, and note when it first contains text."""
        response = self._response
        if response is None:
            return
        response.body += data
        if not response.first_text_at and any(mark in response.body for mark in self._text_marks):
            response.first_text_at = self._clock()

    def on_message_complete(self) -> None:
        """The response is complete. An interim one is dropped."""
        response = self._response
        if response is None:
            return
        if response.status in INTERIM and response.status != SWITCHING_PROTOCOLS:
            response.status, response.server_timing, response.num_cached = 0, "", None
            self._response_ends_with_connection = True
            return
        response.ended_at = self._clock()
        self._response = None
        self._keeps_alive = self._parser.should_keep_alive()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, error: Exception) -> None:
        """End the exchange in progress with an error."""
        self._response = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)


class ConnectionPool:
    """A pool of connections to one server. It reuses the connection that became idle last, or opens a new one.

    max_connections: None for no limit; at the limit a request waits for a free connection.
    """

    def __init__(
        self, target: Target, max_connections: int | None = None, *, clock: Clock = time.perf_counter
    ) -> None:
        self._target = target
        self._clock = clock
        self._idle: list[Connection] = []
        self._slots = asyncio.Semaphore(max_connections) if max_connections else None
        self._tls = ssl.create_default_context() if target.has_tls else None
        self.num_opened = 0

    async def exchange(
        self, request: bytes, response: RawResponse | None = None
    ) -> tuple[float, RawResponse]:
        """Send a request, head and body, over a connection of the pool, and receive its response.

        response: filled while it arrives, if set, so that the caller of a cancelled exchange has a part of it.

        Raises:
            ConnectFailedError, ConnectionLostError.
        """
        response = response or RawResponse()
        if self._slots is None:
            return await self._exchange(request, response), response
        async with self._slots:
            return await self._exchange(request, response), response

    async def _exchange(self, request: bytes, response: RawResponse) -> float:
        connection = self._take_idle() or await self._open()
        try:
            sent_at = await connection.exchange(request, response)
        except BaseException:  # also on a timeout's cancellation: the rest of the response is not read
            connection.close()
            raise
        if connection.is_usable:
            self._idle.append(connection)
        else:
            connection.close()
        return sent_at

    def _take_idle(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                return connection
            connection.close()
        return None

    async def _open(self) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(
                lambda: Connection(self._target.dialect.first_text, self._clock),
                self._target.host,
                self._target.port,
                ssl=self._tls,
            )
        except OSError as error:
            raise ConnectFailedError(error.strerror or str(error), is_own=_is_own(error)) from error
        self.num_opened += 1
        return connection

    def close(self) -> None:
        """Close all idle connections."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()


def _is_own(error: OSError) -> bool:
    """Whether the tester's machine is the cause of an error.

    If the connections to several addresses fail, the text of the error has the numbers of all their errors.
    """
    numbers = [int(number) for number in re.findall(r"\[Errno (-?\d+)\]", str(error))]
    return (bool(numbers) and all(number in OWN_ERRORS for number in numbers)) or not _can_open_file()


def _can_open_file() -> bool:
    """Whether a file descriptor is left. Without one, name resolution fails with other error numbers."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return False
    return True


def allow_open_files() -> None:
    """Raise this process's soft limit of open files to its hard limit. Each connection takes a file descriptor."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # some systems permit less than the limit that they name
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def head(target: Target, content_length: int) -> bytes:
    """The request line and the headers."""
    is_default_port = target.port == (443 if target.has_tls else 80)
    host = f"[{target.host}]" if ":" in target.host else target.host
    fields = {
        "Host": host if is_default_port else f"{host}:{target.port}",
        "User-Agent": "transduce-loadtest",
        "Content-Length": str(content_length),
        **target.dialect.headers(target.api_key),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST {target.path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1")
