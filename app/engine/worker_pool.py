"""The workers of an engine: their start and end, and what happens when one dies."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from app.engine.limits import EngineLimits
from app.engine.messages import Report, Stop
from app.engine.placement import Placement
from app.engine.stats import WorkerHealth
from app.engine.supervisor import Supervisor, WorkerRestarts
from app.engine.worker import Worker, WorkerExit, WorkerListener
from app.observability.logging import Field, log_event

logger = logging.getLogger(__name__)


class PoolOwner(Protocol):
    """The engine's callbacks for events of its workers. Every method is called on the event loop."""

    def on_report(self, number: int, report: Report) -> None:
        """A worker has sent a report. number: the worker's number in the statistics."""

    def on_added(self) -> None:
        """A worker without sentences was added."""

    def on_lost(self, worker: Worker, step_started_at: float | None) -> tuple[int, int]:
        """A worker has died, and its replacement is being started. The dead worker gets no more sentences.

        step_started_at: when its last step began. Returns how many of its sentences are decoded again, and how many
        have failed.
        """

    def on_end(self, *, has_died: bool) -> None:
        """The engine ends: no worker is left, or one has died and no replacement is allowed. Called at most once."""


class WorkerPool:
    """The workers of one engine. Every method is called on the event loop.

    placement: chooses the worker of each sentence. is_running: from `start` until `PoolOwner.on_end` or `close`.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        owner: PoolOwner,
        settings: EngineLimits,
        *,
        restarts: WorkerRestarts | None,
        first_worker: int,
    ) -> None:
        """restarts, first_worker: as in `Engine`."""
        self._workers = dict(enumerate(workers))  # by number within the engine, without those that have died
        self._owner = owner
        self._settings = settings
        self._first_worker = first_worker
        self._supervisor = Supervisor(self, restarts, first_worker=first_worker)
        self._exited = asyncio.Event()
        self.placement = Placement()
        self.is_running = False

    @property
    def has_worker(self) -> bool:
        """Whether a worker runs."""
        return any(worker.is_alive for worker in self._workers.values())

    def health(self, max_rows: int) -> tuple[WorkerHealth, ...]:
        """Return the state of each worker, without those that have died. max_rows: rows of a worker."""
        now = time.monotonic()
        found = []
        for number, worker in self._workers.items():
            began_at = worker.step_started_at
            step_age_s = 0.0 if began_at is None else max(0.0, now - began_at)
            found.append(WorkerHealth(self._first_worker + number, step_age_s, max_rows))
        return tuple(found)

    def start(self) -> None:
        """Start the workers. Called once, inside the running event loop."""
        self.is_running = True
        for number, worker in list(self._workers.items()):
            self.add_worker(number, worker)

    def start_replacing(self) -> None:
        """Replace the workers that die from now on."""
        self._supervisor.is_active = True

    async def close(self, timeout_s: float) -> None:
        """End all workers. timeout_s: seconds that a step may still take. Then its worker is abandoned or killed.

        Afterwards the pool holds only workers whose step still hangs. It drops all others, so that their memory and
        descriptors are freed at once. The pool and its engine refer to each other, so Python would otherwise free them
        only at a later garbage collection.
        """
        await self._supervisor.close()
        if self.has_worker:
            for worker in self._workers.values():
                worker.put(Stop())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._exited.wait(), timeout_s)
        self.is_running = False
        for number, worker in list(self._workers.items()):
            worker.close()
            if not worker.is_alive:
                del self._workers[number]
                self.placement.remove_worker(worker)

    def add_worker(self, number: int, worker: Worker) -> None:
        """As `SupervisedPool.add_worker`."""
        self._workers[number] = worker
        self.placement.add_worker(worker)
        on_report = partial(self._owner.on_report, self._first_worker + number)
        worker.start(self._settings, WorkerListener(on_report, partial(self._on_exit, number)))
        self._owner.on_added()

    def give_up_worker(self, *, ends_engine: bool) -> None:
        """As `SupervisedPool.give_up_worker`."""
        if ends_engine or not (self._workers or self._supervisor.is_starting):
            self._end(has_died=True)

    def _on_exit(self, number: int, worker_exit: WorkerExit) -> None:
        worker = self._workers.get(number)
        if worker is None:  # it has ended while the pool closed
            return None
        fields: dict[str, Field] = {
            "worker": self._first_worker + number,
            "exit": worker_exit.process_exit,
        }
        if worker_exit.has_died and self.is_running and self._supervisor.replace(number, worker):
            del self._workers[number]
            self.placement.remove_worker(worker)
            worker.close()
            num_resent, num_failed = self._owner.on_lost(worker, worker_exit.step_started_at)
            fields |= {"decoded_again": num_resent, "failed": num_failed}
            return log_event(logger, logging.ERROR, "engine_process_died", fields=fields)
        if worker_exit.process_exit:
            log_event(logger, logging.CRITICAL, "engine_process_died", fields=fields)
        if not self.has_worker:
            self._exited.set()
        if worker_exit.has_died or not self.has_worker:
            self._end(has_died=worker_exit.has_died)
        return None

    def _end(self, *, has_died: bool) -> None:
        if self.is_running:
            self.is_running = False
            self._owner.on_end(has_died=has_died)
