"""A worker in a thread of this process, with a runner that is already loaded.

It is not replaced when it dies. An exception ends its engine, and a segmentation fault ends the process at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable

from app.engine.core import EngineCore
from app.engine.limits import EngineLimits
from app.engine.messages import Message
from app.engine.worker import WorkerExit, WorkerListener
from app.runtime.interface import Limits, Runner

logger = logging.getLogger(__name__)


class ThreadWorker:
    """A worker in a thread of this process. When it ends, it drops its runner, whose memory is then free.

    The worker, its engine and their callbacks are in reference cycles, so only the garbage collector frees these.
    """

    def __init__(self, runner: Runner) -> None:
        self._limits = runner.limits
        self._runner: Runner | None = runner  # until `start`
        self._core: EngineCore | None = None  # from `start` until it ends
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def limits(self) -> Limits:
        """As `Worker.limits`."""
        return self._limits

    @property
    def step_started_at(self) -> float | None:
        """As `Worker.step_started_at`."""
        return None if self._core is None else self._core.step_started_at

    @property
    def is_alive(self) -> bool:
        """As `Worker.is_alive`."""
        return self._thread is not None and self._thread.is_alive() and self._core is not None

    def start(self, settings: EngineLimits, listener: WorkerListener) -> None:
        """As `Worker.start`."""
        runner, self._runner = self._runner, None
        assert runner is not None
        self._loop = asyncio.get_running_loop()
        self._core = EngineCore(
            runner, settings, report=lambda report: self._call_loop(lambda: listener.on_report(report))
        )
        self._thread = threading.Thread(
            target=self._run, args=(self._core, listener), name="engine", daemon=True
        )
        self._thread.start()

    def put(self, message: Message) -> None:
        """As `Worker.put`."""
        if self._core is not None:
            self._core.inbox.put(message)

    def close(self) -> None:
        """As `Worker.close`. Abandons a thread whose step never returns."""
        self._runner = None
        if self._thread is not None and self._core is None:
            self._thread.join()  # returns at once: the thread has nothing left to do

    def _run(self, core: EngineCore, listener: WorkerListener) -> None:
        """Run steps until a Stop arrives. Schedules `on_exit` in any case, so that every future ends."""
        has_died = True
        try:
            core.run()
            has_died = False
        except BaseException:
            logger.exception("the engine thread has died")
        finally:
            self._call_loop(lambda: self._on_exit(has_died, listener))

    def _on_exit(self, has_died: bool, listener: WorkerListener) -> None:
        self._core = None
        listener.on_exit(WorkerExit(has_died))

    def _call_loop(self, callback: Callable[[], None]) -> None:
        """Run a callback on the event loop. Does nothing if the loop has closed."""
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback)
