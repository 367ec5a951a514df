"""Messages from the event loop to a worker's engine loop, and the reports back."""

from __future__ import annotations

from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Protocol

from app.engine.sequence import Sequence
from app.engine.stats import StepStats
from app.engine.token_deltas import TokenDelta
from app.runtime.stop_condition import WakeFlag


@dataclass(frozen=True)
class Submit:
    """Decode a sequence.

    streams: whether its tokens are reported as they come; only with a beam size of 1.
    wakes: whether a call of several steps stops early for it, because it may be admitted at once.
    """

    sequence: Sequence
    streams: bool = False
    wakes: bool = True


@dataclass(frozen=True)
class Join:
    """Make another request wait for a sequence too. streams: as in `Submit`, from the sequence's first token on."""

    sequence: Sequence
    caller: str
    request_id: str
    deadline: float
    streams: bool = False


@dataclass(frozen=True)
class Cancel:
    """Drop a sequence, running or waiting."""

    sequence: Sequence


@dataclass(frozen=True)
class Prioritize:
    """Move a sequence's request to the front of the queue until one of its sequences is admitted."""

    sequence: Sequence


@dataclass(frozen=True)
class Stop:
    """End the loop, whatever is still running."""


Message = Submit | Join | Prioritize | Cancel | Stop


@dataclass(frozen=True)
class Report:
    """Sequences that ended, each with its outcome; statistics of the steps since the last report; new tokens."""

    ended: list[Sequence]
    steps: list[StepStats]
    deltas: list[TokenDelta] = field(default_factory=list)


def wakes(message: Message) -> bool:
    """Return whether a call of several steps stops early for a message."""
    return not isinstance(message, Submit) or message.wakes


class Inbox(Protocol):
    """The source of the engine loop's messages."""

    @property
    def wake_flag(self) -> WakeFlag:
        """Set after a message has arrived for which a call of several steps stops early."""

    def empty(self) -> bool:
        """Whether no message waits."""

    def get(self) -> Message:
        """Wait for the next message and return it."""


class LocalInbox(SimpleQueue[Message]):
    """An inbox that threads of this process write to."""

    def __init__(self) -> None:
        self.wake_flag = WakeFlag()

    def put(self, item: Message, block: bool = True, timeout: float | None = None) -> None:
        """Add a message without waiting, and set the wake flag if a call stops early for the message."""
        super().put(item)
        if wakes(item):
            self.wake_flag.set()
