"""Connections that send invalid HTTP, send slowly, stay idle or pipeline requests."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import httpx
import pytest

from tests.api.echo import GOLDEN
from tests.api.processes import wait_until
from tests.api.server_process import HANG_TIMEOUT_S, ServerProcess

READ_TIMEOUT_S = 1.0
HEAD = b"POST /v1/translate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"


def wait_until_closed(connection: socket.socket, drip: bytes = b"") -> None:
    """Send `drip` byte by byte until the server closes the connection."""
    deadline = time.monotonic() + HANG_TIMEOUT_S
    connection.settimeout(0.1)
    position = 0
    while True:
        assert time.monotonic() < deadline, "the server does not close the connection"
        try:
            if drip:
                connection.sendall(drip[position % len(drip) : position % len(drip) + 1])
                position += 1
            if connection.recv(65_536) == b"":
                break
        except TimeoutError:
            continue
        except OSError:
            break


def assert_live(connection: socket.socket) -> None:
    """Read a complete response of /livez. It may arrive in two parts."""
    assert b"200 OK" in receive_until(connection, lambda received: received.endswith(b"}"))


def receive_until(connection: socket.socket, is_enough: Callable[[bytes], bool]) -> bytes:
    received = b""
    while not is_enough(received):
        part = connection.recv(65_536)
        assert part, f"closed after {received!r}"
        received += part
    return received


@pytest.mark.parametrize(
    ("begin", "drip"),
    [
        (b"", b""),
        (b"", b"\r\n"),
        (b"GET /livez HTTP/1.1\r\n", b""),
        (b"GET /livez HTTP/1.1\r\n", b"x: y\r\n"),
        (HEAD + b"content-length: 1000\r\n\r\n", b""),
        (HEAD + b"content-length: 1000\r\n\r\n", b" "),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n", b"\r\n"),  # after a response, on the same connection
    ],
    ids=[
        "silent",
        "newlines",
        "half a header",
        "header drips",
        "no body",
        "body drips",
        "chunks drip",
        "second request",
    ],
)
def test_the_connection_of_an_unfinished_request_is_closed(
    server: ServerProcess, begin: bytes, drip: bytes
) -> None:
    before = server.metric("transduce_http_request_read_timeouts_total")
    started = time.monotonic()
    with server.connect() as connection:
        connection.sendall(begin)
        if begin.endswith(b"\r\n\r\n") and b"livez" in begin:
            assert_live(connection)
        wait_until_closed(connection, drip)
    assert time.monotonic() - started > READ_TIMEOUT_S * 0.9
    assert server.metric("transduce_http_request_read_timeouts_total") == before + 1


def test_an_idle_connection_is_kept_between_requests(server: ServerProcess) -> None:
    with server.connect() as connection:
        for _ in range(2):
            connection.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
            assert_live(connection)
            time.sleep(READ_TIMEOUT_S * 1.3)
        connection.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
        assert_live(connection)


def test_slow_clients_do_not_hold_up_others(server: ServerProcess, client: httpx.Client) -> None:
    connections = [server.connect() for _ in range(100)]
    try:
        for connection in connections:
            connection.sendall(HEAD)
        answer = client.post("/v1/translate", json={"text": GOLDEN, "source": "en", "target": "de"})
        assert answer.status_code == 200
    finally:
        for connection in connections:
            connection.close()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /livez HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 100_000 + b"\r\n\r\n", b"431"),
        (b"GET /livez HTTP/1.1\r\nhost: x\r\n" + b"a: b\r\n" * 3_000 + b"\r\n", b"431"),
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n", b"431"),
        (HEAD + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}", b"400"),
        (HEAD + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}", b"400"),
        (HEAD + b"content-length: -5\r\n\r\n{}", b"400"),
        (HEAD + b"content-length: abc\r\n\r\n{}", b"400"),
        (HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n{}", b"400"),
        (b"GET /livez HTTP/1.1\nhost: x\n\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"400"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", b"400"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"400"),
    ],
    ids=["long header", "many headers", "long path", "length and chunks", "two lengths",
         "negative length", "length that is no number", "bad chunk", "bare newlines", "TLS", "SSH", "HTTP/2"],
)  # fmt: skip
def test_invalid_http_is_refused(server: ServerProcess, sent: bytes, status: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(sent)
        answer = connection.recv(65_536)
    assert answer.split(b" ")[:2] == [b"HTTP/1.1", status]
    assert b'{"error":{"code":' in answer
    assert server.metric("transduce_inflight_requests") == 0


def test_a_header_without_end_is_cut_off(server: ServerProcess) -> None:
    def send_for_ever(connection: socket.socket) -> None:
        connection.sendall(b"GET /livez HTTP/1.1\r\nx: ")
        for _ in range(1000):
            connection.sendall(b"y" * 10_000)
            time.sleep(0.001)

    before = server.metric("transduce_http_request_read_timeouts_total")
    with server.connect() as connection, pytest.raises(OSError, match=r"Broken pipe|reset"):
        send_for_ever(connection)
    assert server.metric("transduce_http_request_read_timeouts_total") == before, (
        "the size of the header must end the connection, not the timeout"
    )


def test_a_large_body_is_refused_before_100_continue(server: ServerProcess) -> None:
    with server.connect() as connection:
        connection.sendall(HEAD + b"content-length: 30000000\r\nexpect: 100-continue\r\n\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 413 ")


def test_a_client_of_http_1_0_gets_no_100_continue(server: ServerProcess) -> None:
    """HTTP/1.0 does not know this response (RFC 9110, section 10.1.1)."""
    body = b'{"text": "Anna sees.", "source": "en", "target": "de"}'
    for version, first in ((b"1.1", b"HTTP/1.1 100 "), (b"1.0", b"HTTP/1.1 200 ")):
        head = HEAD.replace(b"HTTP/1.1", b"HTTP/" + version) + b"expect: 100-continue\r\n"
        with server.connect() as connection:
            connection.sendall(head + b"content-length: %d\r\n\r\n" % len(body))
            time.sleep(0.1)  # the server has read the header before the body arrives
            connection.sendall(body)
            assert receive_until(connection, lambda received: b"\r\n" in received).startswith(first)


def test_the_time_of_the_first_request_begins_with_its_first_byte(server: ServerProcess) -> None:
    """A connection that was silent at first has the whole time for its request."""
    with server.connect() as connection:
        time.sleep(READ_TIMEOUT_S / 2)
        connection.sendall(HEAD)
        began = time.monotonic()
        wait_until_closed(connection)
    assert time.monotonic() - began > READ_TIMEOUT_S * 0.9


def test_pipelined_requests_are_answered_in_order(server: ServerProcess) -> None:
    one = b"GET /v1/models HTTP/1.1\r\nhost: x\r\nx-request-id: %d\r\n\r\n"
    with server.connect() as connection:
        connection.sendall(b"".join(one % number for number in range(50)))
        received = receive_until(connection, lambda received: received.count(b"x-request-id: ") == 50)
    ids = [line.split(b": ")[1] for line in received.split(b"\r\n") if line.startswith(b"x-request-id")]
    assert ids == [b"%d" % number for number in range(50)]


def test_a_request_whose_body_ends_early_is_not_decoded(server: ServerProcess) -> None:
    name = 'transduce_rejected_total{reason="cancelled"}'
    before, num_cancelled = server.metric("transduce_decode_steps_total"), server.metric(name)
    with server.connect() as connection:
        connection.sendall(HEAD + b'content-length: 100\r\n\r\n{"text":')
    wait_until(lambda: server.metric(name) > num_cancelled)
    assert server.metric("transduce_decode_steps_total") == before
