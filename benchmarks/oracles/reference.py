"""Reference scores of translations by PyTorch, and the margins of a search's decisions."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from app.decoding.options import EarlyStop
from benchmarks.oracles.answers import Ids, Task
from model.config import BOS_ID, EOS_ID, PAD_ID
from model.search import pad, search_log_probabilities
from model.transformer import Transformer

BATCH_SIZE = 32


class ReferenceScorer:
    """Scores translations with a PyTorch model. Caches the scores."""

    def __init__(self, model: Transformer) -> None:
        self.model = model
        self._scores: dict[tuple[Ids, Ids], float] = {}

    def scores(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[float]:
        """Log-probability of each target with its end token, from a forward pass without a key/value cache.

        pairs: sources with the end token last, and targets without start and end tokens. Sums are in float64.
        """
        new = sorted(set(pairs) - set(self._scores), key=lambda pair: [len(side) for side in pair])
        for start in range(0, len(new), BATCH_SIZE):
            batch = new[start : start + BATCH_SIZE]
            self._scores.update(zip(batch, teacher_forced(self.model, batch), strict=True))
        return [self._scores[pair] for pair in pairs]


@torch.no_grad()
def teacher_forced(model: Transformer, pairs: Sequence[tuple[Ids, Ids]]) -> list[float]:
    """`ReferenceScorer.scores` of one batch."""
    labels = pad([(*target, EOS_ID) for _, target in pairs])
    logits = model(pad([source for source, _ in pairs]), pad([(BOS_ID, *target) for _, target in pairs]))
    scores = logits.double().log_softmax(-1).gather(-1, labels[..., None])[..., 0]
    totals: list[float] = (scores * (labels != PAD_ID)).sum(-1).tolist()
    return totals


@torch.no_grad()
def decision_margin(model: Transformer, source: Ids, task: Task) -> float:
    """The smallest change of a hypothesis's log-probability that changes a decision of a beam search.

    The search has Transduce's rules (app.decoding); a beam of 1 is greedy search. A step has two kinds of decisions:

    - Which continuations stay in the beam. The margin is the gap between the worst continuation that stays and the best
      one that does not.
    - Whether an end token is among the first beam_size ranks. The margin is the gap between the end token and the
      nearest continuation on the other side of that boundary.
    """
    beam_size = task.beam_size
    live: list[tuple[Ids, float]] = [((), 0.0)]
    margin, complete = float("inf"), list[float]()
    for _ in range(task.max_target_length):
        log_probabilities = search_log_probabilities(model, source, [(BOS_ID, *ids) for ids, _ in live])
        totals = log_probabilities.double() + torch.tensor([total for _, total in live]).double()[:, None]
        best = totals.flatten().topk(2 * beam_size + 2)
        ranked = [
            (value, *divmod(flat, totals.size(1)))
            for value, flat in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ]
        margin = min(margin, _gap(ranked, beam_size))
        complete += [value for value, _, token in ranked[:beam_size] if token == EOS_ID]
        others = [entry for entry in ranked if entry[2] != EOS_ID][:beam_size]
        if _is_done(complete, others[0][0], task):
            break
        live = [((*live[parent][0], token), value) for value, parent, token in others]
    return margin


def _gap(ranked: Sequence[tuple[float, int, int]], beam_size: int) -> float:
    """The margin of one step. ranked: sum, live hypothesis and token of the best continuations, best first."""
    others = [value for value, _, token in ranked if token != EOS_ID]
    gaps = [others[beam_size - 1] - others[beam_size]]
    for rank, (value, _, token) in enumerate(ranked):
        if token == EOS_ID:
            edge = ranked[beam_size if rank < beam_size else beam_size - 1][0]
            gaps.append(abs(value - edge))
    return min(gaps)


def _is_done(complete: Sequence[float], best_alive: float, task: Task) -> bool:
    """Whether a search without a length penalty ends. complete: sums of the finished hypotheses."""
    if task.early_stop is EarlyStop.BOUND:
        return bool(complete) and max(complete) >= best_alive
    return len(complete) >= task.beam_size
