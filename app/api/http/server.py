"""uvicorn, run by us: our protocol class, and a drain that never cuts an answer short and always ends."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import uvicorn

from app.api.http.connections import BACKLOG, NUM_PROBING, ConnectionTable
from app.api.http.ending import UnjoinedExecutor, exit_within
from app.api.http.protocol import BoundedProtocol, ConnectionLimits
from app.api.service import Service
from app.observability.logging import log_event

logger = logging.getLogger("app.server")
# For connections to close once every answer is made, before they are cut.
CLOSE_TIMEOUT_S = 2
# A signal this soon after the first is the same one, passed on: make sends its children what its group has already
# been sent, and so do some supervisors.
SAME_SIGNAL_S = 1.0
# For all that follows a drain, and for all that follows a second signal; behind it the process ends as it is.
END_MARGIN_S = 5.0
HURRIED_END_S = 3.0
EXIT_UNENDED = 70  # EX_SOFTWARE: the drain was over and the process was not
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class ServeOptions:
    """Times in seconds. drain_delay_s: still taking work after the signal; drain_timeout_s: finishing it.

    table: of the connections that are served.
    """

    connections: ConnectionLimits
    table: ConnectionTable
    keep_alive_s: float
    drain_delay_s: float
    drain_timeout_s: float


class Server(uvicorn.Server):
    """Ends on the first SIGTERM or SIGINT when the work is done, at once on one more after SAME_SIGNAL_S.

    probe_listener: where it is set before `run`, probes are answered there, too, and nothing else.
    exit_code: 0 after a drain, 128 + the signal after a second one, else what `stop` was given.
    """

    def __init__(
        self,
        app: Any,
        service: Service,
        options: ServeOptions,
        *,
        close_engine: Callable[[], Awaitable[None]],
    ) -> None:
        """close_engine: ends the engine's work now; requests still waiting for it are answered 503."""
        protocol = functools.partial(
            BoundedProtocol, limits=options.connections, metrics=service.metrics, table=options.table
        )
        config = uvicorn.Config(
            app,
            loop="uvloop",
            http=protocol,  # type: ignore[arg-type]  # any callable that makes a protocol will do
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
        self.exit_code = 0
        self.probe_listener: socket.socket | None = None
        self._service = service
        self._options = options
        self._close_engine = close_engine
        self._hurry = asyncio.Event()
        self._signalled_at_s: float | None = None  # time.monotonic() of the first signal

    def stop(self, exit_code: int) -> None:
        """End without waiting for work. Called on the event loop."""
        self.exit_code = exit_code
        self._hurry.set()
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take signals on the event loop: a handler between two bytecodes could not touch what requests use."""
        loop = asyncio.get_running_loop()
        loop.set_default_executor(UnjoinedExecutor(thread_name_prefix="io"))
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_IGN)  # all that is left is to leave

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve what comes to the listeners."""
        await super().startup(sockets)
        if self.probe_listener is None:
            return
        protocol = functools.partial(
            BoundedProtocol,
            self.config,
            self.server_state,
            self.lifespan.state,
            limits=self._options.connections,
            metrics=self._service.metrics,
            table=ConnectionTable(NUM_PROBING, NUM_PROBING, num_reserved=0, is_for_probes=True),
        )
        loop = asyncio.get_running_loop()
        self.servers.append(await loop.create_server(protocol, sock=self.probe_listener, backlog=BACKLOG))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain, then close what is left."""
        await self._drain()
        await self._close_engine()
        await super().shutdown(sockets)

    def _on_signal(self, number: int) -> None:
        now_s = time.monotonic()
        if self._signalled_at_s is not None and now_s - self._signalled_at_s < SAME_SIGNAL_S:
            return
        if self.should_exit:
            self.stop(128 + number)
            self.force_exit = True
            exit_within(HURRIED_END_S, self.exit_code)
            return
        self._signalled_at_s = now_s
        drain_s = self._options.drain_delay_s + self._options.drain_timeout_s
        exit_within(drain_s + CLOSE_TIMEOUT_S + END_MARGIN_S, EXIT_UNENDED)
        log_event(logger, logging.INFO, "draining", fields={"signal": signal.Signals(number).name})
        self._service.start_draining(is_taking=self._options.drain_delay_s > 0)
        self.should_exit = True

    async def _drain(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._hurry.wait(), self._options.drain_delay_s)
        self._service.start_draining(is_taking=False)
        drained = asyncio.ensure_future(self._service.drained(self._options.drain_timeout_s))
        hurried = asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait({drained, hurried}, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        drained.cancel()
        fields = {"aborted_requests": self._service.num_inflight, "exit_code": self.exit_code}
        log_event(logger, logging.INFO, "drained", fields=dict(fields))


def block_signals() -> None:
    """Keep signals waiting until the server takes them, on its event loop: one that comes early drains as any other."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises OSError with a message that names host, port and reason."""
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
        raise OSError(f"cannot listen on {host} port {port}: {error.strerror or error}") from error
    return listener
