"""What a drain waits for, and what it leaves open."""

from __future__ import annotations

import asyncio
import functools
import signal
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
import uvloop
from starlette.responses import PlainTextResponse
from uvicorn.server import ServerState

from app.api.http.connections import ConnectionLimits, ConnectionTable
from app.api.http.protocol import BoundedProtocol
from app.api.http.server import (
    CLOSE_TIMEOUT_S,
    END_MARGIN_S,
    EXIT_DRAIN_OVERRAN,
    SAME_SIGNAL_S,
    SECOND_SIGNAL_END_S,
    ServeOptions,
    Server,
    SignalFilter,
)
from app.api.http.tls import Tls
from app.api.service import Service
from app.observability.metrics import Metrics
from app.stores.glossaries import GlossaryStore
from tests.api.certificates import make_certificate, trusting
from tests.api.server_process import HANG_TIMEOUT_S, ServerProcess
from tests.api.test_closing import PART_BYTES, read_all

LIMITS = ConnectionLimits(read_timeout_s=60, stall_s=60, max_header_bytes=16_384)


@asynccontextmanager
async def serving(
    app: Any,
    table: ConnectionTable,
    protocol: type[BoundedProtocol] = BoundedProtocol,
    context: ssl.SSLContext | None = None,
    metrics: Metrics | None = None,
) -> AsyncIterator[int]:
    """Serve an application on this event loop. Yields the port."""
    config = uvicorn.Config(app, log_config=None, lifespan="off")
    config.load()
    make = functools.partial(
        protocol, config, ServerState(), {}, limits=LIMITS, metrics=metrics or Metrics(), table=table
    )
    listener = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0, ssl=context)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()


def test_with_tls_a_connection_without_a_socket_is_quiet(tmp_path: Path) -> None:
    """TLS takes the socket from a connection just before the connection is lost.

    A drain may then ask for the state of the connection.
    """
    states: list[tuple[object, bool, bool]] = []

    class StateRecorder(BoundedProtocol):
        def connection_lost(self, exc: Exception | None) -> None:
            has_socket = self.transport.get_extra_info("socket") is not None
            states.append((has_socket, self.is_answering(), self.is_quiet()))
            super().connection_lost(exc)

    async def connect() -> None:
        table = ConnectionTable(8, 8)
        certificate, key = make_certificate(tmp_path)
        async with serving(None, table, StateRecorder, Tls(certificate, key).context) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting(certificate))
            writer.close()
            async with asyncio.timeout(HANG_TIMEOUT_S):
                while not states:  # noqa: ASYNC110 - the server ends the connection
                    await asyncio.sleep(0.01)

    uvloop.run(connect())
    assert states == [(False, False, True)]


