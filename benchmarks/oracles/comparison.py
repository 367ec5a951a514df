"""Compares two engines' answers; each difference is explained or counted as unexplained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from benchmarks.oracles.answers import Answer, Task
from benchmarks.oracles.reference import Judge, decision_margin

# A difference of summed log-probabilities. fp32 sums in another order agree to about a tenth of it.
TIE = 1e-4
Kind = Literal["tie", "tie in the search", "length limit", "unexplained"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class Difference:
    """A sentence that two engines translate differently.

    sentence: its number. ours, theirs: log-probabilities of the answers, both teacher-forced by PyTorch.
    margin: the least change of a sum that would have led our search elsewhere.
    kind: "tie": the answers are worth the same within TIE. "tie in the search": they are not, and the margin is
    below TIE, so that rounding led the two searches to other hypotheses. "length limit": one stands at the limit,
    where each has its own way of leaving off.
    """

    sentence: int
    kind: Kind
    ours: float
    theirs: float
    margin: float


@dataclass(frozen=True)
class Comparison:
    """num_same of num_sentences answers are the same, subword by subword.

    score_error: the largest difference between a stated score and the same answer, teacher-forced by PyTorch,
    over answers that ended before the limit; None where no score is stated.
    """

    num_sentences: int
    num_same: int
    differences: tuple[Difference, ...]
    score_error: float | None


def compare(judge: Judge, task: Task, ours: Sequence[Answer], theirs: Sequence[Answer]) -> Comparison:
    """Compare their answers with ours, judged by PyTorch with the same weights."""
    different = [
        number for number, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one.ids != other.ids
    ]
    worth = {
        whose: judge.worth([(task.sources[number], answers[number].ids) for number in different])
        for whose, answers in (("ours", ours), ("theirs", theirs))
    }
    differences = []
    for number, own, other in zip(different, worth["ours"], worth["theirs"], strict=True):
        margin = decision_margin(judge.model, task.sources[number], task)
        is_at_limit = max(len(ours[number].ids), len(theirs[number].ids)) >= task.max_target_length
        kind = kind_of(own, other, margin, is_at_limit=is_at_limit)
        differences.append(Difference(number, kind, own, other, margin))
    return Comparison(
        len(ours), len(ours) - len(different), tuple(differences), score_error(judge, task, theirs)
    )


def kind_of(ours: float, theirs: float, margin: float, *, is_at_limit: bool) -> Kind:
    """The kind of a difference, as in `Difference.kind`."""
    if is_at_limit:
        return "length limit"
    if abs(ours - theirs) < TIE:
        return "tie"
    if margin < TIE:
        return "tie in the search"
    return "unexplained"


def ended(task: Task, answers: Sequence[Answer]) -> dict[int, float]:
    """The stated scores of answers that ended before the limit, by sentence."""
    return {
        number: answer.log_probability
        for number, answer in enumerate(answers)
        if answer.log_probability is not None and len(answer.ids) < task.max_target_length
    }


def score_error(judge: Judge, task: Task, answers: Sequence[Answer]) -> float | None:
    """As `Comparison.score_error`."""
    stated = ended(task, answers)
    exact = judge.worth([(task.sources[number], answers[number].ids) for number in stated])
    return max((abs(one - other) for one, other in zip(stated.values(), exact, strict=True)), default=None)
