"""The encoder graph: from sentences to every decoder layer's cross-attention keys and values.

In int8 and fp32, sentences that run together have the same length, so there is no padding and no mask. In fp16, which
is for GPUs, they may have different lengths, because a GPU encodes many sentences in the time of one. No shape is
computed from another shape, because such nodes would run on the CPU between the kernels of a GPU.
"""

from __future__ import annotations

from app.graphs import Precision, TensorSpec
from export.blocks import Residuals, embed, feed_forward
from export.graph import CONTRIB, Graph, GraphBuilder
from export.weight_file import WeightFile
from export.weights import SelfAttention, Weights


def build_encoder(weights: Weights, precision: Precision, file: WeightFile | None = None) -> Graph:
    """Build the graph.

    Inputs:
    - `ids` (sentences, source_length) int32, with the end token and the tag if the model has them
    - `positions` (source_length,) int32: 0, 1, 2...
    - `lengths` (sentences,) int64, in fp16 only: the number of ids of each sentence, at least 1. The ids after them are
      padding, which does not change the sentence's result.

    Output: `cross_cache` (2 * num_decoder_layers, sentences, num_heads, source_length, head_dim): keys of layer 0,
    values of layer 0, keys of layer 1..., laid out as in the decoder's caches.
    """
    config = weights.config
    g = GraphBuilder(precision, file)
    residuals = Residuals(g, weights.encoder)
    state = residuals.begin(embed(g, weights, weights.source_table, ids="ids", positions="positions"))
    for layer in weights.encoder.layers:
        attention = layer.first
        assert isinstance(attention, SelfAttention)
        attended = _attend(g, state.hidden, attention, num_heads=config.num_heads)
        state = residuals.end(state, g.product(attended, attention.out.weight), attention.out.bias)
        hidden = feed_forward(g, state.hidden, layer.feed_forward, config.activation)
        state = residuals.end(state, hidden, layer.feed_forward.outer.bias)
    num_planes = 2 * config.num_decoder_layers
    projected = g.product(state.hidden, weights.cross_projection)
    planes = g.reshape(projected, 0, 0, num_planes, config.num_heads, config.head_dim)
    g.op("Transpose", planes, perm=[2, 0, 3, 1, 4], outputs=("cross_cache",))
    inputs = (
        TensorSpec(name="ids", dtype="int32", axes=("sentences", "source_length")),
        TensorSpec(name="positions", dtype="int32", axes=("source_length",)),
        *([TensorSpec(name="lengths", dtype="int64", axes=("sentences",))] if precision == "fp16" else []),
    )
    axes = (num_planes, "sentences", config.num_heads, "source_length", config.head_dim)
    outputs = (TensorSpec(name="cross_cache", dtype=g.float_type, axes=axes),)
    return Graph(g.build("encoder", inputs=inputs, outputs=outputs), inputs, outputs)


def _attend(g: GraphBuilder, x: str, attention: SelfAttention, *, num_heads: int) -> str:
    """Multi-head self-attention before W^O: (sentences, source_length, d_model) to the same shape.

    In fp16 it reads no key or value after a sentence's length.
    """
    qkv = g.linear(x, attention.qkv)
    names = tuple(g.fresh(name) for name in ("queries", "keys", "values"))
    g.op("Split", qkv, axis=-1, num_outputs=3, outputs=names)
    if g.precision == "fp16":
        no_mask_and_no_cache = ("", "", "")
        return g.op(
            *("Attention", *names, *no_mask_and_no_cache, "lengths"),
            q_num_heads=num_heads,
            kv_num_heads=num_heads,
            scale=1.0,
        )
    return g.op("MultiHeadAttention", *names, domain=CONTRIB, num_heads=num_heads, scale=1.0)
