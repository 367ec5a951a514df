"""A runner without a neural model. Its scores are a hash of the sentence and the prefix.

Its cache rows are arrays of subwords: the sentence, and the prefix so far. `copy_rows` and `reorder` copy them, and the
scores are computed from them. So a bookkeeping error of the engine changes the translations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from app.runtime.interface import FREE_ROW_ID, Floats, Int32s, Int64s, Limits, StepInput, StepOutput

BOS, EOS = 2, 3
# The content of a cache column that is not written. A column is the place of one subword. No prefix contains STALE.
STALE = -7

LIMITS = Limits(
    num_rows=24, max_source_length=16, max_target_length=13, vocab_size=40, bos_id=BOS, eos_id=EOS
)


def log_probabilities(source: Int32s, prefix: Int32s, *, vocab_size: int, eos_bonus: float = 1.0) -> Floats:
    """Return (vocab_size,) log-probabilities of the subword after a prefix. The prefix begins with the start token."""
    seed = [*source.tolist(), 0xFFFF, *(prefix.astype(np.int64) + 100).tolist()]
    state = 14695981039346656037
    for value in seed:
        state = (state ^ value) * 1099511628211 & 0xFFFFFFFFFFFFFFFF
    mixed = np.uint64(state) + np.arange(1, vocab_size + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    logits = (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53 * 6.0
    logits[EOS] += eos_bonus
    shifted = logits - logits.max()
    scores: Floats = (shifted - np.log(np.exp(shifted).sum())).astype(np.float32)
    return scores


def attention(source: Int32s, prefix: Int32s) -> Floats:
    """Return the attention from the subword after a prefix to the source, (source_length,). It sums to 1."""
    weights = np.exp(log_probabilities(source, prefix, vocab_size=4 + len(source))[4:])
    shares: Floats = (weights / weights.sum()).astype(np.float32)
    return shares


class StepBudget:
    """Decides whether a call takes its next step, as `StepInput` and `StopCondition` define it."""

    def __init__(self, step: StepInput) -> None:
        self._step = step
        self._num_taken = self._num_after_end = 0
        self.is_open = True

    def note_step(self, *, has_ended: bool) -> None:
        """Count a step. has_ended: whether a row or beam has ended in this step or an earlier one."""
        stop = self._step.stop
        if has_ended:
            self._num_after_end += 1
        self._num_taken += 1
        is_woken = stop.wake_flag is not None and stop.wake_flag.is_set and self._num_taken >= stop.min_steps
        self.is_open = (
            self._num_taken < self._step.num_steps
            and self._num_after_end <= stop.steps_after_end
            and not is_woken
        )


class FakeRunner:
    """A Runner that records its calls.

    calls: the number of calls of each method.
    batches: the number of rows of each decode.
    encoded: every encoded source.
    encode_batches: the number of source tokens of each encode.
    optional_outputs: for each step, whether it requests distributions and whether it requests alignment.
    steps: the number of steps of each decode without beams.
    """

    def __init__(self, limits: Limits = LIMITS, *, eos_bonus: float = 1.0) -> None:
        self._limits = limits
        self.eos_bonus = eos_bonus
        self.sources: NDArray[np.int32] = np.full(
            (limits.num_rows, limits.max_source_length), STALE, np.int32
        )
        self.source_lengths = np.zeros(limits.num_rows, np.int32)
        self.cache: NDArray[np.int32] = np.full((limits.num_rows, limits.max_target_length), STALE, np.int32)
        self.calls = {"encode": 0, "decode": 0, "copy_rows": 0, "reorder": 0}
        self.batches: list[int] = []
        self.encoded: list[tuple[int, ...]] = []
        self.encode_batches: list[int] = []
        self.optional_outputs: list[tuple[bool, bool]] = []
        self.steps: list[int] = []

    @property
    def limits(self) -> Limits:
        return self._limits

    def encode(self, sources: Sequence[Int32s], rows: Sequence[int]) -> None:
        self.calls["encode"] += 1
        assert len(sources) == len(rows) == len(set(rows)) > 0
        self.encode_batches.append(sum(len(source) for source in sources))
        for source, row in zip(sources, rows, strict=True):
            assert 1 <= len(source) <= self._limits.max_source_length
            self.encoded.append(tuple(source.tolist()))
            self.sources[row] = STALE
            self.sources[row, : len(source)] = source
            self.source_lengths[row] = len(source)
            self.cache[row] = STALE

    def decode(self, step: StepInput) -> StepOutput:
        self.calls["decode"] += 1
        self.batches.append(len(step.ids))
        assert 1 <= step.num_steps <= self._limits.max_steps
        output = self._decode_several_steps(step) if step.num_steps > 1 else self._decode_one_step(step)
        self.steps.append(output.num_steps)
        return output

    def on_step(self, num_taken: int) -> None:
        """Called after each step with the number of steps taken in the call."""

    def _decode_one_step(self, step: StepInput) -> StepOutput:
        output = self._compute_step(step)
        self.on_step(1)
        return output

    def _decode_several_steps(self, step: StepInput) -> StepOutput:
        """Take several steps. Each row continues with its best candidate until it ends with the end token."""
        assert step.num_candidates == 1
        assert not step.wants_distributions
        assert not step.wants_alignment
        assert (step.positions + step.num_steps <= self._limits.max_target_length).all()
        ids, positions = step.ids, step.positions
        has_ended = np.zeros(len(ids), bool)
        tokens: list[Int64s] = []
        scores: list[Floats] = []
        budget = StepBudget(step)
        while budget.is_open:
            one = self._compute_step(replace(step, ids=ids, positions=positions, num_steps=1))
            tokens.append(np.where(has_ended, EOS, one.ids[:, 0]))
            scores.append(np.where(has_ended, 0.0, one.log_probabilities[:, 0]).astype(np.float32))
            has_ended |= tokens[-1] == EOS
            ids = np.where(ids == FREE_ROW_ID, FREE_ROW_ID, tokens[-1]).astype(np.int32)
            positions = positions + 1
            self.on_step(len(tokens))
            budget.note_step(has_ended=bool(has_ended[step.ids != FREE_ROW_ID].any()))
        return StepOutput(np.stack(scores), np.stack(tokens), num_steps=len(tokens))

    def _compute_step(self, step: StepInput) -> StepOutput:
        num_rows = len(step.ids)
        assert 1 <= num_rows <= self._limits.num_rows
        assert 1 <= step.num_candidates <= self._limits.vocab_size
        assert step.ids.dtype == step.positions.dtype == np.int32
        scores = np.empty((num_rows, self._limits.vocab_size), np.float32)
        for row in range(num_rows):
            position = step.positions[row]
            if self._limits.skips_free_rows and step.ids[row] == FREE_ROW_ID:
                scores[row] = 0.0
                continue
            self.cache[row, position] = step.ids[row]
            self.cache[row, position + 1 :] = STALE
            scores[row] = self.next_scores(self.source_of(row), self.cache[row, : position + 1])
        ranked = scores.copy()
        ranked[step.positions == 0, EOS] = -np.inf  # the end token cannot be first
        order = np.argsort(-ranked, axis=1, kind="stable")[:, : step.num_candidates]
        self.optional_outputs.append((step.wants_distributions, step.wants_alignment))
        return StepOutput(
            np.take_along_axis(ranked, order, axis=1),
            order.astype(np.int64),
            distributions=scores if step.wants_distributions else None,
            alignment=self._alignment(step) if step.wants_alignment else None,
        )

    def share_cores(self, num_sharing: int) -> None:
        """Nothing to share."""

    def copy_rows(self, sources: Int32s, targets: Int32s, lengths: Int32s) -> None:
        self.calls["copy_rows"] += 1
        self.sources[targets] = self.sources[sources]
        self.source_lengths[targets] = self.source_lengths[sources]
        self._copy_columns(sources, targets, lengths, np.zeros_like(lengths))

    def reorder(self, sources: Int32s, targets: Int32s, lengths: Int32s, shared: Int32s) -> None:
        self.calls["reorder"] += 1
        assert (self.sources[targets] == self.sources[sources]).all(), "reordered across sentences"
        self._copy_columns(sources, targets, lengths, shared)

    def _alignment(self, step: StepInput) -> Floats:
        """Return the attention, (num_rows, max_source_length). It is 0 after the end of each row's source."""
        assert self._limits.has_alignment
        found = np.zeros((len(step.ids), self._limits.max_source_length), np.float32)
        for row in np.flatnonzero(step.ids != FREE_ROW_ID).tolist():
            position = step.positions[row]
            weights = attention(self.source_of(row), self.cache[row, : position + 1])
            found[row, : len(weights)] = weights
        return found

    def next_scores(self, source: Int32s, prefix: Int32s) -> Floats:
        return log_probabilities(source, prefix, vocab_size=self._limits.vocab_size, eos_bonus=self.eos_bonus)

    def source_of(self, row: int) -> Int32s:
        source: Int32s = self.sources[row, : self.source_lengths[row]]
        return source

    def _copy_columns(self, sources: Int32s, targets: Int32s, lengths: Int32s, shared: Int32s) -> None:
        """Copy the cache columns from `shared` on. In the columns before, source and target row have the same subwords.

        A wrong number of shared columns changes the translations.
        """
        assert len(sources) == len(targets) == len(lengths) == len(set(targets.tolist())) > 0
        before = self.cache.copy()
        for source, target, length, first in zip(sources, targets, lengths, shared, strict=True):
            self.cache[target, first:] = STALE
            self.cache[target, first:length] = before[source, first:length]


class LoopingRunner(FakeRunner):
    """For a source that begins with 9, repeats one phrase of five subwords without end."""

    def next_scores(self, source: Int32s, prefix: Int32s) -> Floats:
        scores = super().next_scores(source, prefix)
        if source[0] == 9:
            scores -= 6.0
            scores[20 + (len(prefix) - 1) % 5] = -0.01
        return scores
