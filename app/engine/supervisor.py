"""Starts a new worker for each one that has died, within a budget.

The new worker takes the dead worker's number. The supervisor decides whether and when it is started. The engine, which
holds the sentences, sends those of the dead worker to other workers.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from app.engine.worker import Worker
from app.errors import BundleError, SettingsError
from app.observability.logging import Field, log_event

logger = logging.getLogger(__name__)

# Seconds between a start that failed and the next one. Smaller: a short lack of memory uses up the budget. Larger: the
# sentences of an engine without workers wait longer.
RETRY_DELAY_S = 1.0


class RestartBudget:
    """Allows at most max_restarts restarts in any window_s seconds, of all engines of a server together."""

    def __init__(
        self, max_restarts: int, window_s: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_restarts = max_restarts
        self._window_s = window_s
        self._clock = clock
        self._times: deque[float] = deque()

    def take(self) -> bool:
        """Count a restart and return True if one is allowed now."""
        now = self._clock()
        while self._times and self._times[0] <= now - self._window_s:
            self._times.popleft()
        is_allowed = len(self._times) < self._max_restarts
        if is_allowed:
            self._times.append(now)
        return is_allowed


@dataclass(frozen=True)
class WorkerRestarts:
    """How an engine replaces dead workers. budget: limits the starts.

    start: returns the future of a loaded worker in place of a dead one. The future may be cancelled. It fails with
        BundleError or SettingsError if no later start can succeed. It fails with OSError or WorkerEnded if a later
        start may succeed.
    on_restart: called with the number of the dead worker in the statistics, before each start.
    """

    budget: RestartBudget
    start: Callable[[Worker], asyncio.Future[Worker]]
    on_restart: Callable[[int], None] = lambda _number: None


class SupervisedPool(Protocol):
    """What the supervisor needs of a pool of workers."""

    def add_worker(self, number: int, worker: Worker) -> None:
        """Use a new worker. number: the number within the engine that the dead worker had."""

    def give_up_worker(self, *, ends_engine: bool) -> None:
        """Continue without the dead worker. End if `ends_engine`, or if no worker is left or being started."""


class Supervisor:
    """Replaces the dead workers of one engine. Every method is called on the event loop.

    is_active: whether dead workers are replaced. It is set after the warm-up: before that, a worker's death shows that
    the model cannot be served.
    """

    def __init__(self, pool: SupervisedPool, restarts: WorkerRestarts | None, *, first_worker: int) -> None:
        """restarts: None if workers cannot be replaced. first_worker: number of the first one in the statistics."""
        self._pool = pool
        self._restarts = restarts
        self._first_worker = first_worker
        self._starting: set[int] = set()  # numbers within the engine, of the workers that are being started
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_active = False

    @property
    def is_starting(self) -> bool:
        """Whether a worker is being started."""
        return bool(self._starting)

    def replace(self, number: int, dead: Worker) -> bool:
        """Begin to replace a dead worker. Returns False if no replacement is allowed."""
        restarts = self._restarts
        if restarts is None or not self.is_active or not restarts.budget.take():
            return False
        self._starting.add(number)
        task = asyncio.get_running_loop().create_task(self._replace(number, dead, restarts))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def close(self) -> None:
        """Replace no more workers, and end the starts under way."""
        self.is_active = False
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _replace(self, number: int, dead: Worker, restarts: WorkerRestarts) -> None:
        """Start workers until one is loaded, the budget is spent, or no start can succeed."""
        started_at = time.monotonic()
        worker_number = self._first_worker + number  # in the statistics
        worker, ends_engine = None, False
        while worker is None and not ends_engine:
            restarts.on_restart(worker_number)
            try:
                worker = await _loaded(restarts.start(dead))
            except (BundleError, SettingsError) as error:
                _log_failed_start(worker_number, error)
                break
            except Exception as error:  # noqa: BLE001 - another start may succeed
                _log_failed_start(worker_number, error)
                await asyncio.sleep(RETRY_DELAY_S)
                ends_engine = not restarts.budget.take()
        self._starting.discard(number)
        if worker is None:
            self._pool.give_up_worker(ends_engine=ends_engine)
            return
        fields: dict[str, Field] = {
            "worker": worker_number,
            "seconds": f"{time.monotonic() - started_at:.2f}",
        }
        log_event(logger, logging.WARNING, "engine_process_restarted", fields=fields)
        self._pool.add_worker(number, worker)


async def _loaded(starting: asyncio.Future[Worker]) -> Worker:
    """Wait for a start and return its worker. If the wait is cancelled, a worker that has started is closed."""
    try:
        return await starting
    except asyncio.CancelledError:
        if not starting.cancelled() and starting.exception() is None:
            starting.result().close()
        raise


def _log_failed_start(worker: int, error: Exception) -> None:
    """Log a start that failed. worker: the number of the worker, as in the metrics."""
    fields: dict[str, Field] = {"worker": worker, "problem": str(error) or type(error).__name__}
    log_event(logger, logging.ERROR, "engine_process_not_restarted", fields=fields)
