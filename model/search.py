"""Reference search that decodes the whole prefix again for each subword. It is slow and simple.

The engine is tested against it. Beam search is as in section 6.1 of the paper. `beam_size` hypotheses are live, scores
are divided by a length penalty, and a sentence is done when `beam_size` hypotheses have ended. A translation has at
least one subword, so the first subword is never the end token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from model.config import BOS_ID, EOS_ID, PAD_ID
from model.transformer import Transformer

Penalty = Literal["wu", "power"]


class ModelWithStart(NamedTuple):
    """A model, and the start tokens before each translation. The length penalty counts all but the first of them."""

    model: Transformer
    start: tuple[int, ...]


@dataclass(frozen=True)
class Hypothesis:
    """A hypothesis: subwords without start and end tokens, summed log-probability, penalised score.

    is_complete: whether it ended with the end token, whose log-probability then counts too.
    """

    ids: tuple[int, ...]
    log_probability: float
    score: float
    is_complete: bool


def _with_start(model: Transformer | ModelWithStart) -> ModelWithStart:
    return model if isinstance(model, ModelWithStart) else ModelWithStart(model, (BOS_ID,))


def length_penalty(length: int, alpha: float, formula: Penalty) -> float:
    """((5 + length) / 6)^alpha (Wu et al. 2016, equation 14), or length^alpha; 1 for alpha 0."""
    return float(((5 + length) / 6) ** alpha if formula == "wu" else length**alpha)


def pad(sequences: Sequence[Sequence[int]], device: torch.device | None = None) -> Tensor:
    """Right-pad id sequences to one tensor (batch, longest)."""
    longest = max(len(sequence) for sequence in sequences)
    return torch.tensor([[*ids, *[PAD_ID] * (longest - len(ids))] for ids in sequences], device=device)


@torch.no_grad()
def _memory_of(model: Transformer, source: Sequence[int]) -> Tensor:
    return model.encode(torch.tensor([list(source)], device=model.embedding.weight.device))


@torch.no_grad()
def _log_probabilities(
    model: Transformer, memory: Tensor, prefixes: Sequence[Sequence[int]], num_start: int | None
) -> Tensor:
    """Log-probabilities (prefixes, vocab_size) after each of equally long prefixes.

    memory: the encoder's output for one source, (1, source_length, d_model).
    num_start: the number of start tokens, which the end token cannot directly follow. None: it can follow all tokens.
    """
    targets = torch.tensor([list(prefix) for prefix in prefixes], device=memory.device)
    decoded = model.decode(targets, memory.expand(len(prefixes), -1, -1))
    found = model.embedding.project(decoded[:, -1]).float().log_softmax(-1)
    if len(prefixes[0]) == num_start:
        found[:, EOS_ID] = -torch.inf
    return found


def next_log_probabilities(
    model: Transformer, source: Sequence[int], prefixes: Sequence[Sequence[int]]
) -> Tensor:
    """Log-probabilities (prefixes, vocab_size) of the subword after each of equally long prefixes."""
    return _log_probabilities(model, _memory_of(model, source), prefixes, None)


def search_log_probabilities(
    model: Transformer, source: Sequence[int], prefixes: Sequence[Sequence[int]], *, num_start: int = 1
) -> Tensor:
    """`next_log_probabilities`, but the end token cannot directly follow the num_start start tokens."""
    return _log_probabilities(model, _memory_of(model, source), prefixes, num_start)


def beam_search(
    model: Transformer | ModelWithStart,
    source: Sequence[int],
    *,
    beam_size: int = 4,
    max_target_length: int = 256,
    alpha: float = 0.6,
    formula: Penalty = "wu",
) -> list[Hypothesis]:
    """Translate one sentence. Returns at most beam_size hypotheses, best first.

    source: ids with the end token last. A step takes the 2 * beam_size best continuations of all live hypotheses, by
    summed log-probability. An end token among the first beam_size of them completes its hypothesis, and any other end
    token is dropped. The best beam_size continuations without an end token are live next. The search stops when
    beam_size hypotheses are complete, or at max_target_length (at least 1) subwords. At that length, the live
    hypotheses that do not end are scored without an end token.
    """
    model, start = _with_start(model)
    memory, num_counted_start = _memory_of(model, source), len(start) - 1
    live: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    complete: list[Hypothesis] = []
    for length in range(max_target_length + 1):
        is_last = length == max_target_length
        prefixes = [(*start, *ids) for ids, _ in live]
        log_probs = _log_probabilities(model, memory, prefixes, len(start))
        totals = log_probs + torch.tensor([total for _, total in live])[:, None].to(log_probs.device)
        best = totals.flatten().topk(min(2 * beam_size, totals.numel()))
        survivors: list[tuple[tuple[int, ...], float]] = []
        ended: set[int] = set()
        for rank, (total, flat) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True)):
            parent, token = divmod(flat, totals.size(1))
            ids = live[parent][0]
            if total == -math.inf:
                continue
            if token == EOS_ID:
                if rank < beam_size:
                    ended.add(parent)
                    penalty = length_penalty(length + 1 + num_counted_start, alpha, formula)
                    complete.append(Hypothesis(ids, total, total / penalty, True))
            elif len(survivors) < beam_size:
                survivors.append(((*ids, token), total))
        if len(complete) >= beam_size or not survivors:
            break
        if is_last:
            penalty = length_penalty(length + num_counted_start, alpha, formula)
            unfinished = [hypothesis for index, hypothesis in enumerate(live) if index not in ended]
            complete.extend(Hypothesis(ids, total, total / penalty, False) for ids, total in unfinished)
            break
        live = survivors
    return sorted(complete, key=lambda found: -found.score)[:beam_size]


def greedy_search(
    model: Transformer | ModelWithStart,
    source: Sequence[int],
    *,
    max_target_length: int = 256,
    alpha: float = 0.6,
    formula: Penalty = "wu",
) -> Hypothesis:
    """Translate one sentence by the most probable subword at each step.

    The search ends at the end token, or at max_target_length subwords.
    """
    model, start = _with_start(model)
    memory, num_counted_start = _memory_of(model, source), len(start) - 1
    ids: list[int] = []
    total = 0.0
    while True:
        best = _log_probabilities(model, memory, [(*start, *ids)], len(start))[0].max(0)
        token, value = int(best.indices), float(best.values)
        if token == EOS_ID:
            total += value
            penalty = length_penalty(len(ids) + 1 + num_counted_start, alpha, formula)
            return Hypothesis(tuple(ids), total, total / penalty, True)
        if len(ids) == max_target_length:
            penalty = length_penalty(len(ids) + num_counted_start, alpha, formula)
            return Hypothesis(tuple(ids), total, total / penalty, False)
        ids.append(token)
        total += value
