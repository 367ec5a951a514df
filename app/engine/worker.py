"""The interface of a worker. `app.workers` has its two implementations, a thread and a process.

An engine has one worker or several, all with the same model. A sequence stays in the worker that it was submitted to,
unless that worker dies. The setting TRANSDUCE_NUM_LANES is the number of workers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from app.engine.limits import EngineLimits
from app.engine.messages import Message, Report
from app.runtime.interface import Limits


@dataclass(frozen=True)
class WorkerExit:
    """How a worker has ended.

    has_died: whether it ended without a Stop.
    process_exit: the exit code or the signal of its process; empty for a thread, which has logged its error.
    step_started_at: when its last step began, if it died in one; seconds of time.monotonic.
    """

    has_died: bool
    process_exit: str = ""
    step_started_at: float | None = None


@dataclass(frozen=True)
class WorkerListener:
    """Callbacks of a worker, both called on the event loop.

    on_report: called with each report. on_exit: called once, when the worker has ended.
    """

    on_report: Callable[[Report], None]
    on_exit: Callable[[WorkerExit], None]


class Worker(Protocol):
    """One model and the loop that steps it. Every method is called on the event loop's thread."""

    @property
    def limits(self) -> Limits:
        """The limits of the worker's model and cache."""

    @property
    def step_started_at(self) -> float | None:
        """When the step under way began, in seconds of time.monotonic; None when idle."""

    @property
    def is_alive(self) -> bool:
        """Whether the worker runs steps or waits for work."""

    def start(self, settings: EngineLimits, listener: WorkerListener) -> None:
        """Start the loop. Called once, inside the running event loop, and before the first `put`."""

    def put(self, message: Message) -> None:
        """Send a message; they arrive in order. Has no effect after the worker's end."""

    def close(self) -> None:
        """Release a worker that has ended, or that has not ended in time after a Stop. Never waits for a step."""