def test_a_request_counts_as_being_answered_once_its_body_has_arrived() -> None:
    async def ask() -> list[bool]:
        table, may_answer, has_begun = ConnectionTable(8, 8), asyncio.Event(), asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            has_begun.set()
            await may_answer.wait()
            await PlainTextResponse("x")(scope, receive, send)

        async with serving(app, table) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            was_answering = [table.is_answering()]
            writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{")
            await has_begun.wait()
            was_answering.append(table.is_answering())
            writer.write(b"}")
            async with asyncio.timeout(HANG_TIMEOUT_S):
                while not table.is_answering():  # noqa: ASYNC110 - no event reports it
                    await asyncio.sleep(0.01)
                may_answer.set()
                assert (await reader.read(65_536)).startswith(b"HTTP/1.1 200 ")
                while table.is_answering():  # noqa: ASYNC110 - no event reports it
                    await asyncio.sleep(0.01)
            writer.close()
        return was_answering

    assert uvloop.run(ask()) == [False, False]


def test_the_end_of_the_server_waits_for_the_body_of_a_refused_request() -> None:
    """Else the client would lose the refusal, which it reads after it has sent the body."""
    made: list[BoundedProtocol] = []

    class Recorded(BoundedProtocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            made.append(self)
            super().connection_made(transport)

    async def exchange() -> bytes:
        table = ConnectionTable(8, 8, is_for_probes=True)
        async with serving(None, table, Recorded) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{")
            received = await asyncio.wait_for(reader.read(), HANG_TIMEOUT_S)
            made[0].shutdown()
            assert not made[0].transport.is_closing()
            writer.write(b"}")
            async with asyncio.timeout(HANG_TIMEOUT_S):
                while not made[0].transport.is_closing():  # noqa: ASYNC110 - no event reports it
                    await asyncio.sleep(0.01)
            writer.close()
            return received

    assert uvloop.run(exchange()).startswith(b"HTTP/1.1 404 ")


def server_of(
    table: ConnectionTable, reload: Callable[[], None] = lambda: None, *, drain_delay_s: float = 0
) -> Server:
    """A server that has not started, with a drain of at most 60 s after the delay."""

    async def close_engine() -> None:
        pass

    options = ServeOptions(LIMITS, table, keep_alive_s=60, drain_delay_s=drain_delay_s, drain_timeout_s=60)
    service = Service(Metrics(), GlossaryStore(None))
    return Server(None, service, options, close_engine=close_engine, reload=reload)


def test_a_second_signal_waits_for_nothing_and_is_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[tuple[float, int]] = []
    monkeypatch.setattr("app.api.http.server.exit_within", lambda *limit: limits.append(limit))
    server = server_of(ConnectionTable(8, 8))
    times_s = iter((1000.0, 1000.0 + SAME_SIGNAL_S))
    server._signals = SignalFilter(lambda: next(times_s))
    server._on_signal(signal.SIGTERM)
    assert limits == [(60 + CLOSE_TIMEOUT_S + END_MARGIN_S, EXIT_DRAIN_OVERRAN)]
    assert not server.force_exit
    server._on_signal(signal.SIGINT)
    assert limits[1:] == [(SECOND_SIGNAL_END_S, 128 + signal.SIGINT)]
    assert server.force_exit, "uvicorn then waits for no connection"


def test_a_server_that_drains_reads_nothing_again() -> None:
    reloads: list[str] = []
    server = server_of(ConnectionTable(8, 8), lambda: reloads.append("reload"))
    server._on_reload()
    assert reloads == ["reload"]
    server.should_exit = True
    server._on_reload()
    assert reloads == ["reload"]


ENDING = (signal.SIGTERM, signal.SIGINT)


@pytest.fixture
def own_signals() -> Iterator[None]:
    """Restores the handlers of the signals that a server handles."""
    handlers = {number: signal.getsignal(number) for number in (*ENDING, signal.SIGHUP)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("own_signals")
def test_a_signal_after_the_end_of_the_event_loop_is_ignored() -> None:
    """Otherwise it would change the exit code of a server that has drained."""

    async def run() -> None:
        with server_of(ConnectionTable(8, 8)).capture_signals():
            assert signal.SIG_IGN not in map(signal.getsignal, ENDING)

    uvloop.run(run())
    assert [signal.getsignal(number) for number in ENDING] == [signal.SIG_IGN] * 2


@pytest.mark.usefixtures("own_signals")
@pytest.mark.parametrize("is_terminal", [True, False])
def test_only_without_a_terminal_a_hangup_reloads(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that is closed ends the server."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)

    async def run() -> bool:
        with server_of(ConnectionTable(8, 8)).capture_signals():
            return asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)

    assert uvloop.run(run()) != is_terminal


def test_the_delay_of_a_drain_ends_if_the_engine_dies() -> None:
    async def run() -> int:
        server = server_of(ConnectionTable(8, 8), drain_delay_s=1000)
        server.stop(70)
        await asyncio.wait_for(server._drain(), HANG_TIMEOUT_S)
        return server.exit_code

    assert uvloop.run(run()) == 70


def test_a_drain_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(ConnectionTable):
        def is_answering(self) -> bool:
            raise AttributeError("no socket")

    async def drain() -> None:
        await server_of(Failing(8, 8))._drain()

    with caplog.at_level("INFO"):
        uvloop.run(drain())
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("ERROR", "drain_failed"),
        ("INFO", "drained"),
    ]
    error = caplog.records[0].exc_info
    assert error is not None
    assert error[0] is AttributeError


def test_in_a_drain_a_client_that_sends_its_whole_body_first_gets_the_refusal(
    echo_command: list[str],
) -> None:
    """The server sends the refusal while it ends. The client sends the rest of the body afterwards."""
    head = b"POST /translate_file HTTP/1.1\r\nhost: x\r\ncontent-type: multipart/form-data; boundary=q\r\n"
    part = b'--q\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
    rest = b"a " * 1_000_000
    with ServerProcess(echo_command) as server, server.ready().connect() as connection:
        connection.sendall(head + b"content-length: %d\r\n\r\n" % (len(part) + len(rest)) + part)
        time.sleep(0.1)  # the server reads the header
        server.signal()
        server.wait_for("drained")
        time.sleep(0.2)  # a server that closes the connection with the response has closed it now
        for start in range(0, len(rest), PART_BYTES):
            connection.sendall(rest[start : start + PART_BYTES])
            time.sleep(0.002)
        assert read_all(connection).startswith(b"HTTP/1.1 503 ")
        assert server.ended() == 0
