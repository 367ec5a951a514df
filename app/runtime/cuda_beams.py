"""Advances beams on a GPU between the steps of one call. `app/decoding/beam.py` defines the rules.

After each step of the decoder, the kernel `advance_beams` (`cuda/beams.cu`) advances the beams as `native/beams.cpp`
does on a CPU, and `copy_rows` makes the copies that their rows need. The host applies all steps to the `SharedBeam`s at
the end of the call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from app.runtime.beams import BEAM_SIZE, LENGTH, START_ID, BeamOutcome, EndedHypothesis, SharedBeam
from app.runtime.cuda_greedy import ANY_ID
from app.runtime.cuda_kernels import Kernels
from app.runtime.cuda_memory import Cuda
from app.runtime.cuda_pacing import Pacing
from app.runtime.cuda_pool import CudaPool
from app.runtime.cuda_step import BoundStep, StepInputs
from app.runtime.interface import Floats, Limits, StepInput

# Threads of a block; one block advances one beam. A beam of 4 has 20 continuations in a step, one of 16 has 272.
NUM_THREADS = 128
MAX_BEAM_SIZE = 16
CONTINUES, DONE, UNDECIDED = map(int, BeamOutcome)
# `DeviceBeam` and `BeamEntry` in cuda/beams.cu.
DEVICE_BEAM = np.dtype([
    ("header", np.int32, START_ID),  # the numbers of a SharedBeam's header before START_ID
    *((name, np.int32) for name in ("first_entry", "outcome")),
    *((name, np.int32, MAX_BEAM_SIZE) for name in ("rows", "tokens")),
    ("sums", np.float64, MAX_BEAM_SIZE),
])  # fmt: skip
BEAM_ENTRY = np.dtype([
    *((name, np.float64) for name in ("sum", "ended_sum")),
    *((name, np.int32) for name in ("token", "parent", "row", "ended_parent", "outcome", "unused")),
])  # fmt: skip
BeamStates = NDArray[np.void]  # (beams,) of DEVICE_BEAM


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

    def enqueue(
        self, step: StepInput, states: BeamStates, bound: BoundStep, run_decoder: Callable[[], None]
    ) -> int:
        """Enqueue the steps of a call whose inputs are enqueued. Returns how many. Raises EngineFailure.

        states: the states of the step's beams. bound: the binding of the call's shape. run_decoder: enqueues one step
        of the decoder. Call `apply` after the next wait.
        """
        limits, num_entries = self._limits, sum(beam.beam_size for beam in step.beams)
        (beams,) = self._cuda.upload(states.view(np.uint8))
        inputs, results = self._inputs.addresses, bound.results
        pointers = (
            *(results["top_ids"].address, results["top_log_probabilities"].address),
            *(inputs["ids"], inputs["positions"], beams, self._entries, self._moves),
            *(self._pacing.ended_at.ctypes.data, self._pacing.must_end.ctypes.data),
        )
        start_id = limits.bos_id if limits.prefill_id is None else ANY_ID
        numbers = num_entries, bound.shape.num_candidates, limits.num_prefilled, start_id
        step_number = ctypes.c_int(0)  # each launch reads its current value
        advance = self._kernels.launch(
            "advance_beams",
            (len(step.beams), 1, 1),
            NUM_THREADS,
            *map(ctypes.c_void_p, pointers),
            *(*map(ctypes.c_int, numbers), step_number),
        )
        copy = self._pool.copies_on_device(self._moves, num_entries)
        # Only the last step's attention is copied to the host, so a call that needs attention takes one step.
        max_steps = 1 if step.wants_alignment else step.num_steps
        num_steps = 0
        for num_taken in self._pacing.steps(len(step.beams), max_steps, step.stop):
            step_number.value = num_taken
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
        firsts = [0, *accumulate(beam.beam_size for beam in beams)]
        num_bytes = num_steps * firsts[-1] * BEAM_ENTRY.itemsize
        entries = self._memory[:num_bytes].view(BEAM_ENTRY).reshape(num_steps, firsts[-1])
        # A call may have a hundred beams, so numpy does for all at once what it can.
        tokens, parents, sums, rows = (entries[name].copy() for name in ("token", "parent", "sum", "row"))
        step_outcomes = entries["outcome"][:, firsts[:-1]]
        nums_taken = (step_outcomes == CONTINUES).sum(axis=0).tolist()
        outcomes: list[int] = step_outcomes[-1].tolist()
        all_ended = _ended(entries, firsts)
        for number, (beam, first, end) in enumerate(zip(beams, firsts, firsts[1:], strict=False)):
            num_taken, outcome = nums_taken[number], outcomes[number]
            if attention is not None and step_outcomes[0, number] != UNDECIDED:
                beam.record_attention(attention)
            num_scored = num_taken + (outcome == DONE)
            beam.append(
                tokens[:num_taken, first:end],
                parents[:num_taken, first:end],
                sums[:num_taken, first:end],
                rows=rows[num_taken - 1, first:end] if num_taken else None,
                ended=[
                    EndedHypothesis(total, beam.length + step, parent)
                    for step, total, parent in all_ended.get(number, ())
                    if step < num_scored
                ],
            )
        return outcomes


def _ended(entries: NDArray[np.void], firsts: Sequence[int]) -> dict[int, list[tuple[int, float, int]]]:
    """The hypotheses that ended, by the index of their beam: step, sum and parent, oldest first.

    entries: (steps, entries of all beams). firsts: the first entry of each beam.
    """
    found: dict[int, list[tuple[int, float, int]]] = {}
    steps, places = np.nonzero(entries["ended_parent"] >= 0)
    numbers = np.searchsorted(firsts, places, side="right") - 1
    ended = entries[steps, places]
    columns = numbers, steps, ended["ended_sum"], ended["ended_parent"]
    for number, step, total, parent in zip(*(column.tolist() for column in columns), strict=True):
        found.setdefault(number, []).append((step, total, parent))
    return found


def states_of(beams: Sequence[SharedBeam]) -> BeamStates:
    """The state of beams for the kernel, (beams,)."""
    states = np.zeros(len(beams), DEVICE_BEAM)
    header, rows, tokens, sums = (states[name] for name in ("header", "rows", "tokens", "sums"))
    for number, beam in enumerate(beams):
        beam.copy_state(header[number], rows[number], tokens[number], sums[number])
    states["first_entry"][1:] = np.cumsum(header[:-1, BEAM_SIZE])
    states["outcome"] = CONTINUES
    return states


def with_beam_inputs(step: StepInput, states: BeamStates) -> StepInput:
    """The step with the ids and positions of its beams' next steps. states: of some of the beams."""
    ids, positions = step.ids.copy(), step.positions.copy()
    # Before the first step all rows hold the source, and have the start token.
    sizes = states["header"][:, BEAM_SIZE]
    is_row = np.arange(MAX_BEAM_SIZE) < sizes[:, None]
    rows = states["rows"][is_row]
    ids[rows] = states["tokens"][is_row]
    positions[rows] = states["header"][:, LENGTH].repeat(sizes)
    return replace(step, ids=ids, positions=positions)
