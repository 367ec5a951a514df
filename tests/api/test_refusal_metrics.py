"""Requests that are refused before a route gets them are counted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import uvloop

from app.api.http.connections import ConnectionTable
from tests.api.server_process import ServerProcess
from tests.api.test_connections import receive_until
from tests.api.test_draining import serving

LARGE_HEADER = b"GET /livez HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 100_000 + b"\r\n\r\n"


@pytest.fixture(scope="module")
def server(echo_command: list[str]) -> Iterator[ServerProcess]:
    with ServerProcess(echo_command) as process:
        yield process.ready()


def status_of(server: ServerProcess, sent: bytes) -> int:
    """The status of the answer to a request."""
    with server.connect() as connection:
        connection.sendall(sent)
        return int(receive_until(connection, lambda received: received.endswith(b"}")).split(b" ")[1])


@pytest.mark.parametrize(
    ("sent", "status", "reason"),
    [
        (b"GET /livez HTTP/1.1\r\n\r\n", 400, "invalid"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "invalid"),
        (LARGE_HEADER, 431, "too_large"),
    ],
    ids=["no host", "no HTTP", "large header"],
)
def test_a_request_that_the_protocol_refuses_is_counted(
    server: ServerProcess, sent: bytes, status: int, reason: str
) -> None:
    name = f'transduce_rejected_total{{reason="{reason}"}}'
    before = server.metric(name)
    assert status_of(server, sent) == status
    assert server.metric(name) == before + 1


def test_a_request_that_another_servers_api_refuses_is_counted(server: ServerProcess) -> None:
    name = 'transduce_rejected_total{reason="invalid"}'
    before = server.metric(name)
    with server.client() as client:
        answer = client.post("/translate", json={"q": "Anna sees.", "source": "xx", "target": "de"})
    assert answer.status_code == 400
    assert server.metric(name) == before + 1


def test_a_path_that_the_probe_port_does_not_serve_is_counted(echo_command: list[str]) -> None:
    with ServerProcess(echo_command, {"probe_port": 0}) as server:
        port = int(server.wait_for("listening_for_probes")["port"])
        server.ready()
        server.port, own = port, server.port
        assert status_of(server, b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n") == 404
        server.port = own
        assert server.metric('transduce_rejected_total{reason="invalid"}') == 1


@pytest.mark.parametrize(
    ("path", "route"), [("/livez", "/livez"), ("/v1/translate", "unmatched"), ("/nowhere", "unmatched")]
)
def test_before_routing_only_the_path_of_a_probe_has_its_own_label(
    server: ServerProcess, path: str, route: str
) -> None:
    name = f'transduce_http_requests_total{{code="413",method="POST",route="{route}"}}'
    before = server.metric(name)
    sent = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 30000000\r\n\r\n"
    assert status_of(server, sent.encode()) == 413
    assert server.metric(name) == before + 1


@pytest.mark.parametrize(("max_connections", "level"), [(8, "INFO"), (0, "DEBUG")])
def test_only_refusals_for_lack_of_room_are_debug_lines(
    max_connections: int, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A full server refuses many connections, and each line takes time."""

    async def refuse() -> None:
        table = ConnectionTable(max_connections, max_connections, num_reserved=0)
        async with serving(None, table) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"no HTTP\r\n\r\n")
            await reader.read(1)
            writer.close()

    with caplog.at_level("DEBUG", "app.protocol"):
        uvloop.run(refuse())
    assert [
        (each.levelname, each.getMessage()) for each in caplog.records if each.name == "app.protocol"
    ] == [(level, "refused_by_protocol")]
