"""The graphs of the native CPU kernels: encoder and decoder are one operator each (docs/native-kernels.md).

They compute what `export.encoder` and `export.decoder` compute, from the same weights. What differs is the
contract: the encoder takes sentences of any lengths one after another and writes their cross-attention keys
and values to slots of the cache itself; a decoder row names the slot of its source, which its beam shares.
"""

from __future__ import annotations

import numpy as np

from app.graphs import Precision, TensorSpec
from export.graph import NATIVE, NORM_EPSILON, Graph, GraphBuilder
from export.quantize import quantize_columns, quantize_rows
from export.weight_file import WeightFile
from export.weights import FeedForward, Floats, Linear, Stack, Weights
from model.config import EOS_ID, ModelConfig

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
    b = _Constants(weights, weights.encoder, precision, file)
    constants = b.of_encoder()
    b.g.op(
        "Encoder",
        *("ids", "positions", "lengths", "slots", "cross_cache", *constants),
        domain=NATIVE,
        outputs=("written",),
        num_layers=config.num_encoder_layers,
        **b.attributes(),
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
    """Build the graph: one operator, a whole step or several.

    Inputs, over `rows` rows: `ids` and `positions` (rows,) int32 as in `export.decoder`; `slots` and
    `source_lengths` (rows,) int32, where each row's source stands in the cross-attention cache and its length;
    `num_steps`, `num_candidates` and `wants_log_probabilities` (1,) int64; `self_cache`, written in place, and
    `cross_cache` (2 * num_decoder_layers, num_rows or num_slots, max_length, d_model), keys of layer 0, values of
    layer 0, keys of layer 1... In more steps than one every row goes on with its best candidate until that is the end.
    Outputs: `top_log_probabilities` and `top_ids` (steps, rows, candidates); `log_probabilities` (rows, vocab_size)
    holds them only where they are wanted, and `alignment` (rows, max_length) only of a single step.
    """
    config = weights.config
    b = _Constants(weights, weights.decoder, precision, file)
    names = ("top_log_probabilities", "top_ids", "log_probabilities", "alignment")
    numbers = ("num_steps", "num_candidates", "wants_log_probabilities")
    rows = ("ids", "positions", "slots", "source_lengths")
    b.g.op(
        "DecoderSteps",
        *(*rows, *numbers, "self_cache", "cross_cache", *b.of_decoder()),
        domain=NATIVE,
        outputs=names,
        num_layers=config.num_decoder_layers,
        end_id=EOS_ID,
        aligned_layer=weights.alignment.layer,
        heads=weights.alignment.heads,
        **b.attributes(),
    )
    caches = (
        TensorSpec(
            name=f"{kind}_cache",
            dtype=cache_type(precision),
            axes=(2 * config.num_decoder_layers, axis, config.max_length, config.d_model),
        )
        for kind, axis in (("self", "num_rows"), ("cross", "num_slots"))
    )
    inputs = (
        *_integers("rows", *rows),
        *(TensorSpec(name=name, dtype="int64", axes=(1,)) for name in numbers),
        *caches,
    )
    axes: tuple[tuple[str, tuple[int | str, ...]], ...] = (
        ("float32", ("steps", "rows", "candidates")),
        ("int64", ("steps", "rows", "candidates")),
        ("float32", ("rows", config.vocab_size)),
        ("float32", ("rows", config.max_length)),
    )
    outputs = tuple(
        TensorSpec(name=name, dtype=dtype, axes=shape)
        for name, (dtype, shape) in zip(names, axes, strict=True)
    )
    return Graph(b.g.build("decoder", inputs=inputs, outputs=outputs), inputs, outputs)


def cache_type(precision: Precision) -> str:
    """Of keys and values: half as wide as int8's activations, since reading them is most of attention's time."""
    return "float16" if precision == "int8" else "float32"


def _integers(axis: str, *names: str) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name=name, dtype="int32", axes=(axis,)) for name in names)


class _Constants:
    """A stack's weights as its operator takes them."""

    def __init__(self, weights: Weights, stack: Stack, precision: Precision, file: WeightFile | None) -> None:
        self.g = GraphBuilder(precision, file)
        self._weights = weights
        self._stack = stack
        norms = [norm for layer in stack.layers for norm in layer.norms]
        self._norms = iter([*norms, stack.final_norm] if stack.final_norm else norms)

    def of_encoder(self) -> list[str]:
        """Subwords into rows, the first norm of a pre-norm stack, each layer's sub-layers, cross keys and values."""
        found = [*self._entry(), *self._first_norm()]
        for layer in self._stack.layers:
            found += self._attention(layer.self_attention.qkv, layer.self_attention.out)
            found += self._feed_forward(layer.feed_forward)
        return [*found, *self._weight(self._weights.cross_projection)]

    def of_decoder(self) -> list[str]:
        """Subwords into rows and rows into subwords, the first norm of a pre-norm stack, each layer's sub-layers."""
        entry, blocks = self._entry(), [*self._first_norm()]
        for layer in self._stack.layers:
            cross = layer.cross_attention
            assert cross is not None
            blocks += self._attention(layer.self_attention.qkv, layer.self_attention.out)
            blocks += self._attention(cross.q, cross.out)
            blocks += self._feed_forward(layer.feed_forward)
        return [*entry, *self._table(self._weights.embedding), *blocks]

    def attributes(self) -> dict[str, int | float | str]:
        """What both operators have."""
        config = self._weights.config
        return {
            "num_heads": config.num_heads,
            "activation": config.activation,
            "epsilon": NORM_EPSILON,
            "is_pre_norm": int(self._stack.final_norm is not None),
        }

    def _entry(self) -> tuple[str, str, str]:
        """What subwords at positions become rows by."""
        table = self._table(self._weights.embedding, scale=self._weights.config.d_model**0.5)
        return (*table, self.g.constant(self._weights.positions))

    def _first_norm(self) -> tuple[str, ...]:
        return self._next_norm() if self._stack.final_norm is not None else ()

    def _attention(self, before: Linear, after: Linear) -> tuple[str, ...]:
        """Both projections, and the norm that follows."""
        return (*self._linear(before), *self._linear(after), *self._next_norm())

    def _feed_forward(self, network: FeedForward) -> tuple[str, ...]:
        """Equation (2), and the norm that follows."""
        return (*self._linear(network.inner), *self._linear(network.outer), *self._next_norm())

    def _next_norm(self) -> tuple[str, str]:
        norm = next(self._norms)
        return self.g.constant(norm.gamma), self.g.constant(norm.beta)

    def _linear(self, linear: Linear) -> tuple[str, str, str]:
        return (*self._weight(linear.weight), self.g.constant(linear.bias))

    def _weight(self, weight: Floats) -> tuple[str, str]:
        """A product's weight (inputs, outputs) and the scales of its columns, none in fp32."""
        if self.g.precision != "int8":
            return self.g.constant(weight), self.g.constant(np.zeros(0, np.float32))
        values, scales = quantize_columns(weight)
        return self.g.constant(values), self.g.constant(scales)

    def _table(self, embedding: Floats, *, scale: float = 1.0) -> tuple[str, str]:
        """The embedding (vocab_size, d_model) times `scale`, and the scales of its rows, none in fp32."""
        if self.g.precision != "int8":
            return self.g.constant(embedding * np.float32(scale)), self.g.constant(np.zeros(0, np.float32))
        values, scales = quantize_rows(embedding)
        return self.g.constant(values), self.g.constant(scales * np.float32(scale))
