"""A busy event loop reads requests late. The wait counts towards deadlines, and after a long wait requests fail."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import time
from collections.abc import Iterator, Mapping

import pytest
import uvloop
from starlette.responses import PlainTextResponse

from app.api.http.arrival import MAX_UNREAD_S
from app.api.http.connections import ConnectionTable
from tests.api.server_process import HANG_TIMEOUT_S, ServerProcess
from tests.api.test_draining import serving

BODY = {"text": "Anna sees.", "source": "en", "target": "de"}


def request(target: str, body: Mapping[str, object] | None = None) -> bytes:
    """A request on a connection of its own: a POST if there is a body, else a GET."""
    content = b"" if body is None else json.dumps(body).encode()
    method = "GET" if body is None else "POST"
    head = (
        f"{method} {target} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\n"
        f"content-length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def answer(connection: socket.socket) -> tuple[int, bytes]:
    """Read an answer. Returns its status and all its bytes."""
    received = b""
    while part := connection.recv(65536):
        received += part
    return int(received.split(b" ", 2)[1]), received


@pytest.fixture(scope="module")
def server(echo_command: list[str]) -> Iterator[ServerProcess]:
    with ServerProcess(echo_command) as process:
        yield process.ready()


def answers_after_pause(server: ServerProcess, pause_s: float, *sent: bytes) -> list[tuple[int, bytes]]:
    """The answers to requests that arrive while the server is stopped for some seconds."""
    server.signal(signal.SIGSTOP)
    connections = [server.connect() for _ in sent]
    try:
        for connection, content in zip(connections, sent, strict=True):
            connection.sendall(content)
        time.sleep(pause_s)
    finally:
        server.signal(signal.SIGCONT)
    found = [answer(connection) for connection in connections]
    for connection in connections:
        connection.close()
    return found


def test_a_request_that_waited_too_long_is_refused_and_a_probe_is_not(server: ServerProcess) -> None:
    refused_before = server.metric('transduce_rejected_total{reason="unread"}')
    translation, probe = answers_after_pause(
        server, MAX_UNREAD_S + 0.5, request("/v1/translate", BODY), request("/livez")
    )
    assert translation[0] == 503
    head, _, body = translation[1].partition(b"\r\n\r\n")
    assert b"retry-after: 1" in head.lower()
    assert b"too busy" in body
    assert probe[0] == 200
    assert server.metric('transduce_rejected_total{reason="unread"}') == refused_before + 1
    with server.client() as client:
        assert client.post("/v1/translate", json=BODY).status_code == 200


def test_the_wait_counts_towards_the_deadline(server: ServerProcess) -> None:
    hurried = request("/v1/translate", {**BODY, "timeout_ms": 300})
    patient = request("/v1/translate", {**BODY, "timeout_ms": 30_000})
    late, in_time = answers_after_pause(server, 0.6, hurried, patient)
    assert late[0] == 504
    assert in_time[0] == 200


def test_the_time_to_a_streams_first_event_begins_with_the_requests_arrival(server: ServerProcess) -> None:
    ((status, _),) = answers_after_pause(server, 0.5, request("/v1/translate/stream", BODY))
    assert status == 200
    assert server.metric("transduce_stream_first_event_seconds_sum") > 0.4


@pytest.mark.parametrize(
    ("table", "target", "status"),
    [
        (ConnectionTable(0, 0), b"/livez", b"200"),
        (ConnectionTable(8, 8, is_for_probes=True), b"/v1/models", b"404"),
    ],
    ids=["reserve", "port for probes"],
)
def test_a_long_wait_changes_neither_the_reserve_nor_the_port_for_probes(
    table: ConnectionTable, target: bytes, status: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A probe leaves the reserve with its answer. The port for probes has no other path, however busy it is."""
    monkeypatch.setattr("app.api.http.protocol.unread_s", lambda _connection: MAX_UNREAD_S * 2)

    async def exchange() -> bytes:
        async with serving(PlainTextResponse("x"), table) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET " + target + b" HTTP/1.1\r\nhost: x\r\n\r\n")
            received = await asyncio.wait_for(reader.read(), HANG_TIMEOUT_S)
            writer.close()
            return received

    head = uvloop.run(exchange()).partition(b"\r\n\r\n")[0]
    assert head.split(b" ")[1] == status
    assert b"\r\nconnection: close" in head
