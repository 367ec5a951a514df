"""The paper's blocks as graph nodes, with one function for each block. Activations are (..., d_model) everywhere.

A row, along the last axis, is one position of one sentence. Only attention combines rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onnx import TensorProto

from export.graph import GraphBuilder
from export.weights import FeedForward, Floats, Norm, Stack, Weights
from model.config import Activation

# The maximum number of candidates of a row in a decoder graph's outputs. It must be at least MAX_BEAM_SIZE + 2 and
# MAX_ALTERNATIVES + 1. A beam needs one candidate more than its width. A first step needs another one, because it drops
# the end token (app/runtime/first_subword.py).
MAX_CANDIDATES = 64


@dataclass(frozen=True)
class BlockInput:
    """The tensors between two sub-layers.

    hidden: the input of the next sub-layer. residual: the tensor to which the next sub-layer's output is added. In
    post-norm (section 3.1) both are the last norm's output. In pre-norm hidden = LayerNorm(residual).
    """

    residual: str
    hidden: str


class Residuals:
    """The residual sums and norms of a stack, in the order in which sub-layers end.

    A pre-norm stack has its first norm before the first sub-layer and a final one after the last. So, as in post-norm,
    each sub-layer ends with one sum and one norm.
    """

    def __init__(self, g: GraphBuilder, stack: Stack) -> None:
        norms = [norm for layer in stack.layers for norm in layer.norms]
        self._g = g
        self._is_pre_norm = stack.final_norm is not None
        if stack.final_norm is not None:
            norms.append(stack.final_norm)
        self._norms: Iterator[Norm] = iter(norms)

    def begin(self, x: str) -> BlockInput:
        """The input of the first sub-layer. x: the stack's input."""
        return BlockInput(x, self._g.layer_norm(x, next(self._norms)) if self._is_pre_norm else x)

    def end(self, state: BlockInput, sublayer: str, bias: Floats | None = None) -> BlockInput:
        """Add a sub-layer's output to the residual and normalise. bias: of its last product, if `sublayer` lacks it."""
        normalised, total = self._g.add_and_norm(state.residual, sublayer, bias, next(self._norms))
        return BlockInput(total if self._is_pre_norm else normalised, normalised)


def embed(g: GraphBuilder, weights: Weights, table: Floats, *, ids: str, positions: str) -> str:
    """Embedding times sqrt(d_model) (section 3.4) plus position (3.5): ids (...) to (..., d_model).

    positions: broadcast to the shape of ids. table: the embedding of the source or of the target.
    """
    position = g.op("Gather", g.floats(weights.positions), positions)
    return g.op("Add", g.table(table, ids, factor=weights.config.d_model**0.5), position)


def project(g: GraphBuilder, weights: Weights, x: str) -> str:
    """Logits (rows, vocab_size) in fp32. In most models the embedding is also the output's weight (section 3.4)."""
    logits = _logits_without_bias(g, weights, x)
    return logits if weights.output_bias is None else g.op("Add", logits, g.constant(weights.output_bias))


def _logits_without_bias(g: GraphBuilder, weights: Weights, x: str) -> str:
    """`project` without the output bias. The table is scaled as in `embed`, so that both use one stored constant."""
    if g.precision == "int8":
        return g.product(x, weights.output_table.T)
    scale = weights.config.d_model**0.5
    table = g.scaled(weights.output_table, scale)
    logits = g.op("Gemm", x, table, transB=1, alpha=1 / scale)
    return g.op("Cast", logits, to=TensorProto.FLOAT) if g.precision == "fp16" else logits


def top_candidates(g: GraphBuilder, scores: str, *, vocab_size: int, outputs: tuple[str, str]) -> None:
    """The `num_candidates` largest of scores (rows, vocab_size): values and ids (rows, candidates), descending.

    TopK compares one element at a time. On a CPU, if `chunk_length` finds a length, TopK gets only the chunks with the
    largest maxima, which contain every candidate. Vector instructions find the maxima.
    """
    values, ids = outputs
    chunk = chunk_length(vocab_size)
    if g.precision == "fp16" or chunk is None:
        g.op("TopK", scores, "num_candidates", axis=-1, outputs=outputs)
        return
    size = g.scalar(chunk)
    chunks = g.reshape(scores, 0, -1, chunk)
    maxima = g.op("ReduceMax", chunks, g.integers(-1), keepdims=0)
    best = g.fresh("best_chunks")  # (rows, candidates)
    g.op("TopK", maxima, "num_candidates", axis=-1, outputs=(g.fresh("maxima"), best))
    chosen = g.op("GatherND", chunks, g.op("Unsqueeze", best, g.integers(-1)), batch_dims=1)
    places = g.fresh("places")  # candidates' indices in the chosen chunks, concatenated
    g.op("TopK", g.reshape(chosen, 0, -1), "num_candidates", axis=-1, outputs=(values, places))
    ranks = g.op("Div", places, size)
    # id = chunk * size + (place - rank * size), where rank is the chunk's index among the chosen ones.
    moved = g.op("Mul", g.op("Sub", g.op("GatherElements", best, ranks, axis=-1), ranks), size)
    g.op("Add", moved, places, outputs=(ids,))


def chunk_length(vocab_size: int) -> int | None:
    """The length of a chunk of the vocabulary; None if no length is possible.

    Of the divisors of vocab_size from 40 to 160 that give at least MAX_CANDIDATES chunks, the one nearest to 80.
    """
    divisors = [n for n in range(40, 161) if vocab_size % n == 0 and vocab_size // n >= MAX_CANDIDATES]
    return min(divisors, key=lambda n: abs(n - 80), default=None)


def feed_forward(g: GraphBuilder, x: str, weights: FeedForward, activation: Activation) -> str:
    """Equation (2) without the outer bias: (..., d_model) to (..., d_model)."""
    hidden = g.linear(x, weights.inner)
    if activation == "gelu":
        hidden = g.op("Gelu", hidden)
    elif activation == "silu":
        hidden = g.op("Mul", hidden, g.op("Sigmoid", hidden))
    return g.product(hidden, weights.outer.weight, is_rectified=activation == "relu")
