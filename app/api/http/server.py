"""uvicorn with the server's own protocol class and with a drain that completes the responses within a time limit."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import uvicorn

from app.api.http.connections import BACKLOG, NUM_PROBING, ConnectionLimits, ConnectionTable
from app.api.http.ending import UnjoinedExecutor, exit_within
from app.api.http.protocol import BoundedProtocol
from app.api.http.tls import Tls, problem_with_files
from app.api.service import Service
from app.observability.logging import Field, log_event

logger = logging.getLogger("app.server")
# Seconds for connections to close after the drain. If larger, a client that closes late delays the end of the server.
# If smaller, such a client may lose the end of its response.
CLOSE_TIMEOUT_S = 2
# Seconds between two looks for unsent responses in a drain. If larger, the server ends later. If smaller, it takes CPU
# time from the responses.
UNSENT_INTERVAL_S = 0.1
# Seconds after the first signal in which a second one counts as the same. The whole process group receives a signal,
# and `make` and some supervisors then send it to their children again. If longer, an early second Ctrl-C is ignored.
SAME_SIGNAL_S = 1.0
# A process that still runs is ended by force END_MARGIN_S seconds after the time limits of its drain and its closing,
# or SECOND_SIGNAL_END_S seconds after a second signal. If larger, a process that hangs ends later. If smaller, a slow
# shutdown is cut off.
END_MARGIN_S = 5.0
SECOND_SIGNAL_END_S = 3.0
EXIT_DRAIN_OVERRAN = 70  # EX_SOFTWARE: the process still ran after the time of its drain
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_RELOAD_SIGNAL = signal.SIGHUP
_BLOCKED_SIGNALS = (*_SIGNALS, _RELOAD_SIGNAL)


@dataclass(frozen=True)
class ServeOptions:
    """How the server handles connections and drains. Times in seconds.

    connections: the limits of each connection.
    table: the open connections of the server's port, without those of the port for probes.
    keep_alive_s: how long a connection may be idle before the server closes it.
    drain_delay_s: how long the server still accepts requests after the signal.
    drain_timeout_s: how long the server may take after drain_delay_s to complete the accepted requests and to send the
        responses.
    tls: None for plain HTTP.
    """

    connections: ConnectionLimits
    table: ConnectionTable
    keep_alive_s: float
    drain_delay_s: float
    drain_timeout_s: float
    tls: Tls | None = None


class SignalFilter:
    """Distinguishes a second signal from copies of the first one. clock: monotonic time in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first_at_s: float | None = None

    def counts(self) -> bool:
        """Record a signal. Returns whether it counts: the first does, and any SAME_SIGNAL_S or more after the first."""
        now_s = self._clock()
        if self._first_at_s is None:
            self._first_at_s = now_s
            return True
        return now_s - self._first_at_s >= SAME_SIGNAL_S


