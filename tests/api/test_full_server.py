"""A server with all connections in use answers probes, and closes idle connections for new connections."""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
import select
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import httpx
import pytest
import uvloop
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from app.api.http.connections import (
    Admission,
    ConnectionTable,
    address_of,
    max_per_address,
    reserve_open_files,
)
from app.observability.metrics import Metrics
from tests.api.echo import GOLDEN
from tests.api.server_process import HANG_TIMEOUT_S, HEADERS, ROOT, ServerProcess
from tests.api.test_connections import assert_live, receive_until
from tests.api.test_draining import LIMITS, serving

MAX_CONNECTIONS, MAX_PER_ADDRESS = 8, 6
GET = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n"
UNFINISHED = b"POST /v1/translate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n"
# Every address of 127.0.0.0/8 is local, so tests can use several caller addresses.
HERE, THERE, ELSEWHERE = "127.0.0.1", "127.0.0.2", "127.0.0.3"
Connect = Callable[..., socket.socket]


@pytest.fixture(scope="module")
def small(echo_command: list[str]) -> Iterator[ServerProcess]:
    """A server of at most MAX_CONNECTIONS connections, with at most MAX_PER_ADDRESS of them from one address."""
    settings: dict[str, object] = {
        "max_connections": MAX_CONNECTIONS,
        "max_connections_per_address": MAX_PER_ADDRESS,
        "read_timeout_s": 60,
        "probe_port": 0,
    }
    with ServerProcess(echo_command, settings) as process:
        process.probe_port = int(process.wait_for("listening_for_probes")["port"])  # type: ignore[attr-defined]
        yield process.ready()


@pytest.fixture
def connect(small: ServerProcess) -> Iterator[Connect]:
    """A function that connects to the small server. All connections are closed at the end."""
    made: list[socket.socket] = []

    def connect(source: str = HERE, *, port: int | None = None) -> socket.socket:
        made.append(
            socket.create_connection(
                ("127.0.0.1", port or small.port), timeout=60, source_address=(source, 0)
            )
        )
        return made[-1]

    yield connect
    for each in made:
        each.close()


def open_unfinished(connect: Connect, source: str, number: int) -> None:
    """Open connections with an incomplete request. The body never arrives."""
    for _ in range(number):
        connection = connect(source)
        connection.sendall(UNFINISHED.replace(b"content-length", b"expect: 100-continue\r\ncontent-length"))
        assert connection.recv(100).startswith(b"HTTP/1.1 100 "), "the application must read the request"


def open_idle(connect: Connect, source: str, number: int) -> list[socket.socket]:
    """Open connections, and read one response on each."""
    connections = [connect(source) for _ in range(number)]
    for connection in connections:
        connection.sendall(GET)
        assert_live(connection)
    return connections


def are_closed(connections: Sequence[socket.socket]) -> list[bool]:
    """For each connection, return whether the server closes it within 0.2 s."""
    time.sleep(0.2)  # one wait for all connections
    readable, _, _ = select.select(connections, [], [], 0)
    return [connection in readable and connection.recv(65_536) == b"" for connection in connections]


def status_of(connection: socket.socket, sent: bytes = GET) -> int:
    connection.sendall(sent)
    received = receive_until(connection, lambda received: received.endswith(b"}"))
    return int(received.split(b" ")[1])


def test_the_longest_idle_connection_of_an_address_makes_room(connect: Connect) -> None:
    old = open_idle(connect, HERE, MAX_PER_ADDRESS)
    old[0].sendall(GET)  # so the second connection is idle longest
    assert_live(old[0])
    others = open_idle(connect, THERE, 1)
    assert status_of(connect(HERE)) == 200
    assert are_closed(old) == [False, True, False, False, False, False]
    assert are_closed(others[:1]) == [False]


def test_the_longest_idle_connection_of_all_makes_room(connect: Connect) -> None:
    first = open_idle(connect, THERE, 2)
    second = open_idle(connect, HERE, MAX_CONNECTIONS - 2)
    assert status_of(connect(ELSEWHERE)) == 200
    assert are_closed([*first, *second]) == [True] + [False] * 7


def test_a_silent_connection_that_makes_room_learns_why(small: ServerProcess, connect: Connect) -> None:
    silent = [connect(HERE) for _ in range(MAX_PER_ADDRESS)]
    assert status_of(connect(HERE)) == 200
    received = receive_until(silent[0], lambda received: received.endswith(b"}"))
    assert received.startswith(b"HTTP/1.1 503 ")
    assert b"\r\nretry-after: 1\r\n" in received
    assert b"\r\nx-request-id: " in received
    assert small.metric('transduce_rejected_total{reason="unread"}') == 0, "no request is refused"


