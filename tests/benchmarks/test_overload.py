"""The overload benchmark counts from the time when a request is due."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.load import HOST, Request
from benchmarks.overload import flood, send

REQUEST = Request(0, 4, b"", b"POST / HTTP/1.1\r\n\r\n")


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    await writer.drain()
    writer.close()


def late_requests() -> Iterator[Request]:
    """Requests each of which keeps the tester busy for 50 ms."""
    while True:
        time.sleep(0.05)
        yield REQUEST


def test_a_late_request_counts_from_the_time_when_it_was_due() -> None:
    async def one() -> Any:
        async with await asyncio.start_server(answer, HOST, 0) as server:
            return await send(server.sockets[0].getsockname()[1], REQUEST, time.perf_counter() - 1.0)

    found = asyncio.run(one())
    assert found.status == 200
    assert found.elapsed_ms > found.lag_ms > 999


def test_the_delay_of_the_tester_is_in_its_figures() -> None:
    requests: Any = late_requests()

    async def run() -> dict[str, Any]:
        async with await asyncio.start_server(answer, HOST, 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await flood(port, requests, rate=200.0, seconds=0.1, timeout_ms=150)

    found = asyncio.run(run())
    num = found["answered"]["num"]
    assert found["lag_p99_ms"] > 400
    assert found["answered"]["p50_ms"] > 200
    assert found["num_late"] > num / 2
    assert found["offered_per_s"] < 21  # planned: 200
