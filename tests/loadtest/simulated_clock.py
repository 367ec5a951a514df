"""Runs of the load tester on simulated time, so that every latency is exact on any machine.

Where the event loop would wait, its time jumps to the next event. Each turn of the loop takes TURN_S. The server is
simulated in the same process, without sockets.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable
from typing import Any, cast

from tests.loadtest.replies import Replies
from transduce.loadtest.plan import RunPlan
from transduce.loadtest.quality import Expectation
from transduce.loadtest.result import RunRecord, RunResult, make_result
from transduce.loadtest.runner import OnProgress, observe

# Seconds of one turn of the event loop, which is the resolution of latencies. If it is smaller, the tests take longer,
# because the tester spins for the last 2 ms before a request.
TURN_S = 1e-4


class _SimulatedSelector(selectors.SelectSelector):
    """Advances the simulated time instead of waiting. now_s: the simulated time in seconds."""

    now_s = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "every task waits, and no timer is set"
        self.now_s += max(timeout, TURN_S)
        return []


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop with simulated time, whose connections lead to a simulated server."""

    def __init__(self, replies: Replies) -> None:
        self._clock = _SimulatedSelector()
        self._replies = replies
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now_s

    def advance(self, seconds: float) -> None:
        """Advance the time by `seconds`, as if the running callback had taken so long."""
        self._clock.now_s += seconds

    async def create_connection(  # type: ignore[override]  # takes only the tester's arguments
        self, protocol_factory: Callable[[], asyncio.Protocol], *address: Any, ssl: object = None
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        protocol = protocol_factory()
        transport = _Transport(self, protocol, self._replies)
        protocol.connection_made(transport)
        return transport, protocol


class _Transport(asyncio.Transport):
    """The tester's end of a connection to the simulated server."""

    def __init__(self, loop: SimulatedLoop, protocol: asyncio.Protocol, replies: Replies) -> None:
        super().__init__()
        self._loop = loop
        self._protocol = protocol
        self._replies = replies
        self._is_closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        reply = self._replies.reply_to(bytes(data).split(b"\r\n\r\n", 1)[1], self._loop.time())
        if reply.content is not None:
            self._loop.call_at(reply.ready_at, self._receive, reply.content, reply.is_last)

    def _receive(self, content: bytes, is_last: bool) -> None:
        if self._is_closing:
            return
        self._protocol.data_received(content)
        if is_last:
            self.abort()

    def is_closing(self) -> bool:
        return self._is_closing

    def abort(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self._protocol.connection_lost, None)


def advance(seconds: float) -> None:
    """Advance the running SimulatedLoop's time by `seconds`, as if the running callback or task had taken so long."""
    cast(SimulatedLoop, asyncio.get_running_loop()).advance(seconds)


def simulated_record(plan: RunPlan, replies: Replies, on_progress: OnProgress | None = None) -> RunRecord:
    """Execute a plan against a simulated server, and return its samples."""
    with asyncio.Runner(loop_factory=functools.partial(SimulatedLoop, replies)) as runner:
        clock = runner.get_loop().time
        return runner.run(observe(plan, on_progress, clock=clock))


def simulated_run(
    plan: RunPlan,
    on_progress: OnProgress | None = None,
    *,
    service_ms: float = 0.0,
    stall: tuple[float, float] | None = None,
    kinds: str = "200",
    expected: Expectation | None = None,
) -> RunResult:
    """Execute a plan against a simulated server with these replies. expected: is ignored; `run` has the parameter."""
    replies = Replies(service_ms / 1e3, stall=stall, kinds=kinds.split(","))
    return make_result(plan, simulated_record(plan, replies, on_progress))
