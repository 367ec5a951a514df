"""Requests whose header arrives in time, and whose body does not: they are answered with 408."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from starlette.types import Message, Receive, Scope, Send

from app.api.http.closing import CONNECTION
from app.api.http.dialect import Dialects
from app.api.http.middleware import RequestScope
from app.observability.metrics import Metrics
from tests.api.certificates import make_certificate, trusting
from tests.api.server_process import ServerProcess
from tests.api.test_protocol import HANG_TIMEOUT_S, LENGTH, body, connected, protocol_of, start

LIMIT_S = 0.5
JSON = b"content-type: application/json\r\n"
FORM = b"content-type: application/x-www-form-urlencoded\r\n"
MULTIPART = b"content-type: multipart/form-data; boundary=x\r\n"
FILE = (
    b'--x\r\ncontent-disposition: form-data; name="source"\r\n\r\nen\r\n'
    b'--x\r\ncontent-disposition: form-data; name="file"; filename="a.txt"\r\n\r\nA sentence'
)
MESSAGE = "the request did not arrive within 0.5 s"
REJECTED = 'transduce_rejected_total{reason="read_timeout"}'
TIMEOUTS = "transduce_http_request_read_timeouts_total"


@pytest.fixture(scope="module")
def server(echo_command: list[str]) -> Iterator[ServerProcess]:
    with ServerProcess(echo_command, {"read_timeout_s": LIMIT_S}) as process:
        yield process.ready()


def begin(path: bytes, headers: bytes, part: bytes) -> bytes:
    """The begin of a request whose body has a hundred bytes more than `part`."""
    length = b"content-length: %d\r\n" % (len(part) + 100)
    return b"POST " + path + b" HTTP/1.1\r\nhost: x\r\n" + headers + length + b"\r\n" + part


def read_answer(connection: socket.socket) -> tuple[int, dict[str, Any]]:
    """The status and the body of the response, which ends when the server closes its side."""
    connection.settimeout(30)
    received = b""
    while part := connection.recv(65_536):
        received += part
    head, body = received.split(b"\r\n\r\n", 1)
    assert b"connection: close" in head.lower()
    return int(head.split()[1]), json.loads(body)


@pytest.mark.parametrize(
    ("path", "headers", "part"),
    [
        (b"/v1/translate", JSON, b'{"text": '),
        (b"/v1/translate", JSON, b""),
        (b"/v1/translate/stream", JSON, b'{"text": '),
        (b"/v1/score", JSON, b"{"),
        (b"/translate", JSON, b'{"q": '),
        (b"/translate", FORM, b"q=A+sentence"),
        (b"/translate", MULTIPART, FILE),
        (b"/translate_file", MULTIPART, FILE),
        (b"/v2/translate", FORM, b"text=A+sentence"),
        (b"/v2/document", MULTIPART, FILE),
        (b"/v2/models/echo/infer", JSON, b"{"),
    ],
)
def test_a_request_whose_body_is_late_gets_408_with_the_limit(
    server: ServerProcess, path: bytes, headers: bytes, part: bytes
) -> None:
    rejected, timeouts = server.metric(REJECTED), server.metric(TIMEOUTS)
    started = time.monotonic()
    with server.connect() as connection:
        connection.sendall(begin(path, headers, part))
        status, body = read_answer(connection)
    assert time.monotonic() - started >= LIMIT_S * 0.9
    assert status == 408
    assert MESSAGE in json.dumps(body)
    assert server.metric(REJECTED) == rejected + 1
    assert server.metric(TIMEOUTS) == timeouts + 1
    assert server.metric("transduce_inflight_requests") == 0


def send_slowly(connection: socket.socket, content: bytes, num_bytes: int) -> None:
    """Send this many bytes in each twentieth of a second."""
    for first in range(0, len(content), num_bytes):
        connection.sendall(content[first : first + num_bytes])
        time.sleep(0.05)


@pytest.mark.seconds
def test_a_slow_but_steady_body_may_take_longer_than_the_limit(server: ServerProcess) -> None:
    """2,000 bytes a second, as over a phone line. When no more of them arrive, the next period ends with 408."""
    content = b'{"text": "A sentence", "source": "en", "target": "de"' + b" " * 4000
    head = b"POST /v1/translate HTTP/1.1\r\nhost: x\r\nconnection: close\r\n" + JSON
    head += b"content-length: %d\r\n\r\n" % (len(content) + 1)
    with server.connect() as connection:
        connection.sendall(head)
        send_slowly(connection, content + b"}", 100)
        assert read_answer(connection)[0] == 200
    with server.connect() as connection:
        connection.sendall(head)
        send_slowly(connection, content[:1500], 100)
        status, body = read_answer(connection)
    assert status == 408
    assert re.search(r"did not arrive within (1|1\.5) s", body["error"]["message"])


@pytest.mark.seconds
def test_a_body_of_fewer_bytes_a_second_is_late_after_the_limit(server: ServerProcess) -> None:
    with server.connect() as connection:
        connection.sendall(begin(b"/v1/translate", JSON, b"").replace(b"100", b"9999"))
        started = time.monotonic()
        send_slowly(connection, b" " * 20 * 15, 20)
        status, body = read_answer(connection)
    assert (status, body["error"]["message"]) == (408, MESSAGE)
    assert time.monotonic() - started < 4 * LIMIT_S


def test_the_error_of_a_late_body_has_its_code_and_the_requests_id(server: ServerProcess) -> None:
    with server.connect() as connection:
        connection.sendall(begin(b"/v1/translate", JSON + b"x-request-id: slow-1\r\n", b"{"))
        _, body = read_answer(connection)
    assert body == {"error": {"code": "request_timeout", "message": MESSAGE, "request_id": "slow-1"}}
    line = server.wait_for_request("slow-1")
    assert (line["status"], line["route"]) == (408, "/v1/translate")


def test_a_client_that_goes_on_sending_gets_the_answer_and_is_cut_off(server: ServerProcess) -> None:
    with server.connect() as connection:
        connection.sendall(begin(b"/v1/translate", JSON, b"{").replace(b"101", b"100000"))
        connection.settimeout(0.05)
        received = b""
        with pytest.raises(OSError, match=r"Broken pipe|reset"):  # noqa: PT012 - the loop ends with the error
            for _ in range(600):
                connection.sendall(b" ")
                try:
                    received += connection.recv(65_536)
                    time.sleep(0.01)  # the server has closed its side, so that a read returns at once
                except TimeoutError:
                    continue
    assert received.startswith(b"HTTP/1.1 408 ")


def test_the_last_part_of_a_body_is_never_late() -> None:
    """It may arrive after the time limit and before the answer."""
    sent: list[Message] = []

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["body"] == b"}"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> Message:
        return {"type": "http.request", "body": b"}", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    connection = {"unread_s": 0.0, "late_after_s": lambda: 1.0}
    scope: Scope = {"type": "http", "method": "POST", "path": "/v1/translate", "headers": []}
    scope["extensions"] = {CONNECTION: connection}
    answered = RequestScope(app, metrics=Metrics(), dialects=Dialects())(scope, receive, send)
    asyncio.run(answered)
    assert sent[0]["status"] == 200


def late_request(app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> tuple[bytes, bool, float]:
    """The answer to a request whose body is late, and whether the connection then has a time limit.

    The third result is the number of timeouts that are counted when this limit has passed, too.
    """
    found: list[Any] = []
    has_begun = asyncio.Event()

    async def recorder(scope: Scope, receive: Receive, send: Send) -> None:
        found.append(protocol_of(scope))
        has_begun.set()
        await app(scope, receive, send)

    async def exchange() -> tuple[bytes, bool, float]:
        async with connected(recorder) as (reader, writer):
            writer.write(begin(b"/", JSON, b""))
            await asyncio.wait_for(has_begun.wait(), HANG_TIMEOUT_S)
            found[0]._on_read_timeout()
            received = await asyncio.wait_for(reader.read(), HANG_TIMEOUT_S)
            has_limit = found[0]._read_timer is not None
            if has_limit:
                found[0]._on_read_timeout()
            return received, has_limit, found[0]._metrics.read_timeouts._value.get()

    return uvloop.run(exchange())


def test_a_client_that_sends_nothing_after_its_408_has_a_time_limit() -> None:
    """Otherwise its connection would stay open for ever."""

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send(start(LENGTH, status=408))
        await send(body(b"hello"))

    received, has_limit, num_timeouts = late_request(app)
    assert received.endswith(b"hello")
    assert has_limit
    assert num_timeouts == 1, "a request is counted once"


def test_a_request_with_a_late_body_is_cut_off_if_its_response_has_begun() -> None:
    """The status has been sent, so it cannot become 408."""
    types: list[str] = []

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await send(start())
        await send(body(b"he", more=True))
        types.append((await receive())["type"])

    late_request(app)
    assert types == ["http.disconnect"]


def test_with_tls_a_request_whose_body_is_late_gets_408(echo_command: list[str], tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    settings: dict[str, object] = {"read_timeout_s": LIMIT_S, "tls_certificate": certificate, "tls_key": key}
    context: ssl.SSLContext = trusting(certificate)
    with (
        ServerProcess(echo_command, settings) as server,
        context.wrap_socket(server.ready().connect(), server_hostname="127.0.0.1") as connection,
    ):
        connection.sendall(begin(b"/v1/translate", JSON, b"{"))
        assert read_answer(connection)[0] == 408
