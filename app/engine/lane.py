"""What runs an engine's steps: a thread of this process, or a process of its own (`app.engine.process_lane`).

An engine has one lane or several, all with the same model; a sentence stays in the lane that it was given to.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from app.engine.core import EngineCore
from app.engine.limits import EngineLimits
from app.engine.messages import Message, Report
from app.runtime.interface import Limits, Runner

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Listener:
    """Who is told, on the event loop, what a lane reports, and once that it has ended: whether it died of an error."""

    on_report: Callable[[Report], None]
    on_exit: Callable[[bool], None]


class Lane(Protocol):
    """One model and the loop that steps it. Every method but `start` is called after it, on its event loop's thread."""

    @property
    def limits(self) -> Limits:
        """What the model can hold."""

    @property
    def step_started_at(self) -> float | None:
        """When the step under way began, in seconds of time.monotonic; None when idle."""

    @property
    def is_alive(self) -> bool:
        """Whether it steps, or waits for work."""

    def start(self, settings: EngineLimits, listener: Listener) -> None:
        """Begin. Called once, inside the running event loop."""

    def put(self, message: Message) -> None:
        """Tell it something, in order. After its end nothing follows from it."""

    def leave(self) -> None:
        """Let go of it, after it has ended or after a Stop that it did not obey in time. Never waits for a step."""


class ThreadLane:
    """A lane in a thread of this process, over a runner that was loaded here."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._core: EngineCore | None = None
        self._thread: threading.Thread | None = None
        self._has_exited = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def limits(self) -> Limits:
        """As `Lane.limits`."""
        return self._runner.limits

    @property
    def step_started_at(self) -> float | None:
        """As `Lane.step_started_at`."""
        return None if self._core is None else self._core.step_started_at

    @property
    def is_alive(self) -> bool:
        """As `Lane.is_alive`."""
        return self._thread is not None and self._thread.is_alive() and not self._has_exited

    def start(self, settings: EngineLimits, listener: Listener) -> None:
        """As `Lane.start`."""
        self._loop = asyncio.get_running_loop()
        self._core = EngineCore(
            self._runner, settings, report=lambda report: self._call_loop(lambda: listener.on_report(report))
        )
        self._thread = threading.Thread(
            target=self._run, args=(self._core, listener), name="engine", daemon=True
        )
        self._thread.start()

    def put(self, message: Message) -> None:
        """As `Lane.put`."""
        assert self._core is not None
        self._core.inbox.put(message)

    def leave(self) -> None:
        """As `Lane.leave`: a thread whose step never returns is left behind."""
        if self._thread is not None and self._has_exited:
            self._thread.join()  # its last act was to say so

    def _run(self, core: EngineCore, listener: Listener) -> None:
        """The engine thread: steps until it is told to stop. Whatever ends it, nobody is left waiting."""
        has_died = True
        try:
            core.run()
            has_died = False
        except BaseException:
            logger.exception("the engine thread has died")
        finally:
            self._call_loop(lambda: self._on_exit(has_died, listener))

    def _on_exit(self, has_died: bool, listener: Listener) -> None:
        self._has_exited = True
        listener.on_exit(has_died)

    def _call_loop(self, callback: Callable[[], None]) -> None:
        """Run a callback on the event loop; a loop that has closed has nobody left to tell."""
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback)
