"""The encoder graph: sentences of one length to every decoder layer's cross-attention keys and values.

There is no padding and so no mask: sentences that run together have the same length. All products
see the positions of all sentences as rows; only attention tells the sentences apart.
"""

from __future__ import annotations

from app.bundle import Precision, TensorSpec
from export.blocks import Residuals, embed, feed_forward
from export.graph import CONTRIB, Graph, GraphBuilder
from export.weights import SelfAttention, Weights


def build_encoder(weights: Weights, precision: Precision) -> Graph:
    """Build the graph.

    Input `ids` (sentences, source_length) int32, the end token last. Output `cross_cache`
    (2 * num_decoder_layers, sentences, num_heads, source_length, head_dim): keys of layer 0, values of
    layer 0, keys of layer 1..., each plane as a row of the decoder's cache holds it.
    """
    config = weights.config
    g = GraphBuilder(precision)
    d_model, num_planes = config.d_model, 2 * config.num_decoder_layers
    shape = g.op("Shape", "ids")
    length = g.op("Gather", shape, g.integers(1))
    scalar = g.op("Squeeze", length, g.integers(0))
    order = g.op("Range", g.scalar(0), scalar, g.scalar(1))
    positions = g.reshape(g.op("Expand", order, shape), -1)
    split_shape = g.op("Concat", shape, g.integers(d_model), axis=0)
    x = embed(g, weights, ids=g.reshape("ids", -1), positions=positions)
    residuals = Residuals(g, weights.encoder)
    flow = residuals.begin(x)
    for layer in weights.encoder.layers:
        attention = layer.self_attention
        attended = _attend(g, flow.given, attention, split_shape=split_shape, num_heads=config.num_heads)
        flow = residuals.end(flow, g.product(attended, attention.out.weight), attention.out.bias)
        hidden = feed_forward(g, flow.given, layer.feed_forward, config.activation)
        flow = residuals.end(flow, hidden, layer.feed_forward.outer.bias)
    planes_shape = g.op("Concat", shape, g.integers(num_planes, config.num_heads, config.head_dim), axis=0)
    planes = g.op("Reshape", g.product(flow.given, weights.cross_projection), planes_shape)
    g.op("Transpose", planes, perm=[2, 0, 3, 1, 4], outputs=("cross_cache",))
    inputs = (TensorSpec(name="ids", dtype="int32", axes=("sentences", "source_length")),)
    axes = (num_planes, "sentences", config.num_heads, "source_length", config.head_dim)
    outputs = (TensorSpec(name="cross_cache", dtype=g.float_type, axes=axes),)
    return Graph(g.build("encoder", inputs=inputs, outputs=outputs), inputs, outputs)


def _attend(g: GraphBuilder, x: str, attention: SelfAttention, *, split_shape: str, num_heads: int) -> str:
    """Multi-head self-attention before W^O: (rows, d_model) -> the same shape, each sentence by itself."""
    qkv = g.linear(x, attention.qkv)
    queries, keys, values = (g.fresh(name) for name in ("queries", "keys", "values"))
    g.op("Split", qkv, axis=-1, num_outputs=3, outputs=(queries, keys, values))
    split = [g.op("Reshape", tensor, split_shape) for tensor in (queries, keys, values)]
    heads = g.op("MultiHeadAttention", *split, domain=CONTRIB, num_heads=num_heads, scale=1.0)
    return g.reshape(heads, -1, attention.out.weight.shape[0])
