"""The decoder graph: one step of rows at different positions of different sentences.

A row's input is its last subword. The step appends a column, with this subword's key and value, to the row's
self-attention cache, or updates the row's recurrent state. It outputs the row's most probable next subwords. A cache or
state that is bound as both input and output is updated in place.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from app.graphs import Precision, TensorSpec
from export.alignment import add_alignment, alignment_specs
from export.blocks import Residuals, embed, feed_forward, project, top_candidates
from export.graph import CONTRIB, NATIVE, Graph, GraphBuilder
from export.ssru import STATE, RecurrentStates
from export.weight_file import WeightFile
from export.weights import CrossAttention, Floats, SelfAttention, Weights
from model.config import ModelConfig

# The sizes of heads that the attention kernel for GPUs supports (app/runtime/native/gpu_attention.cpp).
GPU_HEAD_DIM_MULTIPLE, MAX_GPU_HEAD_DIM = 8, 128


def is_gpu_decoder_possible(config: ModelConfig, precision: Precision) -> bool:
    """Whether `build_gpu_decoder` supports a model of this size in this precision."""
    is_head_possible = config.head_dim % GPU_HEAD_DIM_MULTIPLE == 0 and config.head_dim <= MAX_GPU_HEAD_DIM
    return precision == "fp16" and config.decoder == "attention" and is_head_possible


def build_gpu_decoder(weights: Weights, precision: Precision, file: WeightFile | None = None) -> Graph:
    """As `build_decoder`, with this project's attention kernel for GPUs.

    The kernel also adds the biases of its inputs and appends to the cache. So a step of the base size has 87 nodes
    instead of 122. Neither number counts the 12 nodes of the alignment.
    """
    return build_decoder(weights, precision, file, has_own_attention=True)


def build_decoder(
    weights: Weights,
    precision: Precision,
    file: WeightFile | None = None,
    *,
    has_own_attention: bool = False,
) -> Graph:
    """Build the graph. has_own_attention: whether attention is the operator RowAttention, on a GPU only.

    Inputs:
    - `ids`, `positions` (rows,) int32: each row's last subword and its position, which equals the number of columns in
      the row's self-attention cache
    - `last_source_positions` (rows,) int32: the length of the row's source minus 1
    - `num_candidates` (1,) int64: at most `MAX_CANDIDATES` of `export.blocks`
    - `self_key_i`, `self_value_i`, `cross_key_i`, `cross_value_i` for each layer i:
      (rows, num_heads, max_length, head_dim)
    - `self_state` (rows, num_decoder_layers, d_model) float32, instead of `self_key_i` and `self_value_i` in a decoder
      of SSRUs. A row at position 0 begins with zeros, whatever its state holds
    - `num_aligned` (1,) int64: `rows` if the alignment is requested, else 0

    Outputs:
    - `top_log_probabilities`, `top_ids` (rows, candidates), each row descending
    - `log_probabilities` (rows, vocab_size)
    - `alignment` (num_aligned, max_length): attention of the layer and heads in `weights.alignment`
    - each cache, and the state, as `present_<name>`
    """
    config = weights.config
    g = GraphBuilder(precision, file)
    blocks = _RowAttention(g, weights) if has_own_attention else _Attention(g, weights)
    x = embed(g, weights, weights.target_table, ids="ids", positions="positions")
    residuals = Residuals(g, weights.decoder)
    state = residuals.begin(x)
    recurrent = RecurrentStates(g, config) if config.decoder == "ssru" else None
    for index, layer in enumerate(weights.decoder.layers):
        cross = layer.cross_attention
        assert cross is not None
        if isinstance(layer.first, SelfAttention):
            out = blocks.self_attention(state.hidden, layer.first, index)
            state = residuals.end(state, out, layer.first.out.bias)
        else:
            assert recurrent is not None
            state = residuals.end(state, recurrent.ssru(state.hidden, layer.first))
        out = blocks.cross_attention(state.hidden, cross, index)
        state = residuals.end(state, out, cross.out.bias)
        out = feed_forward(g, state.hidden, layer.feed_forward, config.activation)
        state = residuals.end(state, out, layer.feed_forward.outer.bias)
    if recurrent is not None:
        recurrent.end()
    log_probabilities = g.op(
        "LogSoftmax", project(g, weights, state.hidden), axis=-1, outputs=("log_probabilities",)
    )
    names = ("top_log_probabilities", "top_ids")
    top_candidates(g, log_probabilities, vocab_size=config.vocab_size, outputs=names)
    inputs, outputs = _signature(weights, g.float_type)
    return Graph(g.build("decoder", inputs=inputs, outputs=outputs), inputs, outputs)


class _Attention:
    """Attention over the caches, with the constants that all layers share."""

    def __init__(self, g: GraphBuilder, weights: Weights) -> None:
        config = weights.config
        self._g = g
        self._weights = weights
        self._d_model = config.d_model
        self._attributes = {"num_heads": config.num_heads, "kv_num_heads": config.num_heads, "scale": 1.0}
        # Name of an empty tensor: cross-attention appends no keys and values to its cache.
        self._no_keys = ""

    def self_attention(self, x: str, attention: SelfAttention, layer: int) -> str:
        """Append this position's key and value, and attend to all columns of the row.

        Returns (rows, d_model), without the bias of W^O.
        """
        g = self._g
        qkv = g.reshape(g.linear(x, attention.qkv), -1, 1, 3 * self._d_model)
        heads = self._grouped_query(qkv, "", "", cache=("self", layer), lengths="positions")
        return g.product(heads, attention.out.weight)

    def cross_attention(self, x: str, attention: CrossAttention, layer: int) -> str:
        """Attend to the row's source. Returns (rows, d_model), without the bias of W^O. The cache is not changed."""
        g = self._g
        q = g.reshape(g.linear(x, attention.q), -1, 1, self._d_model)
        self._add_alignment(q, layer)
        if not self._no_keys:
            self._no_keys = g.op("Slice", q, g.integers(0), g.integers(0), g.integers(1))
        heads = self._grouped_query(
            q, self._no_keys, self._no_keys, cache=("cross", layer), lengths="last_source_positions"
        )
        return g.product(heads, attention.out.weight)

    def _add_alignment(self, q: str, layer: int) -> None:
        """Add the output `alignment` if this layer's attention is the alignment. q: queries (rows, 1, d_model)."""
        if layer == self._weights.alignment.layer:
            add_alignment(self._g, q, self._weights)

    def _grouped_query(self, q: str, key: str, value: str, *, cache: tuple[str, int], lengths: str) -> str:
        """GroupQueryAttention over one layer's cache. lengths: (rows,) the number of keys of each row, minus 1."""
        kind, layer = cache
        names = (f"{kind}_key_{layer}", f"{kind}_value_{layer}")
        # total_sequence_length is a constant, not the longest row's length. If it equalled the number of queries, 1,
        # the operator would treat the step as a first one without a cache.
        capacity = self._g.constant(np.array(self._weights.config.max_length, np.int32))
        heads = self._g.op(
            "GroupQueryAttention",
            *(q, key, value, *names, lengths, capacity),
            domain=CONTRIB,
            outputs=(self._g.fresh("heads"), *(f"present_{name}" for name in names)),
            **self._attributes,
        )
        return self._g.reshape(heads, -1, self._d_model)


