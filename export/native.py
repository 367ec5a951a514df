"""The graphs of the native CPU kernels. Encoder and decoder are one operator each (docs/native-kernels.md).

They compute the same as `export.encoder` and `export.decoder`, from the same weights, with other inputs and outputs.
The encoder takes concatenated sentences of any lengths and writes their cross-attention keys and values to slots of the
cache. A decoder row has the number of its source's slot, which all rows of a beam share.
"""

from __future__ import annotations

import numpy as np

from app.graphs import Precision, TensorSpec
from export.graph import NATIVE, NORM_EPSILON, Graph, GraphBuilder
from export.quantize import quantize_columns, quantize_rows
from export.ssru import STATE
from export.weight_file import WeightFile
from export.weights import FeedForward, Floats, Linear, SelfAttention, Ssru, Stack, Weights
from model.config import EOS_ID, ModelConfig

# The kernels' loops need sizes that are multiples of these.
HEAD_DIM_MULTIPLE, D_FF_MULTIPLE = 16, 16
# MAX_HEAD_DIM of app/runtime/native/attention.h.
MAX_HEAD_DIM = 128


def is_native_possible(config: ModelConfig, precision: Precision) -> bool:
    """Whether the kernels support a model of this size in this precision."""
    is_head_possible = config.head_dim % HEAD_DIM_MULTIPLE == 0 and config.head_dim <= MAX_HEAD_DIM
    return precision != "fp16" and is_head_possible and config.d_ff % D_FF_MULTIPLE == 0


def build_native_encoder(weights: Weights, precision: Precision, file: WeightFile | None = None) -> Graph:
    """Build the graph.

    Inputs:
    - `ids`, `positions` (tokens,) int32: concatenated sentences, each with its end token and with positions from 0
    - `lengths`, `slots` (sentences,) int32
    - `cross_cache` (2 * num_decoder_layers, num_slots, max_length, d_model), written in place: keys of layer 0, values
      of layer 0, keys of layer 1...

    Output: `written` (sentences,) int32, the lengths.
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
    inputs = (
        *_integers("tokens", "ids", "positions"),
        *_integers("sentences", "lengths", "slots"),
        _cache(config, precision, "cross_cache", "num_slots"),
    )
    outputs = _integers("sentences", "written")
    return Graph(b.g.build("encoder", inputs=inputs, outputs=outputs), inputs, outputs)


def build_native_decoder(weights: Weights, precision: Precision, file: WeightFile | None = None) -> Graph:
    """Build the graph: one operator that takes one step or several.

    Inputs:
    - `ids`, `positions` (rows,) int32, as in `export.decoder`
    - `slots`, `source_lengths` (rows,) int32: slot of each row's source in the cross-attention cache, and its length
    - `num_steps`, `num_candidates`, `wants_log_probabilities` (1,) int64. If num_steps is above 1, every row continues
      with its best candidate up to the end token; num_candidates must then be 1, and wants_log_probabilities 0. With
      beams, num_steps must be 1, even if the call takes several steps. Beams and the maximum number of their steps are
      no inputs of the graph: `transduce_set_decoder_args` sets them
    - `self_cache` (2 * num_decoder_layers, num_rows, max_length, d_model), written in place: keys of layer 0, values of
      layer 0, keys of layer 1...
    - `self_state` (num_rows, num_decoder_layers, d_model) float32 instead of `self_cache` in a decoder of SSRUs, as in
      `export.decoder`
    - `cross_cache` (2 * num_decoder_layers, num_slots, max_length, d_model), as the encoder has written it

    Outputs:
    - `top_log_probabilities`, `top_ids` (steps, rows, candidates)
    - `log_probabilities` (rows, vocab_size), written only if requested
    - `alignment` (rows, max_length), written only if num_steps is 1
    """
    config = weights.config
    b = _Constants(weights, weights.decoder, precision, file)
    names = ("top_log_probabilities", "top_ids", "log_probabilities", "alignment")
    numbers = ("num_steps", "num_candidates", "wants_log_probabilities")
    rows = ("ids", "positions", "slots", "source_lengths")
    operator, own = "DecoderSteps", _cache(config, precision, "self_cache", "num_rows")
    if config.decoder == "ssru":
        operator = "SsruDecoderSteps"
        axes = ("num_rows", config.num_decoder_layers, config.d_model)
        own = TensorSpec(name=STATE, dtype="float32", axes=axes)
    b.g.op(
        operator,
        *(*rows, *numbers, own.name, "cross_cache", *b.of_decoder()),
        domain=NATIVE,
        outputs=names,
        num_layers=config.num_decoder_layers,
        end_id=EOS_ID,
        aligned_layer=weights.alignment.layer,
        heads=weights.alignment.heads,
        **b.attributes(),
    )
    inputs = (
        *_integers("rows", *rows),
        *(TensorSpec(name=name, dtype="int64", axes=(1,)) for name in numbers),
        own,
        _cache(config, precision, "cross_cache", "num_slots"),
    )
    results: tuple[tuple[str, tuple[int | str, ...]], ...] = (
        ("float32", ("steps", "rows", "candidates")),
        ("int64", ("steps", "rows", "candidates")),
        ("float32", ("rows", config.vocab_size)),
        ("float32", ("rows", config.max_length)),
    )
    outputs = tuple(
        TensorSpec(name=name, dtype=dtype, axes=shape)
        for name, (dtype, shape) in zip(names, results, strict=True)
    )
    return Graph(b.g.build("decoder", inputs=inputs, outputs=outputs), inputs, outputs)


def cache_type(precision: Precision) -> str:
    """The type of cached keys and values. float16 for int8, because attention spends most of its time reading them."""
    return "float16" if precision == "int8" else "float32"


def _cache(config: ModelConfig, precision: Precision, name: str, axis: str) -> TensorSpec:
    """A cache of all layers' keys and values. axis: the name of its second axis."""
    axes = (2 * config.num_decoder_layers, axis, config.max_length, config.d_model)
    return TensorSpec(name=name, dtype=cache_type(precision), axes=axes)


