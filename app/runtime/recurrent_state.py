"""The state of a decoder of SSRUs (`model.ssru`), which a row keeps between steps instead of self-attention columns.

A decoder graph sets the state of a row at position 0 to zeros, so a new sentence needs no call to clear it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime

from app.graphs import GraphSpec
from app.runtime.interface import Int32s

# Name of the decoder graphs' input.
STATE = "self_state"


class RecurrentState:
    """The state of all rows, (num_rows, num_layers, d_model) float32, in host memory."""

    def __init__(self, decoder: GraphSpec, num_rows: int) -> None:
        """Allocate zeros. decoder: a graph with the input `self_state`."""
        _, *axes = next(spec.axes for spec in decoder.inputs if spec.name == STATE)
        self._values = np.zeros((num_rows, *(int(size) for size in axes)), np.float32)

    @property
    def num_bytes(self) -> int:
        """Size of the whole state."""
        return self._values.nbytes

    def bind_input(self, binding: Any, num_rows: int) -> None:
        """Bind rows 0..num_rows-1 as the input, without a copy. The native operator also writes to them."""
        binding.bind_ortvalue_input(STATE, self._view(num_rows))

    def bind_output(self, binding: Any, num_rows: int) -> None:
        """Bind rows 0..num_rows-1 as the output `present_self_state`."""
        binding.bind_ortvalue_output(f"present_{STATE}", self._view(num_rows))

    def _view(self, num_rows: int) -> Any:
        return onnxruntime.OrtValue.ortvalue_from_numpy(self._values[:num_rows])

    def copy(self, sources: Int32s, targets: Int32s) -> None:
        """Copy whole source rows to target rows, as if all at once."""
        self._values[targets] = self._values[sources]
