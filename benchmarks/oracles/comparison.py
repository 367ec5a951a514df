"""Compares two engines' answers, and finds the cause of each difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from benchmarks.oracles.answers import Answer, Task
from benchmarks.oracles.reference import ReferenceScorer, decision_margin

# Sums of log-probabilities that differ by less than this are a tie. In fp32, the order of summation changes a sum by
# about a tenth of this.
TIE = 1e-4
Kind = Literal["tie", "tie in the search", "length limit", "unexplained"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class Difference:
    """A sentence that two engines translate differently.

    sentence: its number. ours, theirs: log-probabilities of the two answers, teacher-forced by PyTorch. margin: the
    smallest change of a hypothesis's log-probability that changes a decision of Transduce's search. kind: the first of
    these causes that holds:

    "length limit": an answer reaches the length limit, which the engines treat differently. "tie": the
    log-probabilities differ by less than TIE. "tie in the search": the margin is below TIE, so rounding can lead the
    searches to different hypotheses. "unexplained": none of these.
    """

    sentence: int
    kind: Kind
    ours: float
    theirs: float
    margin: float


@dataclass(frozen=True)
class Comparison:
    """Transduce's answers compared with another engine's. num_same: sentences with equal subwords in both answers.

    score_error: the largest difference between the other engine's score and PyTorch's teacher-forced score of the same
    answer, over answers below the length limit. None if the engine returns no scores, or no answer is below the limit.
    """

    num_sentences: int
    num_same: int
    differences: tuple[Difference, ...]
    score_error: float | None


def compare(
    scorer: ReferenceScorer, task: Task, ours: Sequence[Answer], theirs: Sequence[Answer]
) -> Comparison:
    """Compare another engine's answers with Transduce's. PyTorch scores the differing answers with the same weights."""
    different = [
        number for number, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one.ids != other.ids
    ]
    our_scores, their_scores = (
        scorer.scores([(task.sources[number], answers[number].ids) for number in different])
        for answers in (ours, theirs)
    )
    differences = []
    for number, our_score, their_score in zip(different, our_scores, their_scores, strict=True):
        margin = decision_margin(scorer.model, task.sources[number], task)
        is_at_limit = max(len(ours[number].ids), len(theirs[number].ids)) >= task.max_target_length
        kind = kind_of(our_score, their_score, margin, is_at_limit=is_at_limit)
        differences.append(Difference(number, kind, our_score, their_score, margin))
    return Comparison(
        len(ours), len(ours) - len(different), tuple(differences), score_error(scorer, task, theirs)
    )


def kind_of(ours: float, theirs: float, margin: float, *, is_at_limit: bool) -> Kind:
    """The cause of a difference, as in `Difference`."""
    if is_at_limit:
        return "length limit"
    if abs(ours - theirs) < TIE:
        return "tie"
    if margin < TIE:
        return "tie in the search"
    return "unexplained"


def scores_below_limit(task: Task, answers: Sequence[Answer]) -> dict[int, float]:
    """The engine's scores of answers below the length limit, by sentence."""
    return {
        number: answer.log_probability
        for number, answer in enumerate(answers)
        if answer.log_probability is not None and len(answer.ids) < task.max_target_length
    }


def score_error(scorer: ReferenceScorer, task: Task, answers: Sequence[Answer]) -> float | None:
    """The largest difference between these answers' scores and PyTorch's, as in `Comparison.score_error`."""
    stated = scores_below_limit(task, answers)
    exact = scorer.scores([(task.sources[number], answers[number].ids) for number in stated])
    return max((abs(one - other) for one, other in zip(stated.values(), exact, strict=True)), default=None)