def _integers(axis: str, *names: str) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name=name, dtype="int32", axes=(axis,)) for name in names)


class _Constants:
    """A stack's weights as constants, in the order of its operator's inputs."""

    def __init__(self, weights: Weights, stack: Stack, precision: Precision, file: WeightFile | None) -> None:
        self.g = GraphBuilder(precision, file)
        self._weights = weights
        self._stack = stack
        norms = [norm for layer in stack.layers for norm in layer.norms]
        self._norms = iter([*norms, stack.final_norm] if stack.final_norm else norms)

    def of_encoder(self) -> list[str]:
        """The encoder's constants: embedding, pre-norm's first norm, each layer's sub-layers, cross keys and values."""
        found = [*self._entry(self._weights.source_table), *self._first_norm()]
        for layer in self._stack.layers:
            found += self._first(layer.first)
            found += self._feed_forward(layer.feed_forward)
        return [*found, *self._weight(self._weights.cross_projection)]

    def of_decoder(self) -> list[str]:
        """The decoder's constants.

        They are: embedding, output table, pre-norm's first norm, each layer's sub-layers, and the output's bias if it
        has one.
        """
        entry, blocks = self._entry(self._weights.target_table), [*self._first_norm()]
        for layer in self._stack.layers:
            cross = layer.cross_attention
            assert cross is not None
            blocks += self._first(layer.first)
            blocks += self._attention(cross.q, cross.out)
            blocks += self._feed_forward(layer.feed_forward)
        bias = self._weights.output_bias
        end = [] if bias is None else [self.g.constant(bias)]
        return [*entry, *self._table(self._weights.output_table), *blocks, *end]

    def attributes(self) -> dict[str, int | float | str]:
        """The attributes that both operators have."""
        config = self._weights.config
        return {
            "num_heads": config.num_heads,
            "activation": config.activation,
            "epsilon": NORM_EPSILON,
            "is_pre_norm": int(self._stack.final_norm is not None),
        }

    def _entry(self, embedding: Floats) -> tuple[str, str, str]:
        """The embedding table times sqrt(d_model), the scales of its rows, and the position table."""
        table = self._table(embedding, factor=self._weights.config.d_model**0.5)
        return (*table, self.g.constant(self._weights.positions))

    def _first_norm(self) -> tuple[str, ...]:
        return self._next_norm() if self._stack.final_norm is not None else ()

    def _first(self, block: SelfAttention | Ssru) -> tuple[str, ...]:
        """The constants of the first sub-layer and of the norm after it."""
        if isinstance(block, Ssru):
            return (*self._linear(block.z_and_f), *self._next_norm())
        return self._attention(block.qkv, block.out)

    def _attention(self, before: Linear, after: Linear) -> tuple[str, ...]:
        """The constants of both projections and of the norm after them."""
        return (*self._linear(before), *self._linear(after), *self._next_norm())

    def _feed_forward(self, network: FeedForward) -> tuple[str, ...]:
        """The constants of equation (2) and of the norm after it."""
        return (*self._linear(network.inner), *self._linear(network.outer), *self._next_norm())

    def _next_norm(self) -> tuple[str, str]:
        norm = next(self._norms)
        return self.g.constant(norm.gamma), self.g.constant(norm.beta)

    def _linear(self, linear: Linear) -> tuple[str, str, str]:
        return (*self._weight(linear.weight), self.g.constant(linear.bias))

    def _weight(self, weight: Floats) -> tuple[str, str]:
        """A product's weight (inputs, outputs) and the scales of its columns; no scales in fp32."""
        if self.g.precision != "int8":
            return self.g.constant(weight), self.g.constant(np.zeros(0, np.float32))
        values, scales = quantize_columns(weight)
        return self.g.constant(values), self.g.constant(scales)

    def _table(self, embedding: Floats, *, factor: float = 1.0) -> tuple[str, str]:
        """The embedding (vocab_size, d_model) times `factor`, and the scales of its rows.

        In int8 the factor is a part of the scales. In fp32 there are no scales.
        """
        if self.g.precision != "int8":
            return self.g.constant(embedding * np.float32(factor)), self.g.constant(np.zeros(0, np.float32))
        values, scales = quantize_rows(embedding)
        return self.g.constant(values), self.g.constant(scales * np.float32(factor))
