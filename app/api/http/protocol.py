"""uvicorn's HTTP protocol with limits on the size of a request and on the time in which it arrives.

A request must arrive completely within `read_timeout_s` of its first byte. Each time this limit passes, it begins anew
if MIN_BODY_RATE bytes of the body have arrived in each of its seconds on average. The first byte must arrive within
`read_timeout_s` after the connection is made. Otherwise the server closes the connection, after a 408 if only the body
is late. This stops clients that send nothing, or send a header or body byte by byte. The limit does not apply while the
server answers a request, nor to an idle connection between requests. The server closes an idle connection only to make
room for another one, after the keep-alive time, or when it shuts down. For a client that does not read, the server
buffers only this: at most 64 KiB of earlier responses or of earlier parts of a stream; the part of a response that is
being sent; the response to the next pipelined request. If these buffers are full and the client reads nothing for
`stall_s`, the connection is cut off.

An offered `Upgrade` is ignored (RFC 9110, section 7.8). The parser ends such a request at the end of its header. A
second parser then reads the same header without the offer, and after it the body.
"""

from __future__ import annotations

import asyncio
import logging
import termios
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.server import ServerState

from app.api.http.arrival import MAX_UNREAD_S, unread_s
from app.api.http.closing import CONNECTION, ClosingProtocol
from app.api.http.connections import Admission, ConnectionLimits, ConnectionTable, plain_host
from app.api.http.request_head import (
    BAD_CHUNKS,
    DISPLACED,
    FRAMING_NAMES,
    FULL,
    NOT_HTTP,
    PROBES,
    PROBES_ONLY,
    UNREAD,
    Framing,
    Refusal,
    RefusedRequest,
    header_too_large,
    refusal_bytes,
    refusal_of,
    request_id_of,
    without_upgrade,
)
from app.observability.logging import Field, log_event
from app.observability.metrics import Metrics

logger = logging.getLogger("app.protocol")
_PROBE_TARGETS = frozenset(path.encode("ascii") for path in PROBES)
# Seconds in which a request must arrive on a reserved connection (`ConnectionTable`). If larger, slow requests fill the
# reserve. If smaller, probes from far away time out.
RESERVED_READ_TIMEOUT_S = 1.0
# The bytes of a body a second for which a client gets more time. If larger, uploads over slow connections are cut off.
# If smaller, a client that keeps connections open needs less bandwidth.
MIN_BODY_RATE = 1000
# A chunked body of n bytes may have at most MAX_FRAMING_PER_BYTE * n + max_header_bytes bytes of chunk sizes,
# extensions and line ends. A chunk of one byte has five such bytes.
MAX_FRAMING_PER_BYTE = 8
_REASONS = {400: "invalid", 404: "invalid", 431: "too_large", 503: "unread"}  # by a refusal's status


