"""Requests that are refused before a route gets them are counted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.api.server_process import ServerProcess
from tests.api.test_connections import receive_until

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
