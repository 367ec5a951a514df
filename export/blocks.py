"""The paper's blocks as graph nodes, one function each. Activations are (rows, d_model) everywhere.

A row is one position of one sentence; only attention knows which rows belong together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from export.graph import GraphBuilder
from export.weights import FeedForward, Floats, Norm, Stack, Weights
from model.config import Activation


@dataclass(frozen=True)
class Flow:
    """Between two sub-layers: `residual` is what is added to, `given` what the next sub-layer is given.

    Post-norm (section 3.1): both are the last norm's output. Pre-norm: given = LayerNorm(residual).
    """

    residual: str
    given: str


class Residuals:
    """The norms of a stack, in the order in which sub-layers end.

    A pre-norm stack's first norm stands before its first sub-layer and its final one after the last, so
    that there too each sub-layer's end is one sum with one norm.
    """

    def __init__(self, g: GraphBuilder, stack: Stack) -> None:
        norms = [norm for layer in stack.layers for norm in layer.norms]
        self._g = g
        self._is_pre_norm = stack.final_norm is not None
        if stack.final_norm is not None:
            norms.append(stack.final_norm)
        self._norms: Iterator[Norm] = iter(norms)

    def begin(self, x: str) -> Flow:
        """The stack's input."""
        return Flow(x, self._g.layer_norm(x, next(self._norms)) if self._is_pre_norm else x)

    def end(self, flow: Flow, sublayer: str, bias: Floats) -> Flow:
        """A sub-layer's output, its last product's bias not yet added, joins the residual."""
        normalised, total = self._g.add_and_norm(flow.residual, sublayer, bias, next(self._norms))
        return Flow(total if self._is_pre_norm else normalised, normalised)


def embed(g: GraphBuilder, weights: Weights, *, ids: str, positions: str) -> str:
    """Embedding times sqrt(d_model) (section 3.4) plus position (3.5), of ids and positions (rows,)."""
    scaled = weights.embedding * np.float32(weights.config.d_model**0.5)
    position = g.op("Gather", g.floats(weights.positions), positions)
    return g.op("Add", g.table(scaled, ids), position)


def project(g: GraphBuilder, weights: Weights, x: str) -> str:
    """Logits (rows, vocab_size) in fp32: the embedding is the output's weight too (section 3.4)."""
    if g.precision == "int8":
        return g.product(x, weights.embedding.T)
    scale = weights.config.d_model**0.5
    table = g.floats(weights.embedding * np.float32(scale))
    logits = g.op("Gemm", x, table, transB=1, alpha=1 / scale)
    return g.op("Cast", logits, to=TensorProto.FLOAT) if g.precision == "fp16" else logits


def feed_forward(g: GraphBuilder, x: str, weights: FeedForward, activation: Activation) -> str:
    """Equation (2) without the outer bias: (rows, d_model)."""
    hidden = g.linear(x, weights.inner)
    if activation == "gelu":
        hidden = g.op("Gelu", hidden)
    elif activation == "silu":
        hidden = g.op("Mul", hidden, g.op("Sigmoid", hidden))
    return g.product(hidden, weights.outer.weight, is_rectified=activation == "relu")
