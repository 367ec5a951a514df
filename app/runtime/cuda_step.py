"""The memory of decoder steps on a GPU: inputs and results, at addresses that never change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.runtime.cuda_memory import Cuda, aligned
from app.runtime.interface import Int32s, StepInput

# The decoder's inputs for each row, and has_ended, which only the kernels between two steps read.
INPUTS = ("ids", "positions", "last_source_positions", "has_ended")


class StepShape(NamedTuple):
    """The shape that all steps of one binding share. extra: names of the requested optional outputs."""

    num_rows: int
    num_candidates: int
    extra: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    """One output of a step: its address on the device, and the host memory that it is copied to.

    values: a view of `memory`, (num_rows, columns).
    """

    address: int
    memory: NDArray[np.uint8]
    values: NDArray[Any]


@dataclass(frozen=True)
class BoundStep:
    """The bound inputs and outputs of steps of one shape, at fixed addresses."""

    shape: StepShape
    binding: Any
    run_options: Any
    results: dict[str, Result]


class StepInputs:
    """The inputs of steps of any shape. They share one allocation, which is copied to the GPU once for each call.

    addresses: on the device, by the names of INPUTS, each aligned.
    """

    def __init__(self, cuda: Cuda, num_rows: int) -> None:
        """Allocate memory for num_rows rows. Raises EngineFailure."""
        stride = aligned(4 * num_rows)
        self._cuda = cuda
        self._memory = cuda.allocate_host(len(INPUTS) * stride)
        self._values = self._memory.view(np.int32).reshape(len(INPUTS), -1)
        start = cuda.allocate(len(INPUTS) * stride)
        self.addresses = {name: start + index * stride for index, name in enumerate(INPUTS)}

    def enqueue(self, step: StepInput, last_source_positions: Int32s, *, first: int, num_padded: int) -> None:
        """Enqueue the copy of a call's inputs. The copy must be complete before the next one is enqueued.

        first: the cache column of position 0. num_padded: the number of rows, including rows of padding. A
        row of padding has ended, is at column 0, and has a source of one column.
        """
        num_rows = len(step.ids)
        ids, positions, last_positions, has_ended = self._values
        ids[:num_rows] = step.ids
        positions[:num_rows] = step.positions + first
        last_positions[:num_rows] = last_source_positions[:num_rows]
        self._values[:, num_rows:num_padded] = 0
        has_ended[:num_rows], has_ended[num_rows:num_padded] = 0, 1
        self._cuda.copy_in(self.addresses["ids"], self._memory, len(self._memory))
