"""What an engine says to a sentence, and the seam between the comparison and whoever answers."""

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
    and its end token; None where whoever answers does not say.
    """

    ids: Ids
    log_probability: float | None = None


@dataclass(frozen=True)
class Task:
    """What everybody is asked.

    sources: ids, the end token last. beam_size: 1 is greedy. max_target_length: subwords, the end token not counted.
    early_stop: when a beam ends; a beam of one has FIRST. No length penalty, nothing forbidden and nothing forced.
    """

    sources: Sequence[Ids]
    beam_size: int
    max_target_length: int
    early_stop: EarlyStop = EarlyStop.FIRST


def answer_of(ids: Sequence[int], *, log_probability: float | None = None) -> Answer:
    """What stands before the end token. ids: subwords, the end token if it came, and whatever pads a batch."""
    return Answer(tuple(ids[: ids.index(EOS_ID)] if EOS_ID in ids else ids), log_probability)


class Oracle(Protocol):
    """Somebody who translates with a model of their own making of the same weights."""

    name: str

    def rule(self, early_stop: EarlyStop) -> str:
        """Its own words for the rule by which a beam ends."""

    def answer(self, task: Task) -> list[Answer]:
        """The best hypothesis of each source, in their order."""
