"""Compares the runner's log-probabilities with PyTorch's, on random or given pairs of different lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from app.runtime.interface import Floats, Int32s, Runner, StepInput
from model.config import BOS_ID, EOS_ID
from model.transformer import Transformer

# The id of `<unk>`, which follows the end token's id. Random sources and targets use this id and all later ones.
FIRST_RANDOM_ID = EOS_ID + 1
# Log-probabilities below this value are compared as this value. An imported model excludes subwords by a bias of
# -30,000. Near -30,000, fp32 is exact only to 0.002.
LEAST = -1000.0


@dataclass(frozen=True)
class ParityPair:
    """A source (the end token last), and the target subwords that its row decodes.

    first_step: the step in which the row is decoded for the first time.
    start_id: the start token after BOS_ID, for a model whose targets begin with a language token; else None.
    """

    source: Int32s
    target: Int32s
    first_step: int
    start_id: int | None = None

    @property
    def start(self) -> tuple[int, ...]:
        """The tokens before the target."""
        return (BOS_ID,) if self.start_id is None else (BOS_ID, self.start_id)


def random_pairs(
    random_numbers: np.random.Generator,
    *,
    num_pairs: int,
    vocab_size: int,
    max_length: int,
    max_first_step: int,
) -> list[ParityPair]:
    """Random pairs in the order of their first steps, 0 to max_first_step.

    A source with its end token, and a target with a start token, has 1 to max_length ids.
    """

    def ids() -> Int32s:
        length = int(random_numbers.integers(0, max_length))
        return random_numbers.integers(FIRST_RANDOM_ID, vocab_size, length).astype(np.int32)

    first_steps = sorted(random_numbers.integers(0, max_first_step + 1, num_pairs).tolist())
    end = np.array([EOS_ID], np.int32)
    return [ParityPair(np.concatenate([ids(), end]), ids(), first_step) for first_step in first_steps]


@torch.no_grad()
def one_shot_log_probabilities(model: Transformer, pair: ParityPair) -> Floats:
    """PyTorch's log-probabilities after the start token and each target subword: (len(target) + 1, vocab_size)."""
    source = torch.from_numpy(pair.source).long()[None]
    target = torch.tensor([[*pair.start, *pair.target.tolist()]])
    log_probabilities: Floats = model(source, target).log_softmax(-1)[0].numpy()
    return log_probabilities[len(pair.start) - 1 :]


def one_shots_of(model: Transformer, pairs: Sequence[ParityPair]) -> list[Floats]:
    """PyTorch's log-probabilities of each pair, to compare several runners with; see `one_shot_log_probabilities`."""
    return [one_shot_log_probabilities(model, pair) for pair in pairs]


def distributions_of(
    runner: Runner, ids: Sequence[int] | Int32s, positions: Sequence[int] | Int32s
) -> Floats:
    """One step's log-probabilities of all subwords, (rows, vocab_size). The next step overwrites them."""
    step = StepInput(np.array(ids, np.int32), np.array(positions, np.int32), 1, wants_distributions=True)
    found = runner.decode(step).distributions
    assert found is not None
    return found


def stepwise_log_probabilities(runner: Runner, pairs: Sequence[ParityPair]) -> list[Floats]:
    """The runner's log-probabilities of each pair, one cached step at a time: (len(target) + 1, vocab_size) each.

    pairs: in the order of their first steps. Rows are added at these steps and stay until the last pair ends. After its
    target's end a row repeats its last position, which does not change other rows.
    """
    runner.encode([pair.source for pair in pairs], list(range(len(pairs))))
    found: list[list[Floats]] = [[] for _ in pairs]
    step = 0
    while any(len(rows) <= len(pair.target) for rows, pair in zip(found, pairs, strict=True)):
        running = [pair for pair in pairs if pair.first_step <= step]
        positions = [min(step - pair.first_step, len(pair.target)) for pair in running]
        ids = [
            pair.start[-1] if position == 0 else int(pair.target[position - 1])
            for pair, position in zip(running, positions, strict=True)
        ]
        if running:
            distributions = distributions_of(runner, ids, positions)
            for row, pair in enumerate(running):
                if step - pair.first_step <= len(pair.target):
                    found[row].append(distributions[row].copy())
        step += 1
    return [np.stack(rows) for rows in found]


def summed_differences(
    one_shots: Sequence[Floats], runner: Runner, pairs: Sequence[ParityPair]
) -> tuple[npt.NDArray[np.float64], int]:
    """The sum of each subword's differences over all positions, (vocab_size,), and the number of positions."""
    sums, num_positions = np.zeros(one_shots[0].shape[-1]), 0
    for stepwise, one_shot in zip(stepwise_log_probabilities(runner, pairs), one_shots, strict=True):
        sums += np.abs(np.maximum(stepwise, LEAST) - np.maximum(one_shot, LEAST)).sum(0)
        num_positions += len(one_shot)
    return sums, num_positions


def target_scores(model: Transformer, pairs: Sequence[ParityPair]) -> list[Floats]:
    """PyTorch's log-probability of each pair's target subwords and end token: (len(target) + 1,) each."""
    return [_of_targets(one_shot_log_probabilities(model, pair), pair) for pair in pairs]


def mean_target_difference(scores: Sequence[Floats], runner: Runner, pairs: Sequence[ParityPair]) -> float:
    """The mean absolute difference between the runner's and PyTorch's log-probability of a target subword.

    scores: the result of `target_scores`, PyTorch's log-probabilities.
    """
    num_rows = runner.limits.num_rows
    batches = (pairs[first : first + num_rows] for first in range(0, len(pairs), num_rows))
    found = (rows for batch in batches for rows in stepwise_log_probabilities(runner, batch))
    differences = [
        np.abs(_of_targets(stepwise, pair) - expected)
        for stepwise, pair, expected in zip(found, pairs, scores, strict=True)
    ]
    return float(np.concatenate(differences).mean())


def _of_targets(log_probabilities: Floats, pair: ParityPair) -> Floats:
    columns = np.append(pair.target, EOS_ID)
    found: Floats = log_probabilities[np.arange(len(columns)), columns]
    return found