class _RowAttention(_Attention):
    """As `_Attention`, by the operator RowAttention, which adds the biases of queries, keys and values."""

    def self_attention(self, x: str, attention: SelfAttention, layer: int) -> str:
        """As `_Attention.self_attention`."""
        projected = self._g.product(x, attention.qkv.weight)
        heads = self._attend(projected, attention.qkv.bias, cache=("self", layer), last_columns="positions")
        return self._g.product(heads, attention.out.weight)

    def cross_attention(self, x: str, attention: CrossAttention, layer: int) -> str:
        """As `_Attention.cross_attention`."""
        g = self._g
        projected = g.product(x, attention.q.weight)
        if layer == self._weights.alignment.layer:
            biased = g.op("Add", projected, g.floats(attention.q.bias))
            self._add_alignment(g.reshape(biased, -1, 1, self._d_model), layer)
        last_columns = "last_source_positions"
        heads = self._attend(projected, attention.q.bias, cache=("cross", layer), last_columns=last_columns)
        return g.product(heads, attention.out.weight)

    def _attend(self, projected: str, bias: Floats, *, cache: tuple[str, int], last_columns: str) -> str:
        """RowAttention over one layer's cache: (rows, d_model). last_columns: (rows,) index of each row's last key."""
        kind, layer = cache
        names = (f"{kind}_key_{layer}", f"{kind}_value_{layer}")
        return self._g.op(
            "RowAttention",
            *(projected, self._g.floats(bias), *names, last_columns),
            domain=NATIVE,
            outputs=(self._g.fresh("heads"), *(f"present_{name}" for name in names)),
        )


def cache_kinds(config: ModelConfig) -> tuple[str, ...]:
    """Names of the caches of a layer's keys and values. A decoder of SSRUs has only cross-attention's."""
    own = ("self_key", "self_value") if config.decoder == "attention" else ()
    return (*own, "cross_key", "cross_value")


def _signature(weights: Weights, float_type: str) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Inputs and outputs, in the order documented at `build_decoder`."""
    config = weights.config
    num_aligned, alignment = alignment_specs(config)
    axes = ("rows", config.num_heads, config.max_length, config.head_dim)
    caches = [
        TensorSpec(name=f"{kind}_{index}", dtype=float_type, axes=axes)
        for index in range(config.num_decoder_layers)
        for kind in cache_kinds(config)
    ]
    if config.decoder == "ssru":
        caches.append(
            TensorSpec(name=STATE, dtype="float32", axes=("rows", config.num_decoder_layers, config.d_model))
        )
    inputs = (
        *(
            TensorSpec(name=name, dtype="int32", axes=("rows",))
            for name in ("ids", "positions", "last_source_positions")
        ),
        TensorSpec(name="num_candidates", dtype="int64", axes=(1,)),
        *caches,
        num_aligned,
    )
    outputs = (
        TensorSpec(name="top_log_probabilities", dtype="float32", axes=("rows", "candidates")),
        TensorSpec(name="top_ids", dtype="int64", axes=("rows", "candidates")),
        TensorSpec(name="log_probabilities", dtype="float32", axes=("rows", config.vocab_size)),
        alignment,
        *(replace(spec, name=f"present_{spec.name}") for spec in caches),
    )
    return inputs, outputs
