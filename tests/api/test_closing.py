"""Connections that the server closes while a client still sends a request or reads a response."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import uvloop
from starlette.types import Receive, Scope, Send

from app.api.http.closing import CONNECTION
from app.api.http.server import CLOSE_TIMEOUT_S
from tests.api.certificates import make_certificate, trusting
from tests.api.server_process import HANG_TIMEOUT_S, NO_CERTIFICATES, ServerProcess
from tests.api.test_protocol import LENGTH, body, connected, protocol_of, start
from tests.api.test_stopped_readers import SYSTEM_BYTES, unread_connection

SHORT_S = 1.0
BODY_BYTES = 400_000
PART_BYTES = 60_000  # of one part of a sent body; the last part also has the request that follows the body
POST = b"POST /v1/translate HTTP/1.1\r\nhost: x\r\n"
JSON = b"content-type: application/json\r\n"
TEXT = b"content-type: text/plain\r\n"
# Two headers of a body above the limit: the first declares the length, the second announces chunks.
TOO_LARGE = b"content-length: 400000\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n"
CHUNKED_BODY = b"%x\r\n%b\r\n0\r\n\r\n" % (BODY_BYTES, b" " * BODY_BYTES)
GET = b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n"
GETS = 'transduce_http_requests_total{code="200",method="GET",route="/v1/models"}'
SETTINGS: dict[str, object] = {"max_body_bytes": 100_000, "probe_port": 0, "read_timeout_s": 60}
FILE_BYTES = 9_500_000


@pytest.fixture(scope="module")
def server(echo_command: list[str]) -> Iterator[ServerProcess]:
    with ServerProcess(echo_command, SETTINGS) as process:
        process.probe_port = int(process.wait_for("listening_for_probes")["port"])  # type: ignore[attr-defined]
        yield process.ready()


@pytest.fixture(scope="module")
def tls_server(
    echo_command: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ServerProcess, ssl.SSLContext]]:
    context, settings = with_tls(tmp_path_factory.mktemp("tls"))
    settings |= {"max_body_bytes": 100_000, "read_timeout_s": 60}
    with ServerProcess(echo_command, settings) as process:
        yield process.ready(), context


def with_tls(folder: Path) -> tuple[ssl.SSLContext, dict[str, object]]:
    """The context of a client, and the settings of a server that it trusts."""
    certificate, key = make_certificate(folder)
    return trusting(certificate), {"tls_certificate": certificate, "tls_key": key}


def head(version: bytes, headers: bytes) -> bytes:
    return b"POST /v1/translate HTTP/%b\r\nhost: x\r\n%b\r\n" % (version, headers)


def answer_before_the_body(connection: socket.socket, begin: bytes, rest: bytes) -> bytes:
    """Send `begin`, and `rest` once the response has begun. Returns all data until the server closes the connection.

    The rest is sent in parts, so that a reset of the connection fails the test.
    """
    connection.sendall(begin)
    answer = connection.recv(1)
    time.sleep(0.1)  # a server that closes the connection with the response has closed it now
    for first in range(0, len(rest), PART_BYTES):
        connection.sendall(rest[first : first + PART_BYTES])
        time.sleep(0.002)
    return answer + read_all(connection)


@pytest.mark.parametrize(
    ("begin", "rest", "status"),
    [
        (head(b"1.1", b"connection: close\r\n" + JSON + TOO_LARGE), b" " * BODY_BYTES, b"413"),
        (head(b"1.0", JSON + TOO_LARGE), b" " * BODY_BYTES, b"413"),
        (head(b"1.1", b"connection: close\r\n" + JSON + CHUNKED), CHUNKED_BODY, b"413"),
        (head(b"1.1", b"connection: close\r\n" + TEXT + CHUNKED), CHUNKED_BODY, b"415"),
    ],
    ids=["too large", "too large in HTTP/1.0", "too large in chunks", "wrong type"],
)
def test_a_client_that_sends_its_whole_body_first_gets_the_refusal(
    server: ServerProcess, begin: bytes, rest: bytes, status: bytes
) -> None:
    # A chunked body gets 413 only when more bytes than the limit have arrived.
    num_early = 0 if status == b"415" or TOO_LARGE in begin else 200_000
    with server.connect() as connection:
        answer = answer_before_the_body(connection, begin + rest[:num_early], rest[num_early:] + GET)
    assert answer.split(b" ")[1] == status
    assert b"connection: close\r\n" in answer
    assert answer.endswith(b"}")
    assert answer.count(b"HTTP/1.1 ") == 1, "a request after the last one of the connection gets no response"


def test_in_the_drain_delay_a_client_that_sends_its_whole_body_first_gets_the_refusal(
    echo_command: list[str],
) -> None:
    """The server closes the connection although the client does not ask for it."""
    with ServerProcess(echo_command, {**SETTINGS, "drain_delay_s": 1000}) as server:
        with server.ready().connect() as connection:
            server.signal()
            server.wait_for("draining")
            answer = answer_before_the_body(
                connection, head(b"1.1", JSON + TOO_LARGE), b" " * BODY_BYTES + GET
            )
        assert answer.split(b" ")[1] == b"413"
        assert server.metric(GETS) == 0, "the application gets no request after the last of the connection"


def test_a_client_without_a_key_gets_the_refusal(echo_command: list[str]) -> None:
    key = hashlib.sha256(b"secret").hexdigest()
    with ServerProcess(echo_command, {"api_keys": key}) as server, server.ready().connect() as connection:
        begin = head(b"1.1", b"connection: close\r\n" + JSON + TOO_LARGE)
        assert answer_before_the_body(connection, begin, b" " * BODY_BYTES).split(b" ")[1] == b"401"


def test_a_client_of_the_port_for_probes_gets_the_refusal(server: ServerProcess) -> None:
    address = ("127.0.0.1", server.probe_port)  # type: ignore[attr-defined]
    with socket.create_connection(address, timeout=60) as connection:
        answer = answer_before_the_body(connection, head(b"1.1", JSON + TOO_LARGE), b" " * BODY_BYTES + GET)
    assert answer.split(b" ")[1] == b"404"
    assert answer.count(b"HTTP/1.1 ") == 1
    with socket.create_connection(address, timeout=60) as connection:
        connection.sendall(head(b"1.1", JSON + b"content-length: 2\r\n") + b"{}")
        while connection.recv(65_536):
            pass


def test_a_client_that_reads_to_the_end_before_its_body_gets_the_refusal(server: ServerProcess) -> None:
    """The server closes its side of the connection after the response, so that the read of the client ends."""
    with server.connect() as connection:
        connection.settimeout(30)  # less than read_timeout_s
        connection.sendall(head(b"1.1", b"connection: close\r\nexpect: 100-continue\r\n" + JSON + TOO_LARGE))
        assert read_all(connection).startswith(b"HTTP/1.1 413 ")


def test_the_rest_of_a_body_has_a_time_limit(echo_command: list[str]) -> None:
    settings: dict[str, object] = {**SETTINGS, "read_timeout_s": SHORT_S}
    with ServerProcess(echo_command, settings) as server, server.ready().connect() as connection:
        connection.sendall(head(b"1.1", b"connection: close\r\n" + JSON + TOO_LARGE))
        assert connection.recv(65_536).startswith(b"HTTP/1.1 413 ")
        with pytest.raises(OSError, match=r"Broken pipe|reset"):  # noqa: PT012 - the loop ends with the error
            for _ in range(1000):
                connection.sendall(b" ")
                time.sleep(0.05)
        assert server.metric("transduce_http_request_read_timeouts_total") == 1


@pytest.mark.parametrize(
    ("begin", "rest"),
    [
        (TOO_LARGE + b"\r\n", b" " * BODY_BYTES),
        (CHUNKED + b"\r\n" + CHUNKED_BODY[:200_000], CHUNKED_BODY[200_000:]),
    ],
    ids=["too large", "too large in chunks"],
)
def test_with_tls_a_client_that_sends_its_whole_body_first_gets_the_refusal(
    tls_server: tuple[ServerProcess, ssl.SSLContext], begin: bytes, rest: bytes
) -> None:
    server, context = tls_server
    with context.wrap_socket(server.connect(), server_hostname="127.0.0.1") as connection:
        begin = POST + b"connection: close\r\n" + JSON + begin
        assert answer_before_the_body(connection, begin, rest).split(b" ")[1] == b"413"


def test_with_tls_a_client_that_reads_to_the_end_before_its_body_gets_the_refusal(
    tls_server: tuple[ServerProcess, ssl.SSLContext],
) -> None:
    server, context = tls_server
    with context.wrap_socket(server.connect(), server_hostname="127.0.0.1") as connection:
        connection.settimeout(30)  # less than read_timeout_s
        connection.sendall(head(b"1.1", b"connection: close\r\nexpect: 100-continue\r\n" + JSON + TOO_LARGE))
        assert read_all(connection).startswith(b"HTTP/1.1 413 ")


def test_with_tls_the_rest_of_a_body_has_a_time_limit(echo_command: list[str], tmp_path: Path) -> None:
    context, settings = with_tls(tmp_path)
    settings |= {**SETTINGS, "read_timeout_s": SHORT_S}
    with (
        ServerProcess(echo_command, settings) as server,
        context.wrap_socket(server.ready().connect(), server_hostname="127.0.0.1") as connection,
    ):
        connection.sendall(head(b"1.1", b"connection: close\r\n" + JSON + TOO_LARGE))
        assert read_all(connection).startswith(b"HTTP/1.1 413 ")
        with pytest.raises(OSError, match=r"Broken pipe|reset|EOF"):  # noqa: PT012 - the loop ends with the error
            for _ in range(200):  # at most 10 s; the event loop waits longer for the end of TLS
                connection.sendall(b" ")
                time.sleep(0.05)


@pytest.mark.parametrize(
    ("next_request", "next_answer"),
    [(b"content-length: 10\r\n\r\n", b"HTTP/1.1 408 "), (b"", b"")],
    ids=["no body", "half a header"],
)
def test_a_request_that_arrives_with_the_rest_of_a_refused_one_has_a_time_limit(
    echo_command: list[str], next_request: bytes, next_answer: bytes
) -> None:
    settings: dict[str, object] = {**SETTINGS, "read_timeout_s": SHORT_S, "keep_alive_s": 1000}
    with ServerProcess(echo_command, settings) as server, server.ready().connect() as connection:
        connection.sendall(head(b"1.1", JSON + TOO_LARGE) + b" " * (BODY_BYTES - 100))
        answer = connection.recv(65_536)
        while not answer.endswith(b"}"):
            answer += connection.recv(65_536)
        assert answer.startswith(b"HTTP/1.1 413 ")
        connection.sendall(b" " * 100 + POST + JSON + next_request)
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(len(b"HTTP/1.1 408 ")) == next_answer
        assert server.metric("transduce_http_request_read_timeouts_total") == 1


@pytest.mark.parametrize(
    ("framing", "rest"),
    [
        (b"content-length: 2\r\n\r\n", b"{}" + GET),
        (b"transfer-encoding: chunked\r\n\r\n", b"no size\r\n"),
    ],
    ids=["next request", "bad chunk"],
)
def test_what_follows_the_last_response_is_dropped(
    framing: bytes, rest: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """It is neither served nor refused, because the server has closed its side."""
    scopes: list[Scope] = []

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        scopes.append(scope)
        await send(start(LENGTH))
        await send(body(b"hello"))

    async def exchange() -> None:
        async with connected(app) as (reader, writer):
            writer.write(b"POST / HTTP/1.1\r\nhost: x\r\n" + framing)
            await asyncio.wait_for(reader.readuntil(b"hello"), HANG_TIMEOUT_S)
            protocol_of(scopes[0]).shutdown()
            assert await asyncio.wait_for(reader.read(), HANG_TIMEOUT_S) == b""
            writer.write(rest)
            async with asyncio.timeout(HANG_TIMEOUT_S):
                connection = scopes[0]["extensions"][CONNECTION]
                while not connection["is_disconnected"]():  # noqa: ASYNC110 - no event reports it
                    await asyncio.sleep(0.01)

    with caplog.at_level("DEBUG"):
        uvloop.run(exchange())
    assert len(scopes) == 1
    assert [each for each in caplog.records if each.name in {"app.protocol", "asyncio"}] == []


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_drain_waits_for_a_slow_download(echo_command: list[str], scheme: str, tmp_path: Path) -> None:
    """The client reads nothing until long after the time in which idle connections are closed."""
    context: ssl.SSLContext | None = None
    settings: dict[str, object] = {}
    if scheme == "https":
        context, settings = with_tls(tmp_path)
    with (
        ServerProcess(echo_command, settings) as server,
        begin_download(server.ready(), context) as connection,
    ):
        server.signal()
        server.wait_for("draining")
        time.sleep(CLOSE_TIMEOUT_S * 2)
        assert len(read_all(connection).partition(b"\r\n\r\n")[2]) == FILE_BYTES
        assert server.ended() == 0


def test_a_drain_does_not_wait_longer_than_its_limit_for_a_client_that_does_not_read(
    echo_command: list[str],
) -> None:
    settings: dict[str, object] = {"drain_timeout_s": 0.5, "reader_stall_s": 1000}
    with ServerProcess(echo_command, settings) as server, begin_download(server.ready()):
        server.signal()
        assert server.ended() == 0
    assert server.errors == []


def begin_download(server: ServerProcess, context: ssl.SSLContext | None = None) -> socket.socket:
    """A connection that has read the first byte of a response larger than all buffers."""
    assert FILE_BYTES > SYSTEM_BYTES + 500_000
    content = (b" " * 99 + b"\n") * (FILE_BYTES // 100)
    scheme = "http" if context is None else "https"
    with httpx.Client(trust_env=False, verify=context or NO_CERTIFICATES, timeout=HANG_TIMEOUT_S) as client:
        fields, files = {"source": "en", "target": "de"}, {"file": ("a.txt", content)}
        url = f"{scheme}://127.0.0.1:{server.port}/translate_file"
        path = urlsplit(client.post(url, data=fields, files=files).json()["translatedFileUrl"]).path
    connection = unread_connection(server, b"")
    connection.settimeout(HANG_TIMEOUT_S)
    if context is not None:
        connection = context.wrap_socket(connection, server_hostname="127.0.0.1")
    connection.sendall(b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n" % path.encode())
    assert connection.recv(1) == b"H", "the response begins"
    return connection


def read_all(connection: socket.socket) -> bytes:
    """All data until the server closes."""
    received = b""
    while part := connection.recv(65_536):
        received += part
    return received
