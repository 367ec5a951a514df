"""The raw connections of the load tester: which are reused, and which responses are complete."""

from __future__ import annotations

import asyncio
import socket
from unittest.mock import Mock

import pytest

from tests.transduce.bad_server import bad_server, read_request
from transduce.loadtest.connection import (
    MAX_IDLE_S,
    Connection,
    ConnectionLostError,
    ConnectionPool,
    RawResponse,
    head,
)
from transduce.loadtest.plan import Target

EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Clock:
    """A time that only the test moves."""

    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def answer_two(connection: socket.socket) -> None:
    connection.sendall(EMPTY)
    read_request(connection)
    connection.sendall(EMPTY)


@pytest.mark.parametrize(("idle_s", "num_connections"), [(MAX_IDLE_S - 0.1, 1), (MAX_IDLE_S, 2)])
def test_a_connection_that_was_idle_for_long_is_not_reused(idle_s: float, num_connections: int) -> None:
    async def run(target: Target) -> None:
        clock = Clock()
        pool = ConnectionPool(target, clock=clock)
        await pool.exchange(head(target, 0))
        clock.now_s += idle_s
        await pool.exchange(head(target, 0))
        pool.close()

    with bad_server(answer_two) as server:
        asyncio.run(run(Target(server.url)))
        assert server.num_connections == num_connections


def received(data: bytes, error: Exception | None = None) -> RawResponse:
    """The response of a connection that receives this data and then ends. error: why it ends."""
    response = RawResponse()

    async def run() -> None:
        connection = Connection((), Clock())
        connection.connection_made(Mock(is_closing=lambda: False))
        exchange = asyncio.create_task(connection.exchange(b"request", response))
        await asyncio.sleep(0)  # let the exchange begin
        connection.data_received(data)
        connection.connection_lost(error)
        await exchange

    asyncio.run(run())
    return response


def test_a_response_without_a_length_is_complete_unless_its_connection_is_reset() -> None:
    data = b"HTTP/1.1 200 OK\r\n\r\npart"
    response = received(data)
    assert (response.status, bytes(response.body)) == (200, b"part")
    with pytest.raises(ConnectionLostError):
        received(data, ConnectionResetError())


def test_a_switch_of_protocols_is_the_last_response() -> None:
    assert received(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n").status == 101


@pytest.mark.parametrize(("value", "num_cached"), [(b"3", 3), (b"many", None), (b"-1", None)])
def test_only_a_number_of_cached_sentences_is_read(value: bytes, num_cached: int | None) -> None:
    response = received(
        EMPTY.replace(b"\r\n\r\n", b"\r\nX-Transduce-Cached-Sentences: " + value + b"\r\n\r\n")
    )
    assert (response.status, response.num_cached) == (200, num_cached)