def test_probes_are_answered_if_no_connection_is_idle(small: ServerProcess, connect: Connect) -> None:
    open_unfinished(connect, HERE, MAX_PER_ADDRESS)
    open_unfinished(connect, THERE, MAX_CONNECTIONS - MAX_PER_ADDRESS)
    for _ in range(30):
        for path in (b"/livez", b"/readyz", b"/health", b"/v2/health/ready"):
            probe = connect(HERE)
            assert status_of(probe, GET.replace(b"/livez", path)) == 200
            assert probe.recv(1) == b"", "the next probe needs the place of this one"
    before = small.metric("transduce_http_connections_refused_total")
    assert status_of(connect(ELSEWHERE), GET.replace(b"/livez", b"/v1/models")) == 503
    assert small.metric("transduce_http_connections_refused_total") == before + 1


def test_one_address_does_not_shut_out_others(small: ServerProcess, connect: Connect) -> None:
    open_unfinished(connect, HERE, MAX_PER_ADDRESS)
    assert status_of(connect(HERE), GET.replace(b"/livez", b"/v1/models")) == 503
    with httpx.Client(transport=httpx.HTTPTransport(local_address=THERE), trust_env=False) as client:
        question = {"text": GOLDEN, "source": "en", "target": "de"}
        assert client.post(f"{small.url}/v1/translate", json=question, headers=HEADERS).status_code == 200


def test_silent_connections_do_not_fill_the_places_for_probes(connect: Connect) -> None:
    open_unfinished(connect, HERE, MAX_PER_ADDRESS)
    open_unfinished(connect, THERE, MAX_CONNECTIONS - MAX_PER_ADDRESS)
    for _ in range(300):
        connect(ELSEWHERE)
    assert status_of(connect(HERE)) == 200


def test_the_port_for_probes_serves_only_probes_and_is_never_full(
    small: ServerProcess, connect: Connect
) -> None:
    port = small.probe_port  # type: ignore[attr-defined]
    open_unfinished(connect, HERE, MAX_PER_ADDRESS)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        for path in ("/livez", "/readyz", "/metrics", "/livez?from=proxy"):
            assert client.get(path).status_code == 200
        assert client.get("/v1/models").status_code == 404
        assert client.post("/v1/translate", json={"text": GOLDEN}).json()["error"]["code"] == "not_found"
    silent = [connect(HERE, port=port) for _ in range(100)]
    assert status_of(connect(HERE, port=port)) == 200
    assert not any(are_closed(silent)), "are_closed reads the answer that a closed connection got"
    assert silent[0].recv(65_536) == b""


@contextlib.asynccontextmanager
async def asked(port: int, sent: bytes) -> AsyncIterator[asyncio.StreamReader]:
    """A new connection, on which a request is sent. It is reset at the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    try:
        yield reader
    finally:
        writer.transport.abort()


def test_a_slow_request_in_the_reserve_has_less_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise slow requests would fill the reserve, so that the server answers no probe."""
    monkeypatch.setattr("app.api.http.protocol.RESERVED_READ_TIMEOUT_S", 0.05)

    async def exchange() -> bytes:
        async with serving(None, ConnectionTable(0, 0)) as port, asked(port, GET[:-2]) as reader:
            return await asyncio.wait_for(reader.read(), LIMITS.read_timeout_s / 10)

    assert uvloop.run(exchange()) == b""


@pytest.mark.parametrize(
    ("last", "status"), [(b"connection: close\r\n", b"200"), (b"", b"503")], ids=["closing", "kept"]
)
def test_a_connection_with_an_unread_response_makes_room_only_if_it_is_closing(
    last: bytes, status: bytes
) -> None:
    """The server still sends the response. It counts no connection as displaced that it closes anyway."""

    metrics = Metrics()

    async def exchange() -> bytes:
        is_answered = asyncio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await PlainTextResponse("x" * 20_000_000)(scope, receive, send)  # more than the kernel buffers
            is_answered.set()

        table = ConnectionTable(1, 1, num_reserved=0)
        async with (
            serving(app, table, metrics=metrics) as port,
            asked(port, GET.replace(b"host", last + b"host")),
        ):
            await asyncio.wait_for(is_answered.wait(), HANG_TIMEOUT_S)
            async with asked(port, GET) as reader:
                return await asyncio.wait_for(reader.readuntil(b"\r\n"), HANG_TIMEOUT_S)

    assert uvloop.run(exchange()).split(b" ")[1] == status
    assert b"transduce_http_connections_displaced_total 0.0" in metrics.render()


