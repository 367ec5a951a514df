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

    ids: its subwords, without start and end tokens. log_probability: natural logarithm, summed over its subwords
    and its end token; None if the engine does not return it.
    """

    ids: Ids
    log_probability: float | None = None


@dataclass(frozen=True)
class Task:
    """A task that every engine gets.

    sources: ids, the end token last. beam_size: 1 is greedy. max_target_length: subwords, the end token not counted.
    early_stop: when a beam ends; a beam of one has FIRST. No length penalty, nothing forbidden and nothing forced.
    """

    sources: Sequence[Ids]
    beam_size: int
    max_target_length: int
    early_stop: EarlyStop = EarlyStop.FIRST


def answer_of(ids: Sequence[int], *, log_probability: float | None = None) -> Answer:
    """The ids before the end token. ids: subwords, with the end token and padding if there are any."""
    return Answer(tuple(ids[: ids.index(EOS_ID)] if EOS_ID in ids else ids), log_probability)


class Oracle(Protocol):
    """An independent implementation that translates with the same weights."""

    name: str

    def rule(self, early_stop: EarlyStop) -> str:
        """The engine's own setting of the rule that ends a beam."""

    def answer(self, task: Task) -> list[Answer]:
        """The best hypothesis of each source, in order."""
