"""Search over whole prefixes and the whole vocabulary, in plain Python: what the real one must equal."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from app.decoding.options import DecodingOptions, FinishReason, Hypothesis, LengthPenalty

# The log-probability of every subword after a target prefix (without its start token).
NextScores = Callable[[tuple[int, ...]], Sequence[float]]


def penalty(length: int, options: DecodingOptions) -> float:
    if options.length_penalty is LengthPenalty.WU:
        return float(((5 + length) / 6) ** options.alpha)
    return float(length**options.alpha)


def hypothesis(
    ids: tuple[int, ...], total: float, options: DecodingOptions, *, has_ended: bool
) -> Hypothesis:
    reason = FinishReason.STOP if has_ended else FinishReason.LENGTH
    return Hypothesis(ids, total, total / penalty(len(ids) + has_ended, options), reason)


def plain_search(next_scores: NextScores, options: DecodingOptions, *, eos_id: int) -> list[Hypothesis]:
    """Beam search as section 6.1 of the paper, best first; a beam of one is greedy search."""
    beam_size = options.beam_size
    live: dict[tuple[int, ...], float] = {(): 0.0}
    complete: list[Hypothesis] = []
    while True:
        scored = [
            (total + float(score), ids, token)
            for ids, total in live.items()
            for token, score in enumerate(next_scores(ids))
        ]
        best = sorted(scored, key=lambda one: -one[0])[: 2 * beam_size]
        ended = [(total, ids) for total, ids, token in best[:beam_size] if token == eos_id]
        grown = [(total, (*ids, token)) for total, ids, token in best if token != eos_id][:beam_size]
        complete += [hypothesis(ids, total, options, has_ended=True) for total, ids in ended]
        if len(complete) >= beam_size or not grown:
            break
        if len(next(iter(live))) == options.max_target_length:
            left = [(total, ids) for ids, total in live.items() if ids not in {ids for _, ids in ended}]
            complete += [hypothesis(ids, total, options, has_ended=False) for total, ids in left]
            break
        live = {ids: total for total, ids in grown}
    return sorted(complete, key=lambda found: -found.score)[: options.num_hypotheses]


def every_translation(next_scores: NextScores, options: DecodingOptions, *, eos_id: int) -> list[Hypothesis]:
    """All targets of at most max_target_length subwords that end with the end token, best first."""
    words = [token for token in range(len(next_scores(()))) if token != eos_id]
    found = []
    for length in range(options.max_target_length + 1):
        for ids in itertools.product(words, repeat=length):
            target = (*ids, eos_id)
            total = sum(float(next_scores(target[:position])[token]) for position, token in enumerate(target))
            found.append(hypothesis(ids, total, options, has_ended=True))
    return sorted(found, key=lambda one: -one.score)