class Server(uvicorn.Server):
    """A server that drains after the first SIGTERM or SIGINT and ends at once after a second one.

    probe_listener: a second port that answers only probes. It is set before `run`.
    exit_code: 0 after a drain. The argument of `stop` after `stop`. 128 + the number of a signal that ends a drain or
        comes after `stop`.
    """

    def __init__(
        self,
        app: Any,
        service: Service,
        options: ServeOptions,
        *,
        close_engine: Callable[[], Awaitable[None]],
        reload: Callable[[], None],
    ) -> None:
        """close_engine: ends the work of the engines at once. Their requests then get 503.

        reload: called after SIGHUP. If stderr is a terminal, SIGHUP from any sender ends the server instead.
        """
        protocol = functools.partial(
            BoundedProtocol, limits=options.connections, metrics=service.metrics, table=options.table
        )
        config = uvicorn.Config(
            app,
            loop="uvloop",
            http=protocol,  # type: ignore[arg-type]  # uvicorn calls it as it would the class
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=options.keep_alive_s,  # type: ignore[arg-type]  # goes to call_later
            timeout_graceful_shutdown=CLOSE_TIMEOUT_S,
        )
        super().__init__(config)
        service.metrics.readings.track_connections(options.table.counts)
        self.exit_code = 0
        self.probe_listener: socket.socket | None = None
        self._service = service
        self._options = options
        self._close_engine = close_engine
        self._reload = reload
        self._must_end = asyncio.Event()  # ends the drain
        self._signals = SignalFilter()

    def stop(self, exit_code: int) -> None:
        """End without waiting for requests in progress. Called on the event loop."""
        self.exit_code = exit_code
        self._must_end.set()
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals on the event loop. A Python signal handler could run in the middle of a change of state.

        Also sets the event loop's default executor, because uvicorn calls this before anything else on the loop.
        """
        loop = asyncio.get_running_loop()
        loop.set_default_executor(UnjoinedExecutor(thread_name_prefix="io"))
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)
        if not sys.stderr.isatty():
            loop.add_signal_handler(_RELOAD_SIGNAL, self._on_reload)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _BLOCKED_SIGNALS)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_IGN)  # the process is ending

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve the listeners."""
        tls = self._options.tls
        await super().startup(sockets if tls is None else [])
        if tls is not None:
            # uvicorn would let a client take a minute for its handshake.
            limit_s = self._options.connections.read_timeout_s
            for listener in sockets or []:
                table = self._options.table
                await self._listen(listener, table, ssl=tls.context, ssl_handshake_timeout=limit_s)
        if self.probe_listener is not None:
            table = ConnectionTable(NUM_PROBING, NUM_PROBING, num_reserved=0, is_for_probes=True)
            await self._listen(self.probe_listener, table)

    async def _listen(self, listener: socket.socket, table: ConnectionTable, **options: Any) -> None:
        """Serve a listener. options: of the event loop's `create_server`."""
        protocol = functools.partial(
            BoundedProtocol,
            self.config,
            self.server_state,
            self.lifespan.state,
            limits=self._options.connections,
            metrics=self._service.metrics,
            table=table,
        )
        loop = asyncio.get_running_loop()
        self.servers.append(await loop.create_server(protocol, sock=listener, backlog=BACKLOG, **options))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain, close the remaining connections, and cut off those that cannot be closed in time."""
        await self._drain()
        await self._close_engine()
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    def _on_signal(self, number: int) -> None:
        if not self._signals.counts():
            return
        if self.should_exit:
            self.stop(128 + number)
            self.force_exit = True
            exit_within(SECOND_SIGNAL_END_S, self.exit_code)
            return
        drain_s = self._options.drain_delay_s + self._options.drain_timeout_s
        exit_within(drain_s + CLOSE_TIMEOUT_S + END_MARGIN_S, EXIT_DRAIN_OVERRAN)
        log_event(logger, logging.INFO, "draining", fields={"signal": signal.Signals(number).name})
        self._options.table.is_draining = True
        self._service.start_draining(accepts_work=self._options.drain_delay_s > 0)
        self.should_exit = True

    def _on_reload(self) -> None:
        if not self.should_exit:
            log_event(logger, logging.INFO, "reloading")
            self._reload_certificate()
            self._reload()

    def _reload_certificate(self) -> None:
        """Read the certificate again, for new connections. The event loop reads the files, because they are small."""
        if self._options.tls is None:
            return
        try:
            self._options.tls.reload()
        except OSError as error:
            self._service.metrics.certificate_reloads.labels("failed").inc()
            fields: dict[str, Field] = {"problem": problem_with_files(error)}
            log_event(logger, logging.ERROR, "certificate_reload_failed", fields=fields)
            return
        self._service.metrics.certificate_reloads.labels("done").inc()

    async def _drain(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._must_end.wait(), self._options.drain_delay_s)
        self._service.start_draining(accepts_work=False)
        drained = asyncio.ensure_future(self._drained())
        must_end = asyncio.ensure_future(self._must_end.wait())
        await asyncio.wait({drained, must_end}, return_when=asyncio.FIRST_COMPLETED)
        must_end.cancel()
        if not drained.cancel() and (error := drained.exception()) is not None:
            log_event(logger, logging.ERROR, "drain_failed", error=error)
        fields = {"aborted_requests": self._service.num_inflight, "exit_code": self.exit_code}
        log_event(logger, logging.INFO, "drained", fields=dict(fields))

    async def _drained(self) -> None:
        """Wait until no request is in progress and the clients have their responses, or drain_timeout_s passes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._options.drain_timeout_s):
                await self._service.drained()
                while self._options.table.is_answering():  # noqa: ASYNC110 - no event reports an empty buffer
                    await asyncio.sleep(UNSENT_INTERVAL_S)


def block_signals() -> None:
    """Block signals until the server's event loop handles them, so that an early signal drains like any other."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED_SIGNALS)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises OSError with a message that names host, port and reason."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise OSError(f"cannot listen on {host} port {port}: {error.strerror}") from error
    except UnicodeError as error:  # a part of the name is empty or too long
        raise OSError(f"cannot listen on {host} port {port}: not a host name") from error
    return listener
