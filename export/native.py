"""The graphs of the native CPU kernels: a sub-layer of the paper is one operator (docs/native-kernels.md).

They compute what `export.encoder` and `export.decoder` compute, from the same weights. What differs is the
contract: the encoder takes sentences of any lengths one after another and writes their cross-attention keys
and values to slots of the cache itself; a decoder row names the slot of its source, which its beam shares.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from app.bundle import Precision, TensorSpec
from export.graph import NATIVE, NORM_EPSILON, Graph, GraphBuilder
from export.quantize import quantize_columns, quantize_rows
from export.weight_file import WeightFile
from export.weights import CrossAttention, FeedForward, Floats, Linear, Norm, SelfAttention, Stack, Weights
from model.config import ModelConfig

# Sizes that the kernels' loops are made for.
HEAD_DIM_MULTIPLE, D_FF_MULTIPLE = 16, 16


def is_native_possible(config: ModelConfig, precision: Precision) -> bool:
    """Whether the kernels take a model of this size, in this precision."""
    return (
        precision != "fp16" and config.head_dim % HEAD_DIM_MULTIPLE == 0 and config.d_ff % D_FF_MULTIPLE == 0
    )


def build_native_encoder(weights: Weights, precision: Precision, file: WeightFile | None = None) -> Graph:
    """Build the graph.

    Inputs: `ids` and `positions` (tokens,) int32, sentences one after another, each with its end token and its
    positions from 0; `lengths` and `slots` (sentences,) int32; `cross_cache` (2 * num_decoder_layers, num_slots,
    max_length, d_model), which is written in place: keys of layer 0, values of layer 0, keys of layer 1...
    Output `written` (sentences,) int32: the lengths.
    """
    config = weights.config
    b = _Blocks(weights, weights.encoder, precision, file)
    for layer in weights.encoder.layers:
        b.self_attention(layer.self_attention)
        b.feed_forward(layer.feed_forward)
    cross = b.weight(weights.cross_projection)
    b.g.op(
        "WriteCrossCache",
        b.given,
        "lengths",
        "slots",
        "cross_cache",
        *cross,
        domain=NATIVE,
        outputs=("written",),
    )
    axes = (2 * config.num_decoder_layers, "num_slots", config.max_length, config.d_model)
    inputs = (
        *_integers("tokens", "ids", "positions"),
        *_integers("sentences", "lengths", "slots"),
        TensorSpec(name="cross_cache", dtype=cache_type(precision), axes=axes),
    )
    outputs = _integers("sentences", "written")
    return Graph(b.g.build("encoder", inputs=inputs, outputs=outputs), inputs, outputs)


def build_native_decoder(weights: Weights, precision: Precision, file: WeightFile | None = None) -> Graph:
    """Build the graph.

    Inputs, over `rows` rows: `ids` and `positions` (rows,) int32 as in `export.decoder`; `slots` and
    `source_lengths` (rows,) int32, where each row's source stands in the cross-attention cache and its length;
    `num_candidates` and `wants_log_probabilities` (1,) int64; and for each layer i `self_key_i`, `self_value_i`
    (num_rows, max_length, d_model), written in place, and `cross_key_i`, `cross_value_i` (num_slots, ...).
    Outputs: as in `export.decoder`; `log_probabilities` holds them only where they are wanted, and `alignment`
    (rows, max_length) is always there.
    """
    config = weights.config
    b = _Blocks(weights, weights.decoder, precision, file)
    for index, layer in enumerate(weights.decoder.layers):
        assert layer.cross_attention is not None
        b.self_attention_step(layer.self_attention, index)
        heads = weights.alignment.heads if index == weights.alignment.layer else ()
        b.cross_attention_step(layer.cross_attention, index, aligned_heads=heads)
        b.feed_forward(layer.feed_forward)
    names = ("top_log_probabilities", "top_ids", "log_probabilities")
    b.g.op(
        "Candidates",
        *(b.given, *b.table(weights.embedding), "num_candidates", "wants_log_probabilities"),
        domain=NATIVE,
        outputs=names,
    )
    cache_axes = (config.max_length, config.d_model)
    caches = (
        TensorSpec(
            name=f"{kind}_{part}_{index}",
            dtype=cache_type(precision),
            axes=("num_rows" if kind == "self" else "num_slots", *cache_axes),
        )
        for index in range(config.num_decoder_layers)
        for kind in ("self", "cross")
        for part in ("key", "value")
    )
    inputs = (
        *_integers("rows", "ids", "positions", "slots", "source_lengths"),
        TensorSpec(name="num_candidates", dtype="int64", axes=(1,)),
        TensorSpec(name="wants_log_probabilities", dtype="int64", axes=(1,)),
        *caches,
    )
    axes: tuple[tuple[str, tuple[int | str, ...]], ...] = (
        ("float32", ("rows", "candidates")),
        ("int64", ("rows", "candidates")),
        ("float32", ("rows", config.vocab_size)),
        ("float32", ("rows", config.max_length)),
    )
    outputs = tuple(
        TensorSpec(name=name, dtype=dtype, axes=shape)
        for name, (dtype, shape) in zip((*names, "alignment"), axes, strict=True)
    )
    return Graph(b.g.build("decoder", inputs=inputs, outputs=outputs), inputs, outputs)


def cache_type(precision: Precision) -> str:
    """Of keys and values: half as wide as int8's activations, since reading them is most of attention's time."""
    return "float16" if precision == "int8" else "float32"


def _integers(axis: str, *names: str) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name=name, dtype="int32", axes=(axis,)) for name in names)


class _Blocks:
    """A stack's sub-layers, one after another. residual, given: as in `export.blocks.Flow`."""

    def __init__(self, weights: Weights, stack: Stack, precision: Precision, file: WeightFile | None) -> None:
        """Begin with the embedding of `ids` at `positions`."""
        self.g = GraphBuilder(precision, file)
        self._num_heads = weights.config.num_heads
        self._activation = weights.config.activation
        self._is_pre_norm = stack.final_norm is not None
        norms = [norm for layer in stack.layers for norm in layer.norms]
        self._norms: Iterator[Norm] = iter([*norms, stack.final_norm] if stack.final_norm else norms)
        table = self.table(weights.embedding, scale=weights.config.d_model**0.5)
        positions = self.g.constant(weights.positions)
        self.residual = self.g.op("Embed", "ids", "positions", *table, positions, domain=NATIVE)
        self.given = (
            self.g.layer_norm(self.residual, next(self._norms)) if self._is_pre_norm else self.residual
        )

    def weight(self, weight: Floats) -> tuple[str, str]:
        """A product's weight (inputs, outputs) and the scales of its columns, none in fp32."""
        if self.g.precision != "int8":
            return self.g.constant(weight), self.g.constant(np.zeros(0, np.float32))
        values, scales = quantize_columns(weight)
        return self.g.constant(values), self.g.constant(scales)

    def table(self, embedding: Floats, *, scale: float = 1.0) -> tuple[str, str]:
        """The embedding (vocab_size, d_model) times `scale`, and the scales of its rows, none in fp32."""
        if self.g.precision != "int8":
            return self.g.constant(embedding * np.float32(scale)), self.g.constant(np.zeros(0, np.float32))
        values, scales = quantize_rows(embedding)
        return self.g.constant(values), self.g.constant(scales * np.float32(scale))

    def self_attention(self, attention: SelfAttention) -> None:
        """An encoder's: every sentence attends to itself."""
        inputs = ("lengths", *self._linear(attention.qkv), *self._linear(attention.out))
        self._sublayer("SelfAttention", *inputs, num_heads=self._num_heads)

    def self_attention_step(self, attention: SelfAttention, layer: int) -> None:
        """A decoder's: appends this position's key and value to the row's cache, attends to all of them."""
        caches = (f"self_key_{layer}", f"self_value_{layer}")
        inputs = ("positions", *caches, *self._linear(attention.qkv), *self._linear(attention.out))
        self._sublayer("SelfAttentionStep", *inputs, num_heads=self._num_heads)

    def cross_attention_step(
        self, attention: CrossAttention, layer: int, *, aligned_heads: tuple[int, ...]
    ) -> None:
        """Attends to the row's source; gives `alignment`, the mean weights of aligned_heads, where there are any."""
        caches = (f"cross_key_{layer}", f"cross_value_{layer}")
        products = (*self._linear(attention.q), *self._linear(attention.out))
        inputs = ("slots", "source_lengths", *caches, *products)
        if aligned_heads:
            self._sublayer(
                "AlignedCrossAttentionStep", *inputs, num_heads=self._num_heads, heads=aligned_heads
            )
        else:
            self._sublayer("CrossAttentionStep", *inputs, num_heads=self._num_heads)

    def feed_forward(self, network: FeedForward) -> None:
        """Equation (2)."""
        inputs = (*self._linear(network.inner), *self._linear(network.outer))
        self._sublayer("FeedForward", *inputs, activation=self._activation)

    def _linear(self, linear: Linear) -> tuple[str, str, str]:
        return (*self.weight(linear.weight), self.g.constant(linear.bias))

    def _sublayer(self, kind: str, *inputs: str, **attributes: int | str | tuple[int, ...]) -> None:
        """Sub-layer, sum with the residual and the norm that follows, in one operator."""
        norm = next(self._norms)
        total, normalised = self.g.fresh("sum"), self.g.fresh("normalised")
        self.g.op(
            kind,
            *(self.residual, self.given, *inputs, self.g.constant(norm.gamma), self.g.constant(norm.beta)),
            domain=NATIVE,
            outputs=(total, normalised, *(["alignment"] if "heads" in attributes else [])),
            epsilon=NORM_EPSILON,
            **attributes,
        )
        self.residual = total if self._is_pre_norm else normalised
        self.given = normalised
