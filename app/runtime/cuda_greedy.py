"""Takes several greedy steps in one call. The subwords that a step chooses stay on the GPU as the next step's input.

After each step of the decoder, the kernel `advance_greedy` (`cuda/greedy.cu`) chooses the next subwords and stores
them. The host reads the subwords of all steps at the end of the call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

from app.runtime.cuda_kernels import Kernels
from app.runtime.cuda_memory import Cuda
from app.runtime.cuda_pacing import Pacing
from app.runtime.cuda_step import BoundStep, StepInputs
from app.runtime.interface import Limits, StepInput, StepOutput

# Threads of a block. One thread advances one row.
NUM_THREADS = 128
# Stands for any start token, for a model whose sentences have start tokens of their own.
ANY_ID = -1
# The kernel's result of a row's step, `Chosen` in cuda/greedy.cu.
CHOSEN = np.dtype([("id", np.int32), ("score", np.float32)])


class GreedySteps:
    """Calls of several greedy steps."""

    def __init__(self, cuda: Cuda, kernels: Kernels, inputs: StepInputs, *, limits: Limits) -> None:
        """Allocate the memory of `limits.max_steps` steps of all rows. Raises EngineFailure."""
        self._cuda, self._kernels, self._inputs, self._limits = cuda, kernels, inputs, limits
        self._pacing = Pacing(cuda, limits.num_rows)
        num_bytes = limits.max_steps * limits.num_rows * CHOSEN.itemsize
        self._address, self._memory = cuda.allocate(num_bytes), cuda.allocate_host(num_bytes)

    def run(self, step: StepInput, bound: BoundStep, run_decoder: Callable[[], None]) -> StepOutput:
        """Take the steps of a call whose inputs are enqueued. Raises EngineFailure.

        bound: the binding of the call's shape. run_decoder: enqueues one step of the decoder.
        """
        shape, limits = bound.shape, self._limits
        inputs = self._inputs.addresses
        pointers = (
            *(bound.results["top_ids"].address, bound.results["top_log_probabilities"].address),
            *(inputs["ids"], inputs["positions"], inputs["has_ended"]),
            *(self._pacing.ended_at.ctypes.data, self._address),
        )
        start_id = limits.bos_id if limits.prefill_id is None else ANY_ID
        numbers = shape.num_rows, shape.num_candidates, limits.num_prefilled, start_id, limits.eos_id
        step_number = ctypes.c_int(0)  # each launch reads its current value
        advance = self._kernels.launch(
            "advance_greedy",
            (-(-shape.num_rows // NUM_THREADS), 1, 1),
            NUM_THREADS,
            *map(ctypes.c_void_p, pointers),
            *(*map(ctypes.c_int, numbers), step_number),
        )
        num_rows, num_steps = len(step.ids), 0  # shape.num_rows counts rows of padding, too
        for num_taken in self._pacing.steps(num_rows, step.num_steps, step.stop):
            step_number.value = num_taken
            run_decoder()
            advance.enqueue()
            num_steps = num_taken + 1
        num_bytes = num_steps * shape.num_rows * CHOSEN.itemsize
        self._cuda.copy_out(self._memory, self._address, num_bytes)
        self._cuda.wait()
        chosen = self._memory[:num_bytes].view(CHOSEN).reshape(num_steps, shape.num_rows)[:, :num_rows]
        return StepOutput(chosen["score"], chosen["id"].astype(np.int64), num_steps=num_steps)
