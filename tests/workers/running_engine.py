"""An engine over fake worker processes. It checks that no process, no socket and no handle of a process is left."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from app.engine.engine import Engine
from app.engine.limits import EngineLimits
from app.engine.stats import StepStats
from app.engine.supervisor import RestartBudget, WorkerRestarts
from app.engine.worker import Worker
from app.startup import in_daemon_thread
from app.workers.fork_server import ForkServer
from app.workers.worker_proxy import WorkerProxy, start_workers
from tests.engine.test_engine import HANG_TIMEOUT_S
from tests.workers.fake_worker import FakePlan

# The descriptors that an engine closes: sockets to its processes, and handles of these processes. The memory that the
# engine shares with the processes is freed with the last reference to a WorkerProxy.
CLOSED = ("socket:", "anon_inode:[pidfd]")
SETTINGS = EngineLimits(max_encode_tokens=64, stall_limit_s=0.2, max_consecutive_failures=4)


@dataclass
class RunningEngine:
    """A started engine, its worker processes, and what it has reported.

    plan: the behaviour of the workers' runners. deaths: the times at which the engine reported its death.
    """

    engine: Engine
    processes: list[WorkerProxy]
    plan: FakePlan
    steps: list[StepStats]
    deaths: list[float] = field(default_factory=list)

    def signal(self, number: int, *workers: int) -> None:
        for worker in workers:
            os.kill(self.processes[worker].process_id, number)

    async def until_held(self, *workers: int) -> None:
        """Wait until a forward of each of these workers is held."""
        await until(lambda: all(self.plan.is_held(worker) for worker in workers))

    async def until_idle(self, *workers: int) -> None:
        """Wait until these workers are idle."""
        await until(lambda: not any(self.step_started_at(worker) for worker in workers))

    def step_started_at(self, worker: int) -> float | None:
        """Return when the worker's current step began, by its shared status; None while it is idle."""
        process = self.processes[worker]
        return process._status.get(process._number)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, checked every millisecond, while the event loop runs."""
    deadline = time.monotonic() + HANG_TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)


def block_until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, checked every millisecond, while the event loop is blocked."""
    deadline = time.monotonic() + HANG_TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def exists(process_id: int) -> bool:
    """Return whether a process exists. A zombie exists, too."""
    return Path(f"/proc/{process_id}").exists()


def children() -> list[int]:
    """Return the child processes of this process, including adopted ones and zombies."""
    return [
        int(found)
        for path in Path("/proc/self/task").glob("*/children")
        for found in path.read_text().split()
    ]


def descriptors(kind: str) -> list[str]:
    """Return the targets of this process's open descriptors that begin with `kind`, such as `socket:`."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            target = str(link.readlink())
        except FileNotFoundError:  # the descriptor of this listing
            continue
        if target.startswith(kind):
            found.append(target)
    return sorted(found)


def open_descriptors() -> Counter[str]:
    """Count this process's open descriptors of CLOSED by target. Handles of all processes have the same target."""
    return Counter(target for kind in CLOSED for target in descriptors(kind))


@asynccontextmanager
async def running(
    plan: FakePlan, num_workers: int = 2, *, settings: EngineLimits = SETTINGS, max_restarts: int = 0
) -> AsyncIterator[RunningEngine]:
    """Yield a started engine of num_workers workers.

    At the end close it, and check that no process and no descriptor of CLOSED is left.
    """

    def start_again(dead: Worker) -> Worker:
        assert isinstance(dead, WorkerProxy)
        worker = dead.successor(ForkServer.start(plan.command()), b"")
        worker.load()
        ids.append(worker.process_id)
        return worker

    before = open_descriptors()
    processes = start_workers(ForkServer.start(plan.command()), num_workers)
    for process in processes:
        await asyncio.to_thread(process.load)
    ids = [process.process_id for process in processes]
    steps: list[StepStats] = []
    deaths: list[float] = []
    engine = Engine(
        processes,
        settings=settings,
        on_steps=steps.extend,
        on_death=lambda: deaths.append(time.monotonic()),
        restarts=WorkerRestarts(
            RestartBudget(max_restarts, HANG_TIMEOUT_S),
            lambda dead: in_daemon_thread(lambda: start_again(dead), on_unused=lambda unused: unused.close()),
        ),
    )
    engine.start()
    engine.end_warm_up()
    try:
        yield RunningEngine(engine, processes, plan, steps, deaths)
    finally:
        await engine.close(0.0)
        assert not engine.health().is_alive
        assert not [process_id for process_id in ids if exists(process_id)]
        assert not open_descriptors() - before
