"""Pipelined requests whose client disconnects, and responses to HTTP/1.0."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from pathlib import Path
from typing import Any

import pytest
import uvloop
from starlette.types import Receive, Scope, Send

from tests.api.certificates import make_certificate, trusting
from tests.api.server_process import ServerProcess
from tests.api.test_connections import HEAD
from tests.api.test_protocol import (
    GET,
    HANG_TIMEOUT_S,
    LENGTH,
    answer,
    app_that_sends,
    app_that_works,
    body,
    connected,
    protocol_of,
    start,
)
from tests.api.test_stream import BODY, LONG, ROUTE

POST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
OLD_GET = b"GET / HTTP/1.0\r\n\r\n"
# A value of SO_LINGER: the connection is reset when it is closed.
RESET = struct.pack("ii", 1, 0)


@pytest.mark.parametrize("is_reset", [False, True])
@pytest.mark.parametrize(
    "pipelined", [GET, GET * 3, POST.replace(b"length: 2", b"length: 200000") + b" " * 150_000]
)
def test_work_ends_when_a_caller_with_pipelined_requests_disconnects(
    pipelined: bytes, is_reset: bool
) -> None:
    async def exchange() -> None:
        has_begun, has_ended = asyncio.Event(), asyncio.Event()
        async with connected(app_that_works(has_begun, has_ended)) as (_reader, writer):
            writer.write(POST)
            await asyncio.wait_for(has_begun.wait(), HANG_TIMEOUT_S)
            writer.write(pipelined)
            await asyncio.sleep(0.05)
            if is_reset:
                connection = writer.get_extra_info("socket")
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            writer.close()
            await asyncio.wait_for(has_ended.wait(), HANG_TIMEOUT_S / 2)  # before the work ends by itself

    uvloop.run(exchange())


def test_the_request_that_is_answered_learns_of_a_disconnect() -> None:
    """The application then receives `http.disconnect`, and may still send without an error."""

    async def exchange() -> None:
        has_begun, has_ended = asyncio.Event(), asyncio.Event()

        async def app(_scope: Scope, receive: Receive, send: Send) -> None:
            await send(start())
            await send(body(b"he", more=True))
            has_begun.set()
            while (await receive())["type"] != "http.disconnect":
                pass
            await asyncio.sleep(0.05)  # the transport is closed
            await send(body(b"llo"))
            has_ended.set()

        async with connected(app) as (_reader, writer):
            writer.write(GET)
            await asyncio.wait_for(has_begun.wait(), HANG_TIMEOUT_S)
            writer.write(GET)
            await asyncio.sleep(0.05)
            writer.close()
            await asyncio.wait_for(has_ended.wait(), HANG_TIMEOUT_S)

    uvloop.run(exchange())


@pytest.mark.parametrize("has_tls", [False, True])
def test_a_stream_whose_caller_disconnects_after_a_pipelined_request_is_cancelled(
    echo_command: list[str], hang_file: Path, tmp_path: Path, has_tls: bool
) -> None:
    settings: dict[str, object] = {"probe_port": 0}
    certificate, key = make_certificate(tmp_path)
    if has_tls:
        settings |= {"tls_certificate": certificate, "tls_key": key}
    content = b'{"text": "%b", "source": "en", "target": "de", "beam_size": 1}' % LONG.encode()
    assert set(BODY) == {"text", "source", "target", "beam_size"}
    with ServerProcess([*echo_command, f"hang_file={hang_file}"], settings) as server:
        probe_port = int(server.wait_for("listening_for_probes")["port"])
        server.ready()
        hang_file.touch()
        connection = server.connect()
        if has_tls:
            connection = trusting(certificate).wrap_socket(connection, server_hostname="127.0.0.1")
        with connection:
            head = HEAD.replace(b"/v1/translate", ROUTE.encode()) + b"content-length: %d\r\n\r\n"
            connection.sendall(head % len(content) + content + GET.replace(b"/ ", b"/livez "))
            server.url = f"http://127.0.0.1:{probe_port}"
            server.wait_until("transduce_inflight_requests", 1)
        server.wait_until('transduce_rejected_total{reason="cancelled"}', 1)
        assert server.metric('transduce_rejected_total{reason="engine"}') == 0
        hang_file.unlink()


def test_a_response_to_http_1_0_is_not_chunked() -> None:
    parts = (body(b"he", more=True), body(b"llo", more=True), body(b""))
    head, _, content = answer(app_that_sends(start(), *parts), OLD_GET).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert b"connection: close" in head
    assert content == b"hello"
    head, _, content = answer(app_that_sends(start(LENGTH), *parts), OLD_GET).partition(b"\r\n\r\n")
    assert (b"content-length: 5" in head, content) == (True, b"hello")
    head = answer(app_that_sends(start(), *parts), OLD_GET.replace(b"GET", b"HEAD"))
    assert head.endswith(b"\r\n\r\n")


CHUNKED = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "broken",
    [b"?\r\n\r\n", GET.replace(b"host", b"h"), CHUNKED + b"x\r\n", POST + b"?\r\n\r\n"],
    ids=["no HTTP", "no host", "broken body", "after another request"],
)
def test_a_broken_request_is_refused_after_the_answers_to_earlier_ones(broken: bytes) -> None:
    """A refusal that came first would be taken for the answer to the first request."""

    async def exchange() -> bytes:
        has_begun, may_answer = asyncio.Event(), asyncio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            has_begun.set()
            await may_answer.wait()
            await send(start(LENGTH))
            await send(body(b"hello"))

        async with connected(app) as (reader, writer):
            writer.write(GET)
            await asyncio.wait_for(has_begun.wait(), HANG_TIMEOUT_S)
            writer.write(broken + GET)
            await asyncio.sleep(0.05)
            may_answer.set()
            return await asyncio.wait_for(reader.read(), HANG_TIMEOUT_S)

    num_answered = 2 if broken.startswith(POST) else 1
    statuses = re.findall(rb"HTTP/1.1 (\d+)", uvloop.run(exchange()))
    assert statuses == [b"200"] * num_answered + [b"400"]


def test_a_body_that_breaks_after_the_response_has_begun_ends_the_connection() -> None:
    async def exchange() -> bytes:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await send(start(LENGTH))
            await send(body(b"he", more=True))
            await receive()

        async with connected(app) as (reader, writer):
            writer.write(CHUNKED)
            received = await asyncio.wait_for(reader.readuntil(b"he"), HANG_TIMEOUT_S)
            writer.write(b"x\r\n")
            return received + await asyncio.wait_for(reader.read(), HANG_TIMEOUT_S)

    received = uvloop.run(exchange())
    assert received.endswith(b"\r\n\r\nhe")


def test_the_time_of_a_pipelined_body_begins_after_the_answer_to_the_request_before() -> None:
    async def exchange() -> list[bool]:
        connections: list[Any] = []
        may_answer = asyncio.Event()
        has_begun = [asyncio.Event(), asyncio.Event()]

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            connections.append(protocol_of(scope))
            has_begun[len(connections) - 1].set()
            while (await receive())["more_body"]:
                pass
            await may_answer.wait()
            await send(start(LENGTH))
            await send(body(b"hello"))

        has_timer = []
        async with connected(app) as (reader, writer):
            writer.write(GET + POST.removesuffix(b"}"))
            await asyncio.wait_for(has_begun[0].wait(), HANG_TIMEOUT_S)
            has_timer.append(connections[0]._read_timer is not None)
            may_answer.set()
            await asyncio.wait_for(has_begun[1].wait(), HANG_TIMEOUT_S)
            has_timer.append(connections[0]._read_timer is not None)
            writer.write(b"}")
            await asyncio.wait_for(reader.readuntil(b"hello"), HANG_TIMEOUT_S)
            await asyncio.wait_for(reader.readuntil(b"hello"), HANG_TIMEOUT_S)
            has_timer.append(connections[0]._read_timer is not None)
        return has_timer

    assert uvloop.run(exchange()) == [False, True, False]
