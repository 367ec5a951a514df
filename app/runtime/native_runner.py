"""The Runner over the graphs of the native CPU kernels (docs/native-kernels.md).

A slot of the cross-attention cache holds one sentence's keys and values. A row stores the number of its slot. So a copy
of a row copies this number instead of the keys and values, and all rows of a beam read one source. There are as many
slots as rows, so a new sentence always finds a free slot. A slot is free if no row in use refers to it. The lowest free
slot is used first. So hardly more slots get memory than the maximum number of sentences that ran at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from app.errors import EngineFailure
from app.graphs import TensorSpec
from app.runtime import native
from app.runtime.interface import FREE_ROW_ID, Floats, Int32s, Int64s, Limits, StepInput, StepOutput
from app.runtime.kv_cache import paged_zeros
from app.runtime.prefill import prefill_step
from app.runtime.recurrent_state import STATE, RecurrentState
from app.runtime.session import Session, memory_failures
from app.runtime.shortlists import RunnerShortlists
from app.shortlist_file import ShortlistTable

# Number of leading cache rows whose memory has small pages. A server with few requests uses only these rows, so its
# caches take less memory. If larger, steps of many rows are slower. If smaller, the caches of few sentences take more
# memory.
NUM_SPARSE_ROWS = 16
# The other rows get 2 MB pages if a cache column has at least this many bytes. With small pages, a step of 128 rows of
# the base size takes 6 % longer. A step of a smaller model takes the same time with either page size.
MIN_DENSE_BYTES = 1024
NO_SLOT = -1
# The maximum number of candidates that a step can return for a row, one less than native/candidates.h ranks. It must be
# at least MAX_ALTERNATIVES, and at least MAX_BEAM_SIZE + 1, which the widest beam needs.
MAX_CANDIDATES = 63
# The maximum number of decoder steps in one call. If smaller, a sentence takes more calls. If larger, the result arrays
# are larger.
MAX_STEPS = 64


class _Shape(NamedTuple):
    """The shape of a call's candidates. num_steps: how many steps the arrays have room for."""

    num_candidates: int
    num_steps: int


class _Candidates(NamedTuple):
    """Result arrays for calls of one shape: OrtValues by output name, and views of all rows as in `StepOutput`."""

    values: dict[str, Any]
    log_probabilities: Floats
    ids: Int64s


