"""An engine's answer to a sentence, and the interface of the compared engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from app.decoding.options import EarlyStop
from model.config import EOS_ID

Ids = tuple[int, ...]


@dataclass(frozen=True)
class Answer:
    """The best hypothesis of one sentence.

    ids: subwords without start and end tokens. log_probability: natural logarithm, summed over the subwords and the end
    token; None if the engine does not return it.
    """

    ids: Ids
    log_probability: float | None = None


@dataclass(frozen=True)
class Task:
    """Sentences and search options that every engine gets. There is no length penalty and no constraint.

    sources: ids with the end token last. beam_size: 1 is greedy search. max_target_length: subwords without the end
    token. early_stop: the rule that ends a beam. Greedy search has FIRST.
    """

    sources: Sequence[Ids]
    beam_size: int
    max_target_length: int
    early_stop: EarlyStop = EarlyStop.FIRST


def answer_of(ids: Sequence[int], *, log_probability: float | None = None) -> Answer:
    """An answer with the ids before the end token. ids: may contain the end token and padding."""
    return Answer(tuple(ids[: ids.index(EOS_ID)] if EOS_ID in ids else ids), log_probability)


class Oracle(Protocol):
    """An independent implementation that translates with the same weights."""

    name: str

    def rule(self, early_stop: EarlyStop) -> str:
        """The engine's settings for an early-stop rule, as text."""

    def answer(self, task: Task) -> list[Answer]:
        """The best hypothesis of each source, in order."""
