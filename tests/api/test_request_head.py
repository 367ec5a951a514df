"""Heads of requests, over sockets: which are refused, as RFC 9112 requires or allows, and which are served.

Every response has a request id.
"""

from __future__ import annotations

import re
import select

import orjson
import pytest

from tests.api.echo import GOLDEN
from tests.api.server_process import ServerProcess
from tests.api.test_connections import receive_until

BODY = orjson.dumps({"text": GOLDEN, "source": "en", "target": "de"})
POST = b"POST /v1/translate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
# LENGTH ends the head after POST and has the body. CHUNKS is the body in chunks, for a head with CHUNKED.
LENGTH = b"content-length: %d\r\n\r\n%b" % (len(BODY), BODY)
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
CHUNKED = b"transfer-encoding: chunked\r\n"
REQUEST_ID = re.compile(rb"\r\nx-request-id: ([0-9a-f]{32})\r\n")


def answer(server: ServerProcess, sent: bytes) -> bytes:
    """One complete response."""
    with server.connect() as connection:
        connection.sendall(sent)
        return receive_until(connection, lambda received: received.endswith(b"}"))


REFUSED = {
    "HTTP/0.9": b"GET /livez\r\n\r\n",
    "HTTP/0.9 by name": b"GET /livez HTTP/0.9\r\nhost: x\r\n\r\n",
    "HTTP/2.0": b"GET /livez HTTP/2.0\r\nhost: x\r\n\r\n",
    "no host": b"GET /livez HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /livez HTTP/1.1\r\nhost: x\r\nHost: x\r\n\r\n",
    "host with a space": b"GET /livez HTTP/1.1\r\nhost: x y\r\n\r\n",
    "host with a path": b"GET /livez HTTP/1.1\r\nhost: x/y\r\n\r\n",
    "host with a user": b"GET /livez HTTP/1.1\r\nhost: y@x\r\n\r\n",
    "other coding before": POST + b"transfer-encoding: gzip, chunked\r\n\r\n" + CHUNKS,
    "other coding in an earlier line": POST + b"transfer-encoding: identity\r\n" + CHUNKED + b"\r\n" + CHUNKS,
    "other coding after": POST + b"transfer-encoding: chunked, gzip\r\n\r\n" + CHUNKS,
    "chunked twice": POST + b"transfer-encoding: chunked, chunked\r\n\r\n" + CHUNKS,
    "chunked in two lines": POST + CHUNKED + CHUNKED + b"\r\n" + CHUNKS,
    "identity": POST + b"transfer-encoding: identity\r\n" + LENGTH,
    "almost chunked": POST + b"transfer-encoding: xchunked\r\n\r\n" + CHUNKS,
    "chunked in quotes": POST + b'transfer-encoding: "chunked"\r\n\r\n' + CHUNKS,
    "chunked with a parameter": POST + b"transfer-encoding: chunked;q=1\r\n\r\n" + CHUNKS,
    "space before the colon": POST + b"transfer-encoding : chunked\r\n\r\n" + CHUNKS,
    "vertical tab": POST + b"transfer-encoding: \x0bchunked\r\n\r\n" + CHUNKS,
    "no coding": POST + b"transfer-encoding:\r\n" + LENGTH,
    "chunks to HTTP/1.0": POST.replace(b"HTTP/1.1", b"HTTP/1.0") + CHUNKED + b"\r\n" + CHUNKS,
    "folded line": POST + b"x: y\r\n z\r\n" + LENGTH,
    "two lengths in a line": POST + b"content-length: 5, 5\r\n\r\nabcde",
    "bare newline after a chunk's size": POST + CHUNKED + b"\r\n" + CHUNKS.replace(b"\r\n", b"\n", 1),
}


@pytest.mark.parametrize("sent", REFUSED.values(), ids=REFUSED)
def test_a_bad_head_is_refused(server: ServerProcess, sent: bytes) -> None:
    received = answer(server, sent)
    assert received.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"\r\nconnection: close\r\n" in received
    named = REQUEST_ID.search(received)
    assert named is not None
    error = orjson.loads(received.partition(b"\r\n\r\n")[2])["error"]
    assert error["code"] == "malformed_http"
    assert error["request_id"].encode() == named[1]