class NativeRunner:
    """One model on the CPU. Called from one thread only.

    cache_bytes: size of the self-attention and cross-attention caches, allocated page by page as rows are first used. A
    decoder of SSRUs has a recurrent state instead of the self-attention cache.
    """

    def __init__(
        self,
        encoder: Session,
        decoder: Session,
        *,
        limits: Limits,
        shortlists: Sequence[ShortlistTable] = (),
    ) -> None:
        """Make the caches of two loaded graphs, with `limits.num_rows` rows. shortlists: the tables for `restrict`."""
        self._encoder = encoder
        self._decoder = decoder
        max_steps = min(MAX_STEPS, limits.max_target_length)
        self._limits = limits = replace(
            limits,
            max_steps=max_steps,
            advances_beams=True,
            skips_free_rows=True,
            num_shortlists=len(shortlists),
        )
        self._shortlists = RunnerShortlists(shortlists, limits.num_rows) if shortlists else None
        spec = next(spec for spec in encoder.spec.inputs if spec.name == "cross_cache")
        self._cross_cache = _paged_cache(spec, limits.num_rows)
        capacity = self._cross_cache.shape[2]
        has_state = decoder.spec.has_input(STATE)
        self._state = RecurrentState(decoder.spec, limits.num_rows) if has_state else None
        # If there is a recurrent state instead, the self-attention cache has no rows.
        self._self_cache = _paged_cache(spec, 0 if has_state else limits.num_rows)
        self._encoder_binding = encoder.binding()
        self._encoder_binding.bind_ortvalue_input("cross_cache", _value(self._cross_cache))
        self.cache_bytes = self._self_cache.nbytes + self._cross_cache.nbytes
        self.cache_bytes += self._state.num_bytes if self._state else 0
        num_rows = limits.num_rows
        self._ids, self._positions = np.full(num_rows, FREE_ROW_ID, np.int32), np.zeros(num_rows, np.int32)
        self._slots = np.full(num_rows, NO_SLOT, np.int32)
        self._end = 0  # no row from this one on is in use
        self._num_last_rows = 0  # rows of the last step; the ids of the rows after them are FREE_ROW_ID
        self._source_lengths = np.ones(num_rows, np.int32)
        self._sentence_lengths, self._sentence_slots = (
            np.zeros(num_rows, np.int32),
            np.zeros(num_rows, np.int32),
        )
        self._written = np.zeros(num_rows, np.int32)
        self._num_bound_sentences = 0
        self._sentence_values: dict[
            int, list[Any]
        ] = {}  # lengths, slots and written, by the number of sentences
        self._num_steps, self._num_candidates = np.ones(1, np.int64), np.ones(1, np.int64)
        self._wants_distributions = np.zeros(1, np.int64)
        self._distributions = np.zeros((num_rows, limits.vocab_size), np.float32)
        self._alignment = np.zeros((num_rows, capacity), np.float32)
        self._source_positions = np.arange(limits.max_source_length, dtype=np.int32)
        num_candidates = num_rows * max(min(MAX_CANDIDATES, limits.vocab_size), limits.max_steps)
        self._top_log_probabilities = np.zeros(num_candidates, np.float32)
        self._top_ids = np.zeros(num_candidates, np.int64)
        self._candidates: dict[_Shape, _Candidates] = {}
        self._decode_args = native.DecodeArgs(num_rows)
        self._binding = decoder.binding()
        self._bind_all_rows()
        self._bound_shape, self._bound = self._bind_candidates(_Shape(1, 1))

    @property
    def limits(self) -> Limits:
        """What this runner can hold."""
        return self._limits

    @memory_failures()
    def encode(self, sources: Sequence[Int32s], rows: Sequence[int]) -> None:
        """As `Runner.encode`. Encodes all sentences in one call, concatenated without padding."""
        count, lengths = len(sources), [len(source) for source in sources]
        slots = self._free_slots(rows)
        self._sentence_lengths[:count], self._sentence_slots[:count] = lengths, slots
        tokens = {  # kept until the run is over
            "ids": np.concatenate(sources, dtype=np.int32),
            "positions": np.concatenate([self._source_positions[:length] for length in lengths]),
        }
        for name, values in tokens.items():
            self._encoder_binding.bind_ortvalue_input(name, _value(values))
        self._bind_sentences(count)
        self._encoder.run(self._encoder_binding)
        if self._shortlists is not None:
            self._shortlists.clear(slots)
        self._slots[rows] = slots
        self._end = max(self._end, max(rows, default=-1) + 1)
        self._source_lengths[rows] = lengths
        if rows and self._limits.prefill_id is not None:
            self.decode(prefill_step(rows, self._end, self._limits))

    @memory_failures()
    def restrict(self, rows: Sequence[int], sources: Sequence[Int32s], tables: Sequence[int | None]) -> None:
        """As `RestrictingRunner.restrict`. The shortlist belongs to the row's slot, so to all rows of a beam."""
        if self._shortlists is not None:
            self._shortlists.set(self._slots[rows], sources, tables)

    def _free_slots(self, rows: Sequence[int]) -> Int64s:
        """A free slot for each of `rows`. Frees the rows' own slots first, so there are always enough."""
        self._slots[rows] = NO_SLOT
        is_free = np.ones(len(self._slots) + 1, bool)
        is_free[self._slots[: self._end]] = is_free[NO_SLOT] = False
        return is_free.nonzero()[0][: len(rows)]

    def decode(self, step: StepInput) -> StepOutput:
        """As `Runner.decode`. The next call overwrites the arrays.

        NaN and infinite scores are returned unchanged. The engine fails the sentences of such rows.
        """
        num_rows = len(step.ids)
        self._ids[:num_rows] = step.ids
        if num_rows < self._num_last_rows:
            self._ids[num_rows : self._num_last_rows] = FREE_ROW_ID
        self._end = self._num_last_rows = num_rows
        np.add(step.positions, self._limits.num_prefilled, out=self._positions[:num_rows])
        # The arrays have room for 1 step or for max_steps, because binding another shape takes time.
        is_single = step.num_steps == 1 or bool(step.beams)
        self._num_steps[0] = num_steps = 1 if is_single else self._limits.max_steps
        self._num_candidates[0] = step.num_candidates
        self._wants_distributions[0] = step.wants_distributions
        if (step.num_candidates, num_steps) != self._bound_shape:
            self._bound_shape, self._bound = self._bind_candidates(_Shape(step.num_candidates, num_steps))
        candidates = self._bound
        steps_done, outcomes = self._run(step)
        written = slice(num_rows) if is_single else (slice(steps_done), slice(num_rows))
        return StepOutput(
            candidates.log_probabilities[written],
            candidates.ids[written],
            self._distributions[:num_rows] if step.wants_distributions else None,
            self._alignment[:num_rows],
            steps_done,
            outcomes,
        )

    def _run(self, step: StepInput) -> tuple[int, list[int]]:
        """Run the bound decoder. Returns `num_steps` and `outcomes` of `StepOutput`."""
        first_position = self._limits.num_prefilled
        shortlists = None if self._shortlists is None else self._shortlists.address
        if step.num_steps == 1 and not step.beams and not first_position and shortlists is None:
            self._decoder.run(self._binding)
            return 1, []
        addresses = [beam.address for beam in step.beams]
        self._decode_args.set_args(
            addresses, step.num_steps, step.stop, first_position=first_position, shortlists=shortlists
        )
        try:
            self._decoder.run(self._binding)
        except EngineFailure:
            self._decode_args.clear_args()
            raise
        return self._decode_args.read_outcome(len(step.beams))

    def share_cores(self, num_sharing: int) -> None:
        """As `Runner.share_cores`."""
        native.share_threads(num_sharing)

    @memory_failures()
    def copy_rows(self, sources: Int32s, targets: Int32s, lengths: Int32s) -> None:
        """As `Runner.copy_rows`."""
        num_prefilled = self._limits.num_prefilled
        if num_prefilled or lengths.any():
            self._copy_columns(sources, targets, np.zeros_like(lengths), lengths + num_prefilled)
        self._slots[targets] = self._slots[sources]
        self._end = max(self._end, int(targets.max(initial=-1)) + 1)
        self._source_lengths[targets] = self._source_lengths[sources]

    @memory_failures()
    def reorder(self, sources: Int32s, targets: Int32s, lengths: Int32s, shared: Int32s) -> None:
        """As `Runner.reorder`."""
        num_prefilled = self._limits.num_prefilled
        self._copy_columns(sources, targets, shared + num_prefilled, lengths + num_prefilled)

    def _copy_columns(self, sources: Int32s, targets: Int32s, first: Int32s, end: Int32s) -> None:
        """Copy each source row's self-attention columns first..end-1 to its target row; of SSRUs, the whole state."""
        if self._state is not None:
            self._state.copy(sources, targets)
            return
        moves = np.array((sources, targets, first, end), np.int64)
        moves[2:] *= self._self_cache.strides[2]
        native.copy_rows(self._self_cache, moves)

    def _bind_sentences(self, count: int) -> None:
        """Bind the encoder's lengths, slots and `written`, each (count,), for an encoding of `count` sentences."""
        if count == self._num_bound_sentences:
            return
        values = self._sentence_values.get(count)
        if values is None:
            views = self._sentence_lengths[:count], self._sentence_slots[:count], self._written[:count]
            values = self._sentence_values[count] = [_value(view) for view in views]
        lengths, slots, written = values
        self._encoder_binding.bind_ortvalue_input("lengths", lengths)
        self._encoder_binding.bind_ortvalue_input("slots", slots)
        self._encoder_binding.bind_ortvalue_output("written", written)
        self._num_bound_sentences = count

    def _bind_all_rows(self) -> None:
        """Bind the decoder's fixed inputs and outputs, for all rows. The operator skips rows with id FREE_ROW_ID."""
        inputs: dict[str, NDArray[Any]] = {
            "ids": self._ids,
            "positions": self._positions,
            "slots": self._slots,
            "source_lengths": self._source_lengths,
            "num_steps": self._num_steps,
            "num_candidates": self._num_candidates,
            "wants_log_probabilities": self._wants_distributions,
            "cross_cache": self._cross_cache,
        }
        if self._state is None:
            inputs["self_cache"] = self._self_cache
        else:
            self._state.bind_input(self._binding, self._limits.num_rows)
        for name, values in inputs.items():
            self._binding.bind_ortvalue_input(name, _value(values))
        self._binding.bind_ortvalue_output("log_probabilities", _value(self._distributions))
        self._binding.bind_ortvalue_output("alignment", _value(self._alignment))

    def _bind_candidates(self, shape: _Shape) -> tuple[_Shape, _Candidates]:
        """Bind result arrays of this shape to the decoder. Returns the shape and the arrays."""
        candidates = self._candidates.get(shape)
        if candidates is None:
            candidates = self._candidates[shape] = self._make_candidates(shape)
        for name, value in candidates.values.items():
            self._binding.bind_ortvalue_output(name, value)
        return shape, candidates

    def _make_candidates(self, shape: _Shape) -> _Candidates:
        axes = shape.num_steps, self._limits.num_rows, shape.num_candidates
        log_probabilities, ids = _first(self._top_log_probabilities, *axes), _first(self._top_ids, *axes)
        values = {"top_log_probabilities": _value(log_probabilities), "top_ids": _value(ids)}
        if shape.num_steps == 1:
            return _Candidates(values, log_probabilities[0], ids[0])
        return _Candidates(values, log_probabilities[:, :, 0], ids[:, :, 0])


def _paged_cache(spec: TensorSpec, num_rows: int) -> NDArray[Any]:
    """Zeros (planes, num_rows, capacity, width) for either cache. spec: the encoder's input `cross_cache`.

    A column holds all heads side by side, so that a row's columns are one block.
    """
    num_planes, _, capacity, width = (axis if isinstance(axis, int) else 0 for axis in spec.axes)
    is_dense = width * np.dtype(spec.dtype).itemsize >= MIN_DENSE_BYTES
    num_sparse = NUM_SPARSE_ROWS if is_dense else num_rows
    return paged_zeros((num_planes, num_rows, capacity, width), spec.dtype, num_sparse)


def _first(values: NDArray[Any], *shape: int) -> NDArray[Any]:
    """The first elements of `values` (n,) as an array of this shape, without a copy."""
    return values[: math.prod(shape)].reshape(shape)


def _value(array: NDArray[Any]) -> Any:
    """An OrtValue that shares the array's memory."""
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)
