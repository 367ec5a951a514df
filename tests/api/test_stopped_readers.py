"""Clients that send requests and do not read the answers: the server bounds their buffers and their time."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import uvloop
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from tests.api.server_process import ServerProcess
from tests.api.test_protocol import GET, HANG_TIMEOUT_S, LIMITS, connected, protocol_of

STALL_S = 1.0
GET_OPENAPI = b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n"
NUM_PIPELINED = 240
NUM_READERS = 8
# Bytes that the kernel buffers at most for an unread connection (tcp_wmem's third figure on Linux).
SYSTEM_BYTES = int(Path("/proc/sys/net/ipv4/tcp_wmem").read_text("ascii").split()[2])
ROUTE = 'transduce_http_requests_total{code="200",method="GET",route="/openapi.json"}'


def memory(server: ServerProcess) -> int:
    """The process's bytes in physical memory."""
    status = Path(f"/proc/{server.pid}/status").read_text("ascii")
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()[1])


def num_files(server: ServerProcess) -> int:
    """The process's open files, including connections."""
    return len(list(Path(f"/proc/{server.pid}/fd").iterdir()))


def unread_connection(server: ServerProcess, content: bytes) -> socket.socket:
    """A connection with a small receive buffer, after sending the content. Nothing is read from it yet."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", server.port))
    connection.settimeout(10.0)
    connection.sendall(content)
    return connection


@pytest.mark.slow
def test_unread_answers_are_neither_produced_nor_stored(echo_command: list[str]) -> None:
    with (
        ServerProcess(echo_command, {"reader_stall_s": STALL_S}) as server,
        server.ready().client() as client,
        ExitStack() as opened,
    ):
        size = len(client.get("/openapi.json").content)
        assert NUM_PIPELINED * size > 2 * SYSTEM_BYTES, "otherwise the kernel buffers all answers"
        # The detector is loaded first, so that it does not count as growth.
        client.post("/v1/detect", json={"text": "Anna sees the river."})
        before, files = memory(server), num_files(server)
        sent_at = time.monotonic()
        for _ in range(NUM_READERS):
            opened.enter_context(unread_connection(server, NUM_PIPELINED * GET_OPENAPI))
        largest = 0
        while server.metric("transduce_http_stalled_readers_total") < NUM_READERS:
            largest = max(largest, memory(server))
            assert time.monotonic() - sent_at < 20 * STALL_S
            time.sleep(0.05)
        # For each reader: the kernel's buffer, 64 KiB, the response that is being sent, and the next response.
        num_answers = server.metric(ROUTE) - 1
        assert num_answers <= NUM_READERS * (SYSTEM_BYTES + 65_536 + 2 * size) / size
        # Requests that wait behind a response take a few kilobytes each.
        assert largest - before < NUM_READERS * (65_536 + 2 * size + NUM_PIPELINED * 8_000) + 4_000_000
        while num_files(server) > files:
            assert time.monotonic() - sent_at < 20 * STALL_S, "the server must close the readers' connections"
            time.sleep(0.05)
        assert client.get("/readyz").status_code == 200


@pytest.mark.slow
def test_a_slow_reader_is_not_cut_off(echo_command: list[str]) -> None:
    """The client reads a little within each time limit, but so little that the server's kernel accepts no more data."""
    with (
        ServerProcess(echo_command, {"reader_stall_s": STALL_S}) as server,
        unread_connection(server.ready(), NUM_PIPELINED * GET_OPENAPI) as reader,
    ):
        until = time.monotonic() + 4 * STALL_S
        while time.monotonic() < until:
            assert reader.recv(2_000), "the server must not close the connection"
            time.sleep(STALL_S / 20)
        assert server.metric("transduce_http_stalled_readers_total") == 0
        server.wait_until(
            "transduce_http_stalled_readers_total", 1, timeout_s=20.0
        )  # the client has stopped reading


def test_an_idle_connection_whose_response_is_unread_is_reset_after_the_keep_alive_time() -> None:
    """A close would wait until the client reads."""

    async def exchange() -> None:
        connections: list[Any] = []
        is_answered = asyncio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            connections.append(protocol_of(scope))
            await PlainTextResponse("x" * 4 * SYSTEM_BYTES)(scope, receive, send)
            is_answered.set()

        async with connected(app) as (_reader, writer):
            writer.write(GET)
            await asyncio.wait_for(is_answered.wait(), HANG_TIMEOUT_S)
            connections[0].timeout_keep_alive_handler()
            async with asyncio.timeout(LIMITS.stall_s / 2):  # before the client is cut off
                while connections[0]._table.counts().num_idle:  # noqa: ASYNC110 - no event reports it
                    await asyncio.sleep(0.01)

    uvloop.run(exchange())
