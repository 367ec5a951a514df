"""Reference searches over whole prefixes and the whole vocabulary, in simple Python."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from app.decoding.options import DecodingOptions, EarlyStop, FinishReason, Hypothesis, LengthPenalty

Ids = tuple[int, ...]
# The log-probability of every subword after a target prefix (without its start token).
NextScores = Callable[[Ids], Sequence[float]]
# The attention from the next subword to each source token.
Attention = Callable[[Ids], Sequence[float]]


class ReferenceModel:
    """A language model with a sentence's options."""

    def __init__(
        self,
        next_scores: NextScores,
        options: DecodingOptions,
        *,
        eos_id: int,
        attention: Attention | None = None,
    ) -> None:
        self.scores_after = functools.cache(self._scores_after)
        self._next_scores = next_scores
        self.options = options
        self.eos_id = eos_id
        self.attention = attention

    def is_last_forbidden(self, target: Ids) -> bool:
        """Whether the last token of a target, which may be the end token, is forbidden at its position."""
        options = self.options
        min_length = max(1, options.min_target_length)  # no translation is empty
        if target[-1] == self.eos_id and len(target) <= min_length:
            return True
        for run in options.suppress_sequences:
            if target[max(0, len(target) - len(run)) :] == run:
                return True
        n = options.no_repeat_ngram_size
        if n == 0:
            return False
        ngrams = [target[start : start + n] for start in range(len(target) - n + 1)]
        return len(ngrams) > 0 and ngrams[-1] in ngrams[:-1]

    def _scores_after(self, ids: Ids) -> list[float]:
        """The log-probability of each token after a prefix under the options. That of a forbidden token is -inf."""
        options, values = self.options, np.array(self._next_scores(ids), np.float32)
        if len(ids) < len(options.target_prefix):
            forced = options.target_prefix[len(ids)]
            return [value if token == forced else -math.inf for token, value in enumerate(values.tolist())]
        values[list(set(ids))] *= np.float32(options.repetition_penalty)
        return [
            -math.inf if self.is_last_forbidden((*ids, token)) else value
            for token, value in enumerate(values.tolist())
        ]

    def score(self, target: Ids) -> float:
        """The log-probability of a target's last token under the options."""
        return self.scores_after(target[:-1])[target[-1]]

    def penalty(self, length: int) -> float:
        if self.options.length_penalty is LengthPenalty.WU:
            return float(((5 + length) / 6) ** self.options.alpha)
        return float(length**self.options.alpha)

    def hypothesis(self, target: Ids, reason: FinishReason) -> Hypothesis:
        """Make a hypothesis. target: its tokens, including the end token if there is one."""
        scores = tuple(self.score(target[: position + 1]) for position in range(len(target)))
        total = sum(scores)
        score = total / self.penalty(max(1, len(target)))
        if self.options.coverage_penalty and self.attention is not None and target:
            rows = [self.attention(target[:position]) for position in range(len(target))]
            coverage_of_each = [min(1.0, sum(float(row[i]) for row in rows)) for i in range(len(rows[0]))]
            score += self.options.coverage_penalty * sum(math.log(one) for one in coverage_of_each)
        ids = target[:-1] if reason is FinishReason.STOP else target
        return Hypothesis(ids, total, score, reason, scores)


def ranked(found: list[Hypothesis], options: DecodingOptions) -> list[Hypothesis]:
    return sorted(found, key=lambda one: -one.score)[: options.num_hypotheses]


def is_enough(model: ReferenceModel, complete: list[Hypothesis], best_live: float) -> bool:
    """Whether the search may end. best_live: the largest sum of log-probabilities of a live hypothesis."""
    options = model.options
    if options.early_stop is EarlyStop.FIRST:
        return len(complete) >= options.beam_size * options.patience
    if len(complete) < options.num_hypotheses:
        return False
    return best_live / model.penalty(options.max_target_length + 1) <= ranked(complete, options)[-1].score


def reference_search(
    next_scores: NextScores, options: DecodingOptions, *, eos_id: int, attention: Attention | None = None
) -> list[Hypothesis]:
    """Beam search as in section 6.1 of the paper. A beam of one is greedy search. The best hypothesis is first."""
    model = ReferenceModel(next_scores, options, eos_id=eos_id, attention=attention)
    beam_size = options.beam_size
    live: dict[Ids, float] = {(): 0.0}
    complete: list[Hypothesis] = []
    while True:
        scored = [
            (total + score, ids, token)
            for ids, total in live.items()
            for token, score in enumerate(model.scores_after(ids))
            if score > -math.inf
        ]
        best = sorted(scored, key=lambda one: -one[0])[: 2 * beam_size]
        ended = [ids for _, ids, token in best[:beam_size] if token == eos_id]
        grown = {(*ids, token): total for total, ids, token in best if token != eos_id}
        complete += [model.hypothesis((*ids, eos_id), FinishReason.STOP) for ids in ended]
        if not grown or is_enough(model, complete, max(grown.values())):
            break
        if len(next(iter(live))) == options.max_target_length:
            complete += [model.hypothesis(ids, FinishReason.LENGTH) for ids in live if ids not in ended]
            break
        live = dict(list(grown.items())[:beam_size])
    if not complete:
        complete = [model.hypothesis(ids, FinishReason.CONSTRAINT) for ids in live]
    return ranked(complete, options)


def every_translation(
    next_scores: NextScores, options: DecodingOptions, *, eos_id: int, attention: Attention | None = None
) -> list[Hypothesis]:
    """All targets of at most max_target_length subwords that the options allow, best first.

    A target ends with the end token. A target of full length has no end token if the end token is forbidden there.
    """
    model = ReferenceModel(next_scores, options, eos_id=eos_id, attention=attention)
    words = [token for token in range(len(next_scores(()))) if token != eos_id]
    found = []
    for length in range(1, options.max_target_length + 1):
        for ids in itertools.product(words, repeat=length):
            if any(model.score(ids[: position + 1]) == -math.inf for position in range(length)):
                continue
            if model.score((*ids, eos_id)) > -math.inf:
                found.append(model.hypothesis((*ids, eos_id), FinishReason.STOP))
            elif length == options.max_target_length:
                found.append(model.hypothesis(ids, FinishReason.LENGTH))
    return sorted(found, key=lambda one: -one.score)