class BoundedProtocol(ClosingProtocol):
    """The protocol of one connection. uvicorn and the parser call its methods on the event loop."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: ConnectionLimits,
        metrics: Metrics,
        table: ConnectionTable,
    ) -> None:
        """table: the connections of the same port."""
        super().__init__(config, server_state, app_state, _loop)
        self._limits = limits
        self._max_header_bytes = limits.max_header_bytes
        self._metrics = metrics
        self._table = table
        self._idle: dict[Any, None] = {}  # the idle connections of this connection's `Group`
        self._refusal_unless_probe = PROBES_ONLY if table.is_for_probes else None
        self._read_timeout_s = limits.read_timeout_s
        self._read_timer: asyncio.TimerHandle | None = None
        self._allowed_s = 0.0  # seconds in which the current request must arrive, so far
        self._num_body_bytes = 0  # since the read timer was started
        self._is_silent = True  # whether no byte has arrived
        self._has_arrived = False  # whether the last data ended with a complete request
        self._answered_at_s: float | None = None  # loop.time() of the last complete answer
        self._is_header_open = True
        self._num_parsed_bytes = 0  # of the request line and headers, as the parser reports them
        self._num_open_bytes = 0  # of a header whose end has not arrived
        self._num_framing_bytes = 0  # of a chunked body, less MAX_FRAMING_PER_BYTE for each content byte
        self._framing = Framing()
        self._is_upgrade_offered = False
        self._held_refusal: Refusal | None = None  # sent after the answers to earlier requests

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit the connection and wait for its first request, or refuse it."""
        super().connection_made(transport)
        self.client = self.client and (plain_host(self.client[0]), self.client[1])
        admission, self._idle = self._table.admit(self, self.client[0] if self.client else "")
        if admission is Admission.REFUSED:
            self._refuse(FULL)
            return
        if admission is Admission.RESERVED:
            self._refusal_unless_probe = FULL
            self._read_timeout_s = min(self._read_timeout_s, RESERVED_READ_TIMEOUT_S)
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave the table and stop the timers."""
        self._table.leave(self)
        self._stop_read_timer()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # the timer would hold the connection's objects until it ends

    def data_received(self, data: bytes) -> None:
        """Count the bytes of an incomplete header, and feed the parser."""
        if self.transport.is_closing() or self._held_refusal is not None:
            return
        if self._is_silent:  # the time of the first request begins
            self._stop_read_timer()
        self._is_silent = self._has_arrived = False
        if self._is_header_open:
            self._num_open_bytes += len(data)
            # The new data is not counted, because the header may end in it and a body begin.
            if self._num_open_bytes > self._max_header_bytes + len(data):
                self._refuse(header_too_large(self._max_header_bytes))
                return
        elif self._framing.is_chunked:
            self._num_framing_bytes += len(data)
        self._unset_keepalive_if_required()
        try:
            self._parse(data)
        except httptools.HttpParserError as error:
            self._refuse(refusal_of(error))
            return
        if self._num_framing_bytes > self._max_header_bytes:
            self._refuse(BAD_CHUNKS)
            return
        if self._read_timer is None and self._needs_read_timer():
            self._expect_request()

    def _parse(self, data: bytes) -> None:
        """Feed the parser. If a header offers an upgrade, continue with a second parser."""
        rest: bytes | memoryview = data
        while rest:
            try:
                self.parser.feed_data(rest)
                return
            except httptools.HttpParserUpgrade as stop:
                rest = memoryview(rest)[stop.args[0] :]
            version = self.parser.get_http_version()
            head = without_upgrade(self.parser.get_method(), self.url, version, self.headers)
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
            self._is_upgrade_offered = False
            self.parser.feed_data(head)

    def on_message_begin(self) -> None:
        """Reset the counts, because a request line begins. Raises RefusedRequest if the connection is about to end."""
        if self._is_lingering:
            raise RefusedRequest(NOT_HTTP)
        self._idle.pop(self, None)
        self._framing.reset()
        self._is_header_open = True
        self._has_arrived = False
        self._num_parsed_bytes = self._num_open_bytes = self._num_framing_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Count a part of the request target. Raises RefusedRequest if the header is too large."""
        self._num_parsed_bytes += len(url)
        if self._num_parsed_bytes > self._max_header_bytes:
            raise RefusedRequest(header_too_large(self._max_header_bytes))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count and record a header. A trailer of a chunked body is only counted (RFC 9110, section 6.5.1).

        Raises RefusedRequest if the header is too large, or Host or Transfer-Encoding is invalid or repeated.
        """
        self._num_parsed_bytes += len(name) + len(value) + 4
        if self._num_parsed_bytes > self._max_header_bytes:
            raise RefusedRequest(header_too_large(self._max_header_bytes))
        if not self._is_header_open:
            return
        name = name.lower()
        if name in FRAMING_NAMES:
            self._framing.record(name, value)
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Check the complete header and call the application. Raises RefusedRequest."""
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise RefusedRequest(NOT_HTTP)
            self._is_upgrade_offered = True
            return
        self._is_header_open = False
        version = self.parser.get_http_version()
        if version != "1.1" or not self._framing.has_host:
            self._framing.check(version)
        self.expect_100_continue = self._framing.expects_continue and version == "1.1"
        refusal = self._refusal_unless_probe
        self.extension["unread_s"] = waited_s = self._unread_s()
        if waited_s > MAX_UNREAD_S:
            refusal = refusal or UNREAD
        if refusal is not None and self.url.partition(b"?")[0] not in _PROBE_TARGETS:
            if not self._is_idle():
                raise RefusedRequest(refusal)
            self._refuse(refusal, before_body=True)
            return
        super().on_headers_complete()
        self.scope["extensions"] = {CONNECTION: self.extension}
        if refusal is FULL or self._table.is_draining:
            self.cycle.keep_alive = False
        if not self.cycle.keep_alive:
            self._close_after(self.cycle)

    def on_body(self, body: bytes) -> None:
        """Pass a part of the body to the application, or drop it if the response is complete."""
        if self._framing.is_chunked:
            self._num_framing_bytes -= (1 + MAX_FRAMING_PER_BYTE) * len(body)
        cycle: RequestResponseCycle = self.cycle
        if self._is_lingering or cycle.response_complete:
            return
        cycle.body += body
        self._num_body_bytes += len(body)
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        """Stop the read timer. Tell the application that the body is complete; after `_linger`, close instead."""
        if self._is_upgrade_offered:
            return
        self._stop_read_timer()
        self._is_header_open = False
        self._num_framing_bytes = 0
        self._has_arrived = True
        if self._is_lingering:
            self.transport.close()
        else:
            self.cycle.more_body = False
            self.cycle.message_event.set()

    def on_response_complete(self) -> None:
        """Mark the connection as idle, or start the read timer if the body of a pipelined request is incomplete."""
        super().on_response_complete()
        self._answered_at_s = self.loop.time()
        if self._held_refusal is not None:
            if self._is_next() and not self.transport.is_closing():
                self._refuse(self._held_refusal)
        elif self._is_idle():
            self._idle[self] = None
        elif self.cycle.more_body and self._read_timer is None:
            self._expect_request()

    def is_quiet(self) -> bool:
        """See `Connection.is_quiet`."""
        if self.transport.is_closing():
            return True
        return not self._num_in_kernel(termios.FIONREAD) and not self.transport.get_write_buffer_size()

    def make_room(self) -> None:
        """Close, so that another connection can be admitted. If no request has arrived, send the reason first."""
        if self.transport.is_closing():
            return
        self._metrics.connections_displaced.inc()
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None:
            self._refuse(DISPLACED)
        else:
            self._stop_read_timer()
            self.transport.close()

    def shutdown(self) -> None:
        """Close the connection, because the server ends.

        Before it closes, a request that has arrived completely is answered. If a response is complete but the body of
        its request is not, the rest of that body is read and dropped.
        """
        cycle: RequestResponseCycle | None = self.cycle
        if self._is_lingering:
            return
        if cycle is not None and cycle.response_complete and cycle.more_body:
            self._linger()
        elif self._read_timer is not None:
            self._stop_read_timer()
            self.transport.close()
        else:
            super().shutdown()

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection, because it was idle for too long. Abort it if its last response is unread."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def _is_idle(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def _is_next(self) -> bool:
        """Whether the next response answers the request that arrives now, because earlier requests are answered."""
        return self._is_idle() or (self.cycle is self._current_cycle and self.cycle.more_body)

    def _needs_read_timer(self) -> bool:
        """Whether the read timer must run, because a part of a request has not arrived.

        False while an earlier request is being answered, because the time limit does not apply then.
        """
        return not self._has_arrived if self._is_idle() else self._is_next()

    def _expect_request(self, allowed_before_s: float = 0.0) -> None:
        """Start the read timer. allowed_before_s: the time that this request had before."""
        self._num_body_bytes = 0
        self._allowed_s = allowed_before_s + self._read_timeout_s
        self._read_timer = self.loop.call_later(self._read_timeout_s, self._on_read_timeout)

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _on_read_timeout(self) -> None:
        self._read_timer = None
        # With TLS, a lingering connection is already closing.
        if self.transport.is_closing() and not self._is_lingering:
            return
        is_first = self._late_after_s is None
        if is_first and self._num_body_bytes >= MIN_BODY_RATE * self._read_timeout_s:
            self._expect_request(self._allowed_s)
            return
        if is_first:
            self._metrics.read_timeouts.inc()
        if is_first and not self._is_idle() and not self.cycle.response_started:
            self._answer_late(self.cycle, self._allowed_s)
            self._expect_request()  # time for the answer
        else:
            self.transport.abort()

    def _unread_s(self) -> float:
        """Seconds that the current request waited in the kernel before this process read it.

        For a pipelined request, only the time since the response to the request before it counts.
        """
        waited_s = unread_s(self.transport.get_extra_info("socket"))
        if self._answered_at_s is None:
            return waited_s
        return min(waited_s, self.loop.time() - self._answered_at_s)

    def _refuse(self, refusal: Refusal, *, before_body: bool = False) -> None:
        """Send the refusal without calling the application, and close the connection.

        If an earlier request is unanswered, hold the refusal back, because its client would take it for the answer.
        before_body: whether the parser goes on with the request's body, after which the connection is closed.
        """
        if self._is_lingering:  # a response has been sent
            self.transport.close()
            return
        if not self._is_next():
            self._held_refusal = refusal
            self._stop_read_timer()
            return
        request_id = request_id_of(self.headers or ())
        if self._is_idle() or not self.cycle.response_started:
            self.transport.write(refusal_bytes(refusal, request_id))
        if before_body:
            self._idle[self] = None
            self._linger()
        else:
            self._stop_read_timer()
            self.transport.close()
        if refusal is FULL:
            self._metrics.connections_refused.inc()
        elif refusal is not DISPLACED:
            self._metrics.rejected.labels(_REASONS[refusal.status]).inc()
        level = logging.DEBUG if refusal.status == FULL.status else logging.INFO
        fields: dict[str, Field] = {"request_id": request_id, "status": refusal.status}
        log_event(logger, level, "refused_by_protocol", fields=fields)
