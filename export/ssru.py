"""The SSRUs of a decoder step as graph nodes, and the state of all layers (`model.ssru`)."""

from __future__ import annotations

import numpy as np

from export.graph import GraphBuilder
from export.weights import Ssru
from model.config import ModelConfig

# Name of the decoder's input with every layer's recurrent state, c of `model.ssru`, in standard and native graphs.
STATE = "self_state"


class RecurrentStates:
    """The SSRUs of one step, in the order of the layers. The state is fp32 in every precision."""

    def __init__(self, g: GraphBuilder, config: ModelConfig) -> None:
        """Read `self_state` (rows, num_decoder_layers, d_model), with zeros in the rows at position 0.

        The zeros replace the state by selection, not by a product, because the state of a row's former sentence may be
        NaN.
        """
        self._g = g
        self._axes = config.num_decoder_layers, config.d_model
        is_first = g.reshape(g.op("Equal", "positions", g.constant(np.array([0], np.int32))), -1, 1)
        state = g.reshape(STATE, -1, config.num_decoder_layers * config.d_model)
        begun = g.op("Where", is_first, g.constant(np.array([0], np.float32)), state)
        self._before = tuple(g.fresh(f"before_{layer}") for layer in range(config.num_decoder_layers))
        g.op("Split", begun, axis=-1, num_outputs=config.num_decoder_layers, outputs=self._before)
        self._after: list[str] = []

    def ssru(self, x: str, ssru: Ssru) -> str:
        """o_t of the next layer: x (rows, d_model) to the same shape."""
        g = self._g
        z, f = g.fresh("z"), g.fresh("f")
        g.op("Split", g.linear(x, ssru.z_and_f), axis=-1, num_outputs=2, outputs=(z, f))
        before = self._before[len(self._after)]
        # f c + (1 - f) z = z + f (c - z)
        c = g.op("Add", z, g.op("Mul", g.op("Sigmoid", f), g.op("Sub", before, z)))
        self._after.append(c)
        return g.op("Relu", c)

    def end(self) -> None:
        """Write the state after the step to `present_self_state`."""
        g = self._g
        state = g.op("Concat", *self._after, axis=-1)
        g.op("Reshape", state, g.integers(-1, *self._axes), outputs=(f"present_{STATE}",))