def test_a_refused_request_behind_an_unanswered_one_is_answered_after_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def exchange() -> bytes:
        table = ConnectionTable(8, 8, is_for_probes=True)
        async with (
            serving(PlainTextResponse("x"), table) as port,
            asked(port, GET + GET.replace(b"/livez", b"/v1/models")) as reader,
        ):
            return await asyncio.wait_for(reader.read(), HANG_TIMEOUT_S)

    received = uvloop.run(exchange())
    assert re.findall(rb"HTTP/1.1 (\d+)", received) == [b"200", b"404"]
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


def test_a_refused_request_whose_body_does_not_arrive_makes_room() -> None:
    async def exchange() -> list[bytes]:
        table = ConnectionTable(1, 1, num_reserved=0, is_for_probes=True)
        async with (
            serving(PlainTextResponse("x"), table) as port,
            asked(port, UNFINISHED) as refused,
        ):
            lines = [await asyncio.wait_for(refused.readuntil(b"\r\n"), HANG_TIMEOUT_S)]
            async with asked(port, GET) as probe:
                return [*lines, await asyncio.wait_for(probe.readuntil(b"\r\n"), HANG_TIMEOUT_S)]

    assert [line.split(b" ")[1] for line in uvloop.run(exchange())] == [b"404", b"200"]


class FakeConnection:
    """A connection without a socket."""

    def __init__(self, *, has_request: bool = False) -> None:
        self.is_open = True
        self.has_request = has_request

    def is_quiet(self) -> bool:
        return not self.has_request

    def is_answering(self) -> bool:
        return False

    def make_room(self) -> None:
        self.is_open = False


def test_a_connection_with_an_unread_request_is_not_idle() -> None:
    table = ConnectionTable(2, 2, num_reserved=0)
    with_request, silent, new = FakeConnection(has_request=True), FakeConnection(), FakeConnection()
    for connection in (with_request, silent):
        table.admit(connection, HERE)
    assert table.admit(new, HERE)[0] is Admission.SERVED
    assert with_request.is_open
    assert not silent.is_open
    table.leave(silent)
    table.leave(new)
    assert table.admit(FakeConnection(), HERE)[0] is Admission.SERVED


def test_a_table_keeps_no_refused_connections() -> None:
    table = ConnectionTable(1, 1, num_reserved=1)
    busy = [FakeConnection(has_request=True) for _ in range(3)]
    admitted = [table.admit(connection, HERE)[0] for connection in busy]
    assert admitted == [Admission.SERVED, Admission.RESERVED, Admission.REFUSED]
    for connection in busy:
        table.leave(connection)
    assert table.admit(FakeConnection(), HERE)[0] is Admission.SERVED


def test_a_table_keeps_no_address_without_a_connection() -> None:
    table, connections = ConnectionTable(4, 2), [FakeConnection() for _ in range(3)]
    for connection, host in zip(connections, (HERE, HERE, THERE), strict=True):
        table.admit(connection, host)
    assert table._num_by_address == {HERE: 2, THERE: 1}
    for connection in connections:
        table.leave(connection)
    assert table._num_by_address == {}


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2::1", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("no:address", "no:address"),
        ("", ""),
    ],
)
def test_the_64_bit_prefix_of_an_ipv6_address_is_one_address(host: str, address: str) -> None:
    assert address_of(host) == address


def test_one_address_may_have_nine_tenths_of_all_connections() -> None:
    assert [max_per_address(number, 0) for number in (1, 2, 10, 1000)] == [1, 1, 9, 900]
    assert max_per_address(1000, 7) == 7


def serve_with_open_files(soft: int, hard: int, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Run `transduce serve` with limits on open files. If it accepts them, it ends because `tmp_path` has no bundle."""
    return subprocess.run(
        [sys.executable, "-m", "transduce", "serve", "--port", "0", "--bundle", str(tmp_path)],
        cwd=ROOT,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_more_connections_than_open_files_stop_the_start(tmp_path: Path) -> None:
    ended = serve_with_open_files(512, 512, tmp_path)
    assert ended.returncode == 78
    assert "TRANSDUCE_MAX_CONNECTIONS (1000) needs 1448 open files" in ended.stderr
    assert "may have 512" in ended.stderr


def test_the_soft_limit_of_open_files_is_raised() -> None:
    code = """
import resource
from app.api.http.connections import reserve_open_files
resource.setrlimit(resource.RLIMIT_NOFILE, (512, 4096))
reserve_open_files(1000)
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""
    output = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True, timeout=60)
    soft, hard = map(int, output.split())
    assert 1448 <= soft <= hard == 4096


def test_an_infinite_hard_limit_of_open_files_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[tuple[int, int]] = [(512, resource.RLIM_INFINITY)]
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _kind, changed: limits.append(changed))
    reserve_open_files(1000)
    soft, hard = limits[-1]
    assert soft >= 1448
    assert hard == resource.RLIM_INFINITY
