"""The overload benchmark measures latencies from the time when a request is due, and CPU time until the last answer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from benchmarks import overload
from benchmarks.load import HOST, Request
from benchmarks.overload import flood, measure, send

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


class SlowServer:
    """A server that answers every request after 0.1 s. Its CPU time is a clock's time, as if it were always busy."""

    def __init__(self, _: object) -> None:
        self.cpu_times_s: list[float] = []

    async def _serve(self, port: Future[int]) -> None:
        self._loop, self._is_over = asyncio.get_running_loop(), asyncio.Event()
        async with await asyncio.start_server(self._answer, HOST, 0) as server:
            port.set_result(server.sockets[0].getsockname()[1])
            await self._is_over.wait()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0]))
                await asyncio.sleep(0.1)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        except asyncio.IncompleteReadError:
            writer.close()

    def __enter__(self) -> SlowServer:
        port = Future[int]()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(port)))
        self._thread.start()
        self.port = port.result()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._is_over.set)
        self._thread.join()

    def cpu_time_s(self) -> float:
        self.cpu_times_s.append(time.perf_counter())
        return self.cpu_times_s[-1]


def test_the_share_of_a_core_is_of_the_time_until_the_last_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    server = SlowServer(None)
    monkeypatch.setattr(overload, "ServerProcess", lambda _: server)
    monkeypatch.setattr(overload, "NUM_CLIENTS", 4)
    monkeypatch.setattr(overload, "MULTIPLES", (0.8,))
    found: Any = measure(None, beam_size=1, timeout_ms=60_000, seconds=0.5)
    before, after = server.cpu_times_s
    share = found["0.8 x"]["event_loops_share_of_a_core"]
    assert share == pytest.approx((after - before) / found["0.8 x"]["elapsed_s"], abs=0.01)
    assert found["num_clients"] == 4
