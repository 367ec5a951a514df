"""The optional output `alignment`: the attention from the next target subword to the source's subwords.

It is one decoder layer's cross-attention, averaged over some of its heads. The manifest names the layer and the heads.
The attention operators do not return their weights. Steps that need the weights compute them again from the same
queries and keys. In other steps the graph itself must skip the nodes that compute them, because ONNX Runtime runs every
node, whether or not its result is fetched. (`RunOptions.only_execute_path_to_fetches` has an effect only in builds for
training.)
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from app.graphs import TensorSpec
from export.graph import CONTRIB, GraphBuilder
from export.weights import Weights
from model.config import ModelConfig


def alignment_specs(config: ModelConfig) -> tuple[TensorSpec, TensorSpec]:
    """The input `num_aligned`, the number of rows to compute, and the output `alignment`."""
    return (
        TensorSpec(name="num_aligned", dtype="int64", axes=(1,)),
        TensorSpec(name="alignment", dtype="float32", axes=("aligned_rows", config.max_length)),
    )


def add_alignment(g: GraphBuilder, q: str, weights: Weights) -> None:
    """Add the output. q: the queries (rows, 1, d_model) of the layer whose attention is the alignment.

    `num_aligned` (1,) int64 is 0 or `rows`, the number of rows of the output. With 0, a branch skips the nodes, at no
    measurable cost. Graphs in fp16 are for GPUs, whose captured graphs have no branches. With 0, these graphs run the
    nodes on no rows.
    """
    inputs = (q, f"cross_key_{weights.alignment.layer}", "last_source_positions")
    if g.precision == "fp16":
        inputs = (
            g.op("Slice", inputs[0], g.integers(0), "num_aligned", g.integers(0)),
            g.op("Slice", inputs[1], g.integers(0), "num_aligned", g.integers(0)),
            g.op("Slice", inputs[2], g.integers(0), "num_aligned", g.integers(0)),
        )
        g.op("Identity", _mean_weights(g, inputs, weights), outputs=("alignment",))
        return
    g.only_if(
        g.op("Cast", "num_aligned", to=TensorProto.BOOL),
        lambda: _mean_weights(g, inputs, weights),
        otherwise=np.zeros((0, weights.config.max_length), np.float32),
        output="alignment",
    )


def _mean_weights(g: GraphBuilder, inputs: tuple[str, str, str], weights: Weights) -> str:
    """An fp32 tensor (rows, max_length): softmax(q k^T) over each row's source, averaged over the chosen heads.

    inputs: queries, scaled as in equation (1), the cache of keys, and the sources' last positions. Columns after the
    source's end have weight 0.
    """
    q, key, last_position = inputs
    config, heads = weights.config, weights.alignment.heads
    q = g.reshape(q, -1, config.num_heads, 1, config.head_dim)
    scores = g.op("FusedMatMul", q, key, domain=CONTRIB, transB=1)  # (rows, num_heads, 1, max_length)
    if heads != tuple(range(config.num_heads)):
        scores = g.op("Gather", scores, g.integers(*heads), axis=1)
    if g.precision == "fp16":
        scores = g.op("Cast", scores, to=TensorProto.FLOAT)
    columns = g.constant(np.arange(config.max_length, dtype=np.int32))
    is_source = g.op("LessOrEqual", columns, g.reshape(last_position, -1, 1, 1, 1))
    scores = g.op("Where", is_source, scores, g.constant(np.array(-np.inf, np.float32)))
    return g.op("ReduceMean", g.op("Softmax", scores, axis=-1), g.integers(1, 2), keepdims=0)
