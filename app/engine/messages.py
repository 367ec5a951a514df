"""What crosses between the event loop and an engine's loop: messages in, reports out."""

from __future__ import annotations

from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Protocol

from app.engine.sequence import Sequence
from app.engine.stats import StepStats
from app.engine.token_news import TokenNews
from app.runtime.stop_condition import WakeFlag


@dataclass(frozen=True)
class Submit:
    """Translate this sentence.

    listens: its tokens are wanted as they come; only of greedy searches. wakes: whether it may be admitted at once, so
    that a call of several steps ends for it.
    """

    sequence: Sequence
    listens: bool = False
    wakes: bool = True


@dataclass(frozen=True)
class Join:
    """Another request waits for this sentence too. listens: as of Submit, and from its first token."""

    sequence: Sequence
    caller: str
    request_id: str
    deadline: float
    listens: bool = False


@dataclass(frozen=True)
class Cancel:
    """Nobody waits for this sentence any more."""

    sequence: Sequence


@dataclass(frozen=True)
class Prioritize:
    """A sentence's request comes back with it, and is next."""

    sequence: Sequence


@dataclass(frozen=True)
class Stop:
    """Leave the loop, whatever is still running."""


Message = Submit | Join | Prioritize | Cancel | Stop


@dataclass(frozen=True)
class Report:
    """What crosses back: sentences that ended, each with its outcome, the steps since the last report, new tokens."""

    ended: list[Sequence]
    steps: list[StepStats]
    news: list[TokenNews] = field(default_factory=list)


def wakes(message: Message) -> bool:
    """Whether a call of several steps ends for it."""
    return not isinstance(message, Submit) or message.wakes


class Inbox(Protocol):
    """Where messages come from."""

    @property
    def wake_flag(self) -> WakeFlag:
        """Rung after each message has come."""

    def empty(self) -> bool:
        """Whether nothing has come."""

    def get(self) -> Message:
        """The next message, awaited."""


class LocalInbox(SimpleQueue[Message]):
    """An inbox for the threads of this process."""

    def __init__(self) -> None:
        self.wake_flag = WakeFlag()

    def put(self, item: Message, block: bool = True, timeout: float | None = None) -> None:
        """Never waits."""
        super().put(item)
        if wakes(item):
            self.wake_flag.set()
