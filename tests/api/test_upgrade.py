"""An offered upgrade is ignored: the request is served as HTTP/1.1 (RFC 9110, section 7.8)."""

from __future__ import annotations

import orjson
import pytest

from tests.api.echo import GOLDEN
from tests.api.server_process import ServerProcess
from tests.api.test_connections import receive_until

BODY = orjson.dumps({"text": GOLDEN, "source": "en", "target": "de"})
# What Java 17's HttpClient sends by default.
JAVA = (
    b"POST /v1/translate HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nContent-Length: %d\r\n"
    b"Host: 127.0.0.1:8000\r\nHTTP2-Settings: AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA\r\nUpgrade: h2c\r\n"
    b"User-Agent: Java-http-client/17.0.15\r\nContent-Type: application/json\r\n\r\n%b"
) % (len(BODY), BODY)
# What `curl --http2 -d` sends.
CURL = (
    b"POST /v1/translate HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n"
    b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n"
    b"content-type: application/json\r\nContent-Length: %d\r\n\r\n%b"
) % (len(BODY), BODY)
WEBSOCKET = (
    b"host: x\r\nconnection: keep-alive, Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
WEBSOCKET_POST = (
    b"POST /v1/translate HTTP/1.1\r\n%bcontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
) % (WEBSOCKET, len(BODY), BODY)
CHUNKED_POST = (
    b"POST /v1/translate HTTP/1.1\r\n%bcontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    b"%x\r\n%b\r\n0\r\n\r\n"
) % (WEBSOCKET, len(BODY), BODY)
POSTS = {
    "java": JAVA,
    "curl": CURL,
    "websocket": WEBSOCKET_POST,
    "chunked": CHUNKED_POST,
    "HTTP/1.0": CURL.replace(b"HTTP/1.1", b"HTTP/1.0"),
}


def answers(server: ServerProcess, *sent: bytes, num_answers: int = 1) -> bytes:
    """Send each part in its own call. Returns all bytes once `num_answers` responses have arrived."""
    with server.connect() as connection:
        for part in sent:
            connection.sendall(part)
        return receive_until(connection, lambda received: received.count(GOLDEN.encode()) == num_answers)


@pytest.mark.parametrize("post", POSTS.values(), ids=POSTS)
def test_a_post_is_translated(server: ServerProcess, post: bytes) -> None:
    assert answers(server, post).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("post", POSTS.values(), ids=POSTS)
def test_a_post_in_any_packets_is_translated(server: ServerProcess, post: bytes) -> None:
    body = post.index(b"\r\n\r\n") + 4
    for cut in (40, body - 1, body, body + 10):
        assert answers(server, post[:cut], post[cut:]).startswith(b"HTTP/1.1 200 ")


def test_a_connection_serves_pipelined_posts(server: ServerProcess) -> None:
    posts = [JAVA, CURL, WEBSOCKET_POST, CHUNKED_POST, CURL]
    received = answers(server, b"".join(posts), num_answers=5)
    assert received.count(b"HTTP/1.1 200 ") == 5


def test_a_get_is_answered(server: ServerProcess) -> None:
    with server.connect() as connection:
        for _ in range(2):
            connection.sendall(b"GET /v1/models HTTP/1.1\r\n" + WEBSOCKET + b"\r\n")
            received = receive_until(connection, lambda received: received.endswith(b"}"))
            assert received.startswith(b"HTTP/1.1 200 ")
            assert b"upgrade" not in received.lower()


def test_the_other_header_fields_have_their_effect(server: ServerProcess) -> None:
    with server.connect() as connection:
        connection.sendall(JAVA.replace(b"Upgrade, ", b"Upgrade, close, ", 1))
        received = receive_until(connection, lambda received: received.endswith(b"}"))
        assert b"connection: close" in received
        assert connection.recv(1) == b""
    with server.connect() as connection:
        connection.sendall(JAVA.replace(b"Upgrade: h2c", b"Upgrade: h2c\r\nX-Request-Id: mine", 1))
        assert b"x-request-id: mine" in receive_until(connection, lambda received: received.endswith(b"}"))


@pytest.mark.parametrize(
    "bad",
    [
        CURL.replace(b"\r\nHost: 127.0.0.1:8000", b"", 1),
        CURL.replace(b"HTTP/1.1", b"HTTP/2.0", 1),
        CURL.replace(b"\r\nUpgrade", b"\r\nTransfer-Encoding: chunked\r\nUpgrade", 1),
        b"CONNECT x:80 HTTP/1.1\r\nhost: x\r\n\r\n",
    ],
    ids=["no host", "HTTP/2.0", "length and chunks", "CONNECT"],
)
def test_an_invalid_request_with_an_upgrade_or_connect_is_refused(server: ServerProcess, bad: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(bad)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 400 ")
