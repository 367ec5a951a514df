"""Which calls of the client use which connections, and what the end of a connection does to a stream."""

from __future__ import annotations

import asyncio
import math
import socket
import threading
from typing import Any
from unittest.mock import Mock

import httpx
import numpy as np
import pytest

import transduce
from tests.transduce.bad_server import (
    DELTA,
    SEGMENT,
    START,
    TIMEOUT_S,
    TRANSLATED,
    Act,
    bad_server,
    read_request,
    stream,
)

NUM_STREAMS = 4
CYCLE: list[object] = []
CYCLE.append(CYCLE)
EVENTS = stream(("start", START), ("delta", DELTA), ("segment", SEGMENT), ("done", TRANSLATED))
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(content), content)


STREAM = HEAD + chunk(EVENTS.partition(b"\r\n\r\n")[2])
END = chunk(b"")


def streams(*after: bytes) -> Act:
    """Send NUM_STREAMS streams on one connection. after: what follows the events of each stream, piece by piece."""

    def send(connection: socket.socket) -> None:
        for number in range(NUM_STREAMS):
            if number:
                read_request(connection)
            for piece in (STREAM, *after):
                connection.sendall(piece)

    return send


async def read_streams(url: str) -> None:
    async with transduce.AsyncClient(url, timeout_s=TIMEOUT_S) as client:
        for _ in range(NUM_STREAMS):
            async with client.stream("yes", source="en", target="de") as events:
                assert isinstance([event async for event in events][-1], transduce.Done)


@pytest.mark.parametrize("after", [(END,), (chunk(b": keep-alive\n\n"), END)])
@pytest.mark.parametrize("is_async", [False, True])
def test_streams_that_are_done_share_a_connection(is_async: bool, after: tuple[bytes, ...]) -> None:
    with bad_server(streams(*after)) as server:
        if is_async:
            asyncio.run(read_streams(server.url))
        else:
            with transduce.Client(server.url, timeout_s=TIMEOUT_S) as client:
                for _ in range(NUM_STREAMS):
                    with client.stream("yes", source="en", target="de") as events:
                        assert isinstance(list(events)[-1], transduce.Done)
        assert server.num_connections == 1


@pytest.mark.parametrize("is_async", [False, True])
def test_a_connection_that_breaks_after_the_last_event_is_no_error(is_async: bool) -> None:
    def breaks(connection: socket.socket) -> None:
        connection.sendall(STREAM)

    with bad_server(breaks) as server:
        if is_async:
            asyncio.run(read_streams(server.url))
        else:
            with transduce.Client(server.url, timeout_s=TIMEOUT_S) as client:
                for _ in range(NUM_STREAMS):
                    assert isinstance([*client.stream("yes", source="en", target="de")][-1], transduce.Done)
        assert server.num_connections == NUM_STREAMS


@pytest.mark.parametrize("is_async", [False, True])
def test_reading_a_stream_fails_after_its_client_is_closed(is_async: bool) -> None:
    released = threading.Event()

    def begins(connection: socket.socket) -> None:
        connection.sendall(HEAD + chunk(stream(("start", START)).partition(b"\r\n\r\n")[2]))
        assert released.wait(TIMEOUT_S)

    async def read(url: str) -> None:
        client = transduce.AsyncClient(url, timeout_s=TIMEOUT_S)
        events = client.stream("yes", source="en", target="de")
        assert isinstance(await anext(events), transduce.Started)
        await client.close()
        with pytest.raises(transduce.ConnectionFailed):
            await anext(events)

    with bad_server(begins) as server:
        try:
            if is_async:
                asyncio.run(read(server.url))
            else:
                client = transduce.Client(server.url, timeout_s=TIMEOUT_S)
                events = client.stream("yes", source="en", target="de")
                assert isinstance(next(events), transduce.Started)
                client.close()
                with pytest.raises(transduce.ConnectionFailed):
                    next(events)
        finally:
            released.set()


def test_an_error_of_the_program_keeps_its_type_while_the_client_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only after the client is closed does httpx's RuntimeError mean a failed connection."""
    monkeypatch.setattr(httpx.Client, "request", Mock(side_effect=RuntimeError("no connection is at fault")))
    client = transduce.Client("http://127.0.0.1:9")
    with pytest.raises(RuntimeError, match="no connection is at fault"):
        client.models()
    client.close()
    with pytest.raises(transduce.ConnectionFailed, match="the client is closed"):
        client.models()


@pytest.mark.parametrize(
    ("text", "option", "reason"),
    [
        ("a\ud800b", 1.0, "surrogates not allowed"),
        ("yes", math.nan, "Out of range float values are not JSON"),
        ("yes", np.int64(1), "int64 is not JSON"),
        ("yes", CYCLE, "nested too deep"),
    ],
)
def test_a_request_that_json_cannot_hold_is_refused_without_a_connection(
    text: str, option: object, reason: str
) -> None:
    arguments: dict[str, Any] = {"source": "en", "target": "de", "length_penalty": option}

    async def run(url: str) -> None:
        async with transduce.AsyncClient(url) as client:
            with pytest.raises(transduce.RequestRefused, match=reason):
                await client.translate(text, **arguments)
            with pytest.raises(transduce.RequestRefused, match=reason):
                await anext(client.stream(text, **arguments))

    with bad_server(streams(END)) as server:
        with transduce.Client(server.url) as client:
            with pytest.raises(transduce.RequestRefused, match=reason) as raised:
                client.translate(text, **arguments)
            with pytest.raises(transduce.RequestRefused, match=reason):
                client.score(text, "ja", **arguments)
            with pytest.raises(transduce.RequestRefused, match=reason):
                next(client.stream(text, **arguments))
        asyncio.run(run(server.url))
        assert server.num_connections == 0
    assert (raised.value.status, raised.value.code, raised.value.field) == (None, "", None)
    assert "\\ud800" not in str(raised.value)
