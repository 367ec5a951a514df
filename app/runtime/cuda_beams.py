"""Advances beams on a GPU between the steps of one call. `app/decoding/beam.py` defines the rules.

After each step of the decoder, the kernel `advance_beams` (`cuda/beams.cu`) takes the same steps of `SharedBeam`s as
`native/beams.cpp` does on a CPU, and `copy_rows` makes the copies that their rows need. The host waits once and then
applies all steps to the beams.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.runtime.beams import BeamOutcome, EndedHypothesis, SharedBeam
from app.runtime.cuda_kernels import Kernels
from app.runtime.cuda_memory import Cuda
from app.runtime.cuda_pacing import Pacing
from app.runtime.cuda_pool import CudaPool
from app.runtime.cuda_step import BoundStep, StepInputs
from app.runtime.interface import Floats, Limits, StepInput

# Threads of a block; one block advances one beam. A beam of 4 has 20 continuations in a step, one of 16 has 272.
NUM_THREADS = 128
MAX_BEAM_SIZE = 16
ANY_ID = -1  # stands for any start token
CONTINUES, DONE, UNDECIDED = map(int, BeamOutcome)
# `DeviceBeam` and `BeamEntry` in cuda/beams.cu.
DEVICE_BEAM = np.dtype([
    *((name, np.int32) for name in ("beam_size", "end_id", "max_length", "length", "max_complete", "num_complete")),
    *((name, np.int32) for name in ("first_entry", "outcome")),
    *((name, np.int32, MAX_BEAM_SIZE) for name in ("rows", "tokens")),
    ("sums", np.float64, MAX_BEAM_SIZE),
])  # fmt: skip
BEAM_ENTRY = np.dtype([
    *((name, np.float64) for name in ("sum", "ended_sum")),
    *((name, np.int32) for name in ("token", "parent", "row", "ended_parent", "outcome", "unused")),
])  # fmt: skip


class BeamSteps:
    """Calls that advance beams."""

    def __init__(
        self, cuda: Cuda, kernels: Kernels, inputs: StepInputs, pool: CudaPool, *, limits: Limits
    ) -> None:
        """Allocate the memory of `limits.max_steps` steps of all rows. Raises EngineFailure.

        pool: the self-attention cache.
        """
        self._cuda, self._kernels, self._inputs, self._pool, self._limits = (
            cuda,
            kernels,
            inputs,
            pool,
            limits,
        )
        self._pacing = Pacing(cuda, limits.num_rows)
        num_bytes = limits.max_steps * limits.num_rows * BEAM_ENTRY.itemsize
        self._entries, self._memory = cuda.allocate(num_bytes), cuda.allocate_host(num_bytes)
        self._moves = cuda.allocate(3 * 4 * limits.num_rows)

    def enqueue(self, step: StepInput, bound: BoundStep, run_decoder: Callable[[], None]) -> int:
        """Enqueue the steps of a call whose inputs are enqueued. Returns how many. Raises EngineFailure.

        bound: the call's shape. run_decoder: enqueues one step of the decoder. Call `apply` after the next wait.
        """
        limits, num_entries = self._limits, sum(beam.beam_size for beam in step.beams)
        (beams,) = self._cuda.upload(device_beams(step.beams).view(np.uint8))
        inputs, results = self._inputs.addresses, bound.results
        pointers = (
            *(results["top_ids"].address, results["top_log_probabilities"].address),
            *(inputs["ids"], inputs["positions"], beams, self._entries, self._moves),
            *(self._pacing.ended_at.ctypes.data, self._pacing.must_end.ctypes.data),
        )
        start_id = limits.bos_id if limits.prefill_id is None else ANY_ID
        numbers = num_entries, bound.shape.num_candidates, limits.num_prefilled, start_id
        number = ctypes.c_int(0)
        advance = self._kernels.launch(
            "advance_beams",
            (len(step.beams), 1, 1),
            NUM_THREADS,
            *map(ctypes.c_void_p, pointers),
            *(*map(ctypes.c_int, numbers), number),
        )
        copy = self._pool.copies_on_device(self._moves, num_entries)
        # Attention is copied to the host after a call, so it is that of one step.
        max_steps = 1 if step.wants_alignment else step.num_steps
        num_steps = 0
        for num_taken in self._pacing.steps(len(step.beams), max_steps, step.stop):
            number.value = num_taken
            run_decoder()
            advance.enqueue()
            copy.enqueue()
            num_steps = num_taken + 1
        self._cuda.copy_out(self._memory, self._entries, num_steps * num_entries * BEAM_ENTRY.itemsize)
        return num_steps

    def apply(self, beams: Sequence[SharedBeam], num_steps: int, attention: Floats | None) -> list[int]:
        """Apply the steps of the last call to its beams. Returns the outcome of each beam.

        attention: (rows, capacity) of the call's only step, if it was requested.
        """
        num_entries = sum(beam.beam_size for beam in beams)
        num_bytes = num_steps * num_entries * BEAM_ENTRY.itemsize
        entries = self._memory[:num_bytes].view(BEAM_ENTRY).reshape(num_steps, num_entries)
        # Contiguous arrays are cut faster than fields.
        fields = {name: entries[name].copy() for name in BEAM_ENTRY.names or ()}
        outcomes, first = [], 0
        for beam in beams:
            own = slice(first, first + beam.beam_size)
            first = own.stop
            if attention is not None and fields["outcome"][0, own.start] != UNDECIDED:
                beam.record_attention(attention)
            outcomes.append(_apply(beam, {name: values[:, own] for name, values in fields.items()}))
        return outcomes


def _apply(beam: SharedBeam, fields: dict[str, NDArray[Any]]) -> int:
    """Apply the steps of one beam. Returns its outcome. fields: those of its entries, (steps, beam_size)."""
    step_outcomes: list[int] = fields["outcome"][:, 0].tolist()
    num_taken = step_outcomes.count(CONTINUES)
    outcome = step_outcomes[-1]
    num_scored = num_taken + (outcome == DONE)
    parents = fields["ended_parent"][:num_scored]
    ended = [
        EndedHypothesis(
            float(fields["ended_sum"][step, place]), beam.length + step, int(parents[step, place])
        )
        for step, place in np.argwhere(parents >= 0).tolist()
    ]
    taken = {name: values[:num_taken] for name, values in fields.items()}
    beam.append(taken["token"], taken["parent"], taken["sum"], ended=ended)
    if num_taken:
        beam.rows = taken["row"][-1].tolist()
    return outcome


def device_beams(beams: Sequence[SharedBeam]) -> NDArray[Any]:
    """The state of beams for the kernel, (beams,)."""
    found = np.zeros(len(beams), DEVICE_BEAM)
    first = 0
    for one, beam in zip(found, beams, strict=True):
        size = beam.beam_size
        tokens, sums = beam.last_step()
        for name, value in beam.header().items():
            one[name] = value
        one["beam_size"], one["first_entry"], one["outcome"] = size, first, CONTINUES
        one["rows"][:size], one["tokens"][: len(tokens)], one["sums"][: len(sums)] = beam.rows, tokens, sums
        first += size
    return found


def with_beam_inputs(step: StepInput) -> StepInput:
    """The step with the ids and positions of its beams' next steps."""
    ids, positions = step.ids.copy(), step.positions.copy()
    for beam in step.beams:
        tokens, _ = beam.last_step()
        # Before the first step all rows hold the source, and have the start token.
        ids[beam.rows], positions[beam.rows] = tokens if beam.length else tokens[0], beam.length
    return replace(step, ids=ids, positions=positions)
