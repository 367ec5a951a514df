"""Whether the same sentence gets the same answer alone and among others."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

from benchmarks.load import Answered, Request

# Text, number of target subwords, scores of the segments.
Said = tuple[str, int, tuple[float, ...]]


class Company:
    """What was said to each sentence with each beam, alone and among others."""

    def __init__(self) -> None:
        self._alone: dict[tuple[int, int], Said] = {}
        self._seen: dict[str, list[tuple[tuple[int, int], Said]]] = {}

    def alone(self, answers: Iterable[Answered]) -> None:
        """Answers to one client; the first to a sentence is what others are compared with."""
        for answer in answers:
            key = (answer.request.number, answer.request.beam_size)
            if key in self._alone:
                self._seen.setdefault("alone again", []).append((key, answer.said))
            else:
                self._alone[key] = answer.said

    def together(self, name: str, answers: Iterable[Answered]) -> None:
        """Answers in company of that name."""
        self._seen.setdefault(name, []).extend(
            ((answer.request.number, answer.request.beam_size), answer.said) for answer in answers
        )

    def pairs(self) -> dict[str, list[tuple[Said, Said]]]:
        """By company: what was said alone and what was said there, of sentences that were asked alone too."""
        return {
            name: [(self._alone[key], said) for key, said in seen if key in self._alone]
            for name, seen in self._seen.items()
        }


def compare(company: Company) -> dict[str, dict[str, float]]:
    """By company: answers compared, those whose text or number of subwords differs, those whose scores do.

    Equal scores beside equal texts are the nearest that HTTP shows of equal ids. largest_score_gap: among
    answers with the same text.
    """
    return {name: _differences(pairs) for name, pairs in company.pairs().items()}


def _differences(pairs: Sequence[tuple[Said, Said]]) -> dict[str, float]:
    same = [(alone, there) for alone, there in pairs if alone[:2] == there[:2]]
    gaps = [abs(one - other) for alone, there in same for one, other in zip(alone[2], there[2], strict=True)]
    return {
        "num_compared": len(pairs),
        "num_different": len(pairs) - len(same),
        "num_other_scores": sum(alone[2] != there[2] for alone, there in same),
        "largest_score_gap": max(gaps, default=0.0),
    }


def mixed_requests(requests: Mapping[int, Sequence[Request]], *, seed: int) -> list[Request]:
    """Every sentence with every beam, in random order. requests: by beam size."""
    mixed = [request for asked in requests.values() for request in asked]
    random.Random(seed).shuffle(mixed)
    return mixed
