"""Checks that a sentence's answer is the same when it is decoded alone and in a batch."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

from benchmarks.load import Request, TimedAnswer

# Text, number of target subwords, scores of the segments.
ComparisonKey = tuple[str, int, tuple[float, ...]]


class AnswerLog:
    """Collects the answers to each sentence with each beam size, decoded alone and in batches."""

    def __init__(self) -> None:
        self._alone: dict[tuple[int, int], ComparisonKey] = {}
        self._others: dict[str, list[tuple[tuple[int, int], ComparisonKey]]] = {}

    def add_alone(self, answers: Iterable[TimedAnswer]) -> None:
        """Add answers that a single client received. The first answer to each sentence is the reference."""
        for answer in answers:
            key = (answer.request.number, answer.request.beam_size)
            if key in self._alone:
                self._others.setdefault("alone again", []).append((key, answer.comparison_key))
            else:
                self._alone[key] = answer.comparison_key

    def add_batched(self, name: str, answers: Iterable[TimedAnswer]) -> None:
        """Add answers that were decoded in batches. `name` names the group in the result."""
        self._others.setdefault(name, []).extend(
            ((answer.request.number, answer.request.beam_size), answer.comparison_key) for answer in answers
        )

    def pairs(self) -> dict[str, list[tuple[ComparisonKey, ComparisonKey]]]:
        """By group: (reference, answer) for each answer whose sentence has a reference."""
        return {
            name: [(self._alone[key], answer) for key, answer in answers if key in self._alone]
            for name, answers in self._others.items()
        }


def compare(log: AnswerLog) -> dict[str, dict[str, float]]:
    """For each group of answers: counts, and the largest difference between an answer's scores and its reference's.

    An answer differs when its text or its number of subwords is not that of the reference (`AnswerLog.add_alone`). HTTP
    responses have no ids, so equal texts with equal scores are the closest check. num_other_scores: answers that do not
    differ, but have other scores than the reference. largest_score_gap: the largest difference of one segment's score,
    among answers that do not differ.
    """
    return {name: _differences(pairs) for name, pairs in log.pairs().items()}


def _differences(pairs: Sequence[tuple[ComparisonKey, ComparisonKey]]) -> dict[str, float]:
    same = [(alone, batched) for alone, batched in pairs if alone[:2] == batched[:2]]
    gaps = [
        abs(one - other) for alone, batched in same for one, other in zip(alone[2], batched[2], strict=True)
    ]
    return {
        "num_compared": len(pairs),
        "num_different": len(pairs) - len(same),
        "num_other_scores": sum(alone[2] != batched[2] for alone, batched in same),
        "largest_score_gap": max(gaps, default=0.0),
    }


def mixed_requests(requests: Mapping[int, Sequence[Request]], *, seed: int) -> list[Request]:
    """The requests of all beam sizes, in random order. requests: one list for each beam size."""
    mixed = [request for of_beam in requests.values() for request in of_beam]
    random.Random(seed).shuffle(mixed)
    return mixed
