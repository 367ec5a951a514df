"""The HTTP protocol over sockets, with small ASGI applications."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import struct
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import uvicorn
import uvloop
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.server import ServerState

from app.api.http.arrival import MAX_UNREAD_S
from app.api.http.closing import CONNECTION
from app.api.http.connections import ConnectionLimits, ConnectionTable
from app.api.http.disconnect import while_connected
from app.api.http.json_body import read_json
from app.api.http.protocol import BoundedProtocol
from app.errors import RequestCancelled
from app.observability.metrics import Metrics

LIMITS = ConnectionLimits(read_timeout_s=5.0, stall_s=5.0, max_header_bytes=4096)
GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
LAST_GET = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
HANG_TIMEOUT_S = 10.0
DATE = (b"date", b"today")


@contextlib.asynccontextmanager
async def connected(app: ASGIApp) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", server_header=False)
    config.load()
    loop, state, metrics = asyncio.get_running_loop(), ServerState(), Metrics()
    table = ConnectionTable(8, 8)
    state.default_headers = [DATE]
    server = await loop.create_server(
        lambda: BoundedProtocol(config, state, {}, loop, limits=LIMITS, metrics=metrics, table=table),
        "127.0.0.1",
        0,
    )
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
    try:
        yield reader, writer
    finally:
        writer.close()
        server.close()


def answer(app: ASGIApp, sent: bytes) -> bytes:
    """Send bytes to a server with this application. Returns all data until the server closes the connection."""

    async def exchange() -> bytes:
        async with connected(app) as (reader, writer):
            writer.write(sent)
            return await asyncio.wait_for(reader.read(), HANG_TIMEOUT_S)

    return uvloop.run(exchange())


def app_that_sends(*messages: Message) -> ASGIApp:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        for message in messages:
            await send(dict(message))

    return app


def start(*headers: tuple[bytes, bytes], status: int = 200) -> Message:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def body(part: bytes, *, more: bool = False) -> Message:
    return {"type": "http.response.body", "body": part, "more_body": more}


LENGTH = (b"content-length", b"5")


def protocol_of(scope: Scope) -> Any:
    """The protocol object of the connection on which a request arrived."""
    return scope["extensions"][CONNECTION]["is_disconnected"].__self__


def app_that_records(connections: list[weakref.ref[object]]) -> ASGIApp:
    """An application that answers each request and appends a reference to its protocol object."""

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        connections.append(weakref.ref(protocol_of(scope)))
        await send(start(LENGTH))
        await send(body(b"hello"))

    return app


def test_a_response_is_as_the_application_sent_it() -> None:
    head, _, reply = answer(
        app_that_sends(start((b"X-One", b"1"), LENGTH), body(b"hello")), GET + LAST_GET
    ).partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 200 OK"
    assert [line.partition(b":")[0].lower() for line in lines[1:]] == [b"date", b"x-one", b"content-length"]
    assert reply.startswith(b"helloHTTP/1.1 200 OK\r\n"), "the second request must have its own answer"
    assert reply.endswith(b"\r\n\r\nhello")


@pytest.mark.parametrize("nasty", [b"1\r\nset-cookie: a=b", b"1\nset-cookie: a=b", b"\x00"])
def test_a_header_value_cannot_add_a_header(nasty: bytes) -> None:
    reply = answer(app_that_sends(start((b"x-one", nasty), LENGTH), body(b"hello")), GET)
    assert b"set-cookie" not in reply
    assert b"\x00" not in reply
    assert b"hello" not in reply


@pytest.mark.parametrize("declared_length", [b"4", b"6"])
def test_a_body_of_another_length_than_declared_closes_the_connection(declared_length: bytes) -> None:
    reply = answer(
        app_that_sends(start((b"content-length", declared_length)), body(b"hello")), GET + LAST_GET
    )
    assert reply.count(b"HTTP/1.1") == 1, "the connection is closed"


def test_an_answer_in_parts_arrives_in_order() -> None:
    app = app_that_sends(start(LENGTH), body(b"he", more=True), body(b"llo"))
    assert answer(app, LAST_GET).endswith(b"\r\n\r\nhello")
    app = app_that_sends(start(), body(b"he", more=True), body(b"llo"))
    assert answer(app, LAST_GET).endswith(b"\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n")


def test_responses_that_have_no_body_send_none() -> None:
    reply = answer(app_that_sends(start(LENGTH), body(b"hello")), GET.replace(b"GET", b"HEAD") + LAST_GET)
    assert reply.count(b"content-length: 5") == 2
    assert reply.count(b"hello") == 1
    assert answer(app_that_sends(start(status=204), body(b"")), LAST_GET).endswith(b"\r\n\r\n")


def test_a_trailer_of_a_body_is_not_a_header() -> None:
    """So a trailer changes neither the host nor the credentials of a request that is already served."""
    names: list[bytes] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["more_body"]:
            pass
        names.extend(name for name, _ in scope["headers"])
        await send(start(LENGTH))
        await send(body(b"hello"))

    head = b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    reply = answer(app, head + b"1\r\nx\r\n0\r\nhost: y\r\nauthorization: Bearer z\r\n\r\n")
    assert reply.startswith(b"HTTP/1.1 200 ")
    assert names == [b"host", b"connection", b"transfer-encoding"]


def test_a_body_that_the_application_does_not_read_is_not_stored() -> None:
    """The rest stays in the client, which would otherwise fill the memory."""

    was_reading: list[bool] = []

    async def exchange() -> None:
        async def app(scope: Scope, _receive: Receive, send: Send) -> None:
            connection = protocol_of(scope)
            while len(connection.cycle.body) <= HIGH_WATER_LIMIT:  # noqa: ASYNC110 - no event reports it
                await asyncio.sleep(0.01)
            was_reading.append(connection.transport.is_reading())
            await send(start(LENGTH))
            await send(body(b"hello"))

        async with connected(app) as (reader, writer):
            writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n" + bytes(200_000))
            await asyncio.wait_for(reader.readuntil(b"hello"), HANG_TIMEOUT_S)

    uvloop.run(exchange())
    assert was_reading == [False]


def test_a_failure_between_head_and_body_closes_the_connection() -> None:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send(start(LENGTH))
        raise RuntimeError

    assert answer(app, GET + LAST_GET).count(b"HTTP/1.1") == 1


def app_that_works(has_begun: asyncio.Event, has_ended: asyncio.Event) -> ASGIApp:
    """Works on a request until its client disconnects, and then sets has_ended."""

    async def work() -> None:
        has_begun.set()
        await asyncio.sleep(HANG_TIMEOUT_S)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        await read_json(request, max_bytes=1_000_000)
        with pytest.raises(RequestCancelled):
            await while_connected(request, work())
        has_ended.set()

    return app


@pytest.mark.parametrize("num_bytes", [10, 200_000])
def test_work_on_a_request_ends_when_its_caller_disconnects(num_bytes: int) -> None:
    async def exchange() -> None:
        has_begun, has_ended = asyncio.Event(), asyncio.Event()
        async with connected(app_that_works(has_begun, has_ended)) as (_reader, writer):
            head = (
                b"POST / HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            )
            writer.write(head % num_bytes + b'"' + b"x" * (num_bytes - 2) + b'"')
            await asyncio.wait_for(has_begun.wait(), HANG_TIMEOUT_S)
            writer.close()
            await asyncio.wait_for(has_ended.wait(), HANG_TIMEOUT_S / 2)  # before the work ends by itself

    uvloop.run(exchange())


def test_work_that_begins_while_the_connection_closes_ends_at_once() -> None:
    """The connection stays open until its client has read what was sent before."""

    async def exchange() -> None:
        has_ended = asyncio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            transport = protocol_of(scope).transport
            transport.write(bytes(20_000_000))
            transport.close()
            with pytest.raises(RequestCancelled):
                await while_connected(Request(scope, receive, send), asyncio.sleep(HANG_TIMEOUT_S))
            has_ended.set()

        async with connected(app) as (_reader, writer):
            writer.write(GET)
            await asyncio.wait_for(has_ended.wait(), LIMITS.stall_s / 2)  # before the client is cut off

    uvloop.run(exchange())


def test_a_disconnect_after_the_work_has_ended_cancels_nothing() -> None:
    callbacks: list[Callable[[], None]] = []
    request = Request({"type": "http", "extensions": {CONNECTION: {"on_disconnect": callbacks.append}}})

    async def work() -> str:
        return "done"

    async def run() -> str:
        result = await while_connected(request, work())
        callbacks[0]()  # the event loop may have scheduled this call before the work ended
        await asyncio.sleep(0)  # a cancelled task ends here
        return result

    assert asyncio.run(run()) == "done"


def test_a_closed_connection_is_freed_without_the_garbage_collector() -> None:
    connections: list[weakref.ref[object]] = []
    app = app_that_records(connections)

    gc.collect()
    gc.disable()
    try:
        answer(app, LAST_GET)
        assert connections[0]() is None
    finally:
        gc.enable()


def test_an_idle_connection_that_is_reset_is_freed_at_once() -> None:
    connections: list[weakref.ref[object]] = []
    app = app_that_records(connections)

    async def exchange() -> None:
        async with connected(app) as (reader, writer):
            writer.write(GET)
            await reader.readuntil(b"hello")
            reset = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            writer.close()
            async with asyncio.timeout(2):  # less than the keep-alive time
                while connections[0]() is not None:  # noqa: ASYNC110 - no event reports it
                    await asyncio.sleep(0.01)

    gc.collect()
    gc.disable()
    try:
        uvloop.run(exchange())
    finally:
        gc.enable()


def test_the_scope_reports_the_disconnect_after_the_connection_is_freed() -> None:
    scopes: list[Scope] = []

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        scopes.append(scope)
        await send(start(LENGTH))
        await send(body(b"hello"))

    answer(app, LAST_GET)
    connection = scopes[0]["extensions"][CONNECTION]
    assert connection["is_disconnected"]()
    assert not connection["has_stalled"]()


def test_pipelined_requests_may_wait_for_earlier_answers() -> None:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await asyncio.sleep(MAX_UNREAD_S * 1.2)
        await send(start(LENGTH))
        await send(body(b"hello"))

    async def exchange() -> bytes:
        async with connected(app) as (reader, writer):
            for sent in (GET, GET, LAST_GET):
                writer.write(sent)
                # Each request is a packet of its own. The packets after the second one stay unread.
                await asyncio.sleep(0.05)
            return await asyncio.wait_for(reader.read(), HANG_TIMEOUT_S)

    assert uvloop.run(exchange()).count(b"HTTP/1.1 200") == 3