SERVED = {
    "no host in HTTP/1.0": b"GET /livez HTTP/1.0\r\n\r\n",
    "empty host": b"GET /livez HTTP/1.1\r\nhost:\r\n\r\n",
    "IPv6 host": b"GET /livez HTTP/1.1\r\nhost: [::1]:8000\r\n\r\n",
    "absolute target": b"GET http://x/livez HTTP/1.1\r\nhost: x\r\n\r\n",
    "long header": b"GET /livez HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 15_000 + b"\r\n\r\n",
    "chunks": POST + CHUNKED + b"\r\n" + CHUNKS,
    "chunks in capitals": POST + b"Transfer-Encoding: CHUNKED\r\n\r\n" + CHUNKS,
    "short extension": POST + CHUNKED + b"\r\n" + CHUNKS.replace(b"\r\n", b";a=b\r\n", 1),
    "TE": POST + b"TE: trailers\r\n" + LENGTH,
    "chunks of one byte": POST
    + CHUNKED
    + b"\r\n"
    + b"".join(b"1\r\n%c\r\n" % each for each in b" " * 50_000 + BODY)
    + b"0\r\n\r\n",
}


@pytest.mark.parametrize("sent", SERVED.values(), ids=SERVED)
def test_an_allowed_head_is_served(server: ServerProcess, sent: bytes) -> None:
    assert answer(server, sent).startswith(b"HTTP/1.1 200 ")


def test_a_trailer_is_no_header(server: ServerProcess) -> None:
    """The server already processes the request when a trailer arrives. So a trailer has no effect."""
    head = POST + CHUNKED + b"\r\n"
    with server.connect() as connection:
        connection.sendall(head + CHUNKS[:-2] + b"content-encoding: gzip\r\nx-request-id: late\r\n\r\n")
        received = receive_until(connection, lambda received: received.endswith(b"}"))
        assert received.startswith(b"HTTP/1.1 200 ")
        assert b"late" not in received


@pytest.mark.parametrize(
    "begin",
    [b"%x;" % len(BODY), b"0\r\nx: ", b"%x\r\n%b\r\n5;a=" % (len(BODY), BODY)],
    ids=["extension of the first chunk", "trailer", "extension of the second chunk"],
)
def test_an_endless_chunk_extension_or_trailer_is_refused(server: ServerProcess, begin: bytes) -> None:
    before = server.metric("transduce_http_request_read_timeouts_total")
    num_sent = 0
    with server.connect() as connection:
        connection.sendall(POST + CHUNKED + b"\r\n" + begin)
        try:
            while num_sent < 50_000_000:
                num_sent += connection.send(b"y" * 16_384)
        except OSError:
            pass
    assert num_sent < 20_000_000
    assert server.metric("transduce_http_request_read_timeouts_total") == before, (
        "the size must end the connection, not the timeout"
    )
    with server.connect() as connection:
        connection.sendall(POST + CHUNKED + b"\r\n" + begin)
        # With pauses, because a connection that is reset at once may lose its response.
        while not select.select([connection], [], [], 0.05)[0]:
            connection.sendall(b"y" * 8_192)
        received = receive_until(connection, lambda received: received.endswith(b"}"))
    assert received.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 431 "))
    assert REQUEST_ID.search(received)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /livez HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 100_000 + b"\r\n\r\n", b"431"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"400"),
        (b"GET /nowhere HTTP/1.1\r\nhost: x\r\n\r\n", b"404"),
        (b"PUT /livez HTTP/1.1\r\nhost: x\r\n\r\n", b"405"),
        (POST + b"content-length: 30000000\r\nexpect: 100-continue\r\n\r\n", b"413"),
        (POST + LENGTH, b"200"),
    ],
)
def test_every_answer_names_its_request(server: ServerProcess, sent: bytes, status: bytes) -> None:
    received = answer(server, sent)
    assert received.split(b" ")[1] == status
    assert received.count(b"\r\nx-request-id: ") == 1
    assert REQUEST_ID.search(received)


def test_a_refused_request_keeps_its_request_id(server: ServerProcess) -> None:
    sent = b"GET /livez HTTP/1.1\r\nx-request-id: mine\r\n\r\n"
    received = answer(server, sent)
    assert received.startswith(b"HTTP/1.1 400 ")
    assert b"\r\nx-request-id: mine\r\n" in received
    while server.wait_for("refused_by_protocol")["request_id"] != "mine":
        pass


def test_a_path_with_a_newline_is_another_path(server: ServerProcess) -> None:
    for path in (b"/v1/models%0a", b"/livez%0A", b"/v2/glossaries/x%0a"):
        assert answer(server, b"GET " + path + b" HTTP/1.1\r\nhost: x\r\n\r\n").startswith(b"HTTP/1.1 404 ")
