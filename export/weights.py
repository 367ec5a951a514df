"""Converts a state dict to the weights of the graphs. Joins matrix products, and folds attention scale and biases.

Three transformations, each exact in real arithmetic:

- The weights of queries contain the 1 / sqrt(d_k) of equation (1), so that attention runs with scale 1.
- The bias of keys is dropped, because it adds the same q . b to all scores of a query, and softmax cancels that.
- The bias of values moves to the output. Attention weights sum to 1, so b_o becomes b_o + b_v W^O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.bundle import Alignment
from model.config import ModelConfig
from model.transformer import Transformer

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Linear:
    """x W + b: weight (inputs, outputs), bias (outputs,)."""

    weight: Floats
    bias: Floats


@dataclass(frozen=True)
class Norm:
    """LayerNorm's scale and offset, both (d_model,)."""

    gamma: Floats
    beta: Floats


@dataclass(frozen=True)
class SelfAttention:
    """qkv: d_model to concatenated queries, keys and values, 3 * d_model. out: d_model to d_model."""

    qkv: Linear
    out: Linear


@dataclass(frozen=True)
class Ssru:
    """The recurrence of `model.ssru`. z_and_f: d_model to concatenated W x and W_f x + b_f, 2 * d_model."""

    z_and_f: Linear


@dataclass(frozen=True)
class CrossAttention:
    """q, out: d_model to d_model. key, value: (d_model, d_model) weights, which the encoder graph applies."""

    q: Linear
    key: Floats
    value: Floats
    out: Linear


@dataclass(frozen=True)
class FeedForward:
    """Equation (2): d_model to d_ff and back."""

    inner: Linear
    outer: Linear


@dataclass(frozen=True)
class Layer:
    """An encoder layer (without cross-attention) or a decoder layer. norms: one for each sub-layer, in order.

    first: an SSRU only in the decoder.
    """

    first: SelfAttention | Ssru
    cross_attention: CrossAttention | None
    feed_forward: FeedForward
    norms: tuple[Norm, ...]


@dataclass(frozen=True)
class Stack:
    """The layers of the encoder or decoder. final_norm: None for post-norm."""

    layers: tuple[Layer, ...]
    final_norm: Norm | None


@dataclass(frozen=True)
class Weights:
    """A whole model.

    source_table, target_table, output_table: (vocab_size, d_model), as trained. Embeddings of inputs are multiplied by
    sqrt(d_model), logits are not. Most models have one array for all three.
    positions: (max_length, d_model).
    output_bias: (vocab_size,), the bias of the logits, or None.
    alignment: the cross-attention that the decoder outputs as alignment.
    """

    config: ModelConfig
    source_table: Floats
    target_table: Floats
    output_table: Floats
    positions: Floats
    encoder: Stack
    decoder: Stack
    alignment: Alignment
    output_bias: Floats | None = None

    @property
    def cross_projection(self) -> Floats:
        """The weight of every decoder layer's cross-attention keys and values in one product.

        (d_model, 2 * num_decoder_layers * d_model): key of layer 0, value of layer 0, key of layer 1...
        """
        blocks = []
        for layer in self.decoder.layers:
            if layer.cross_attention is not None:
                blocks += [layer.cross_attention.key, layer.cross_attention.value]
        return np.concatenate(blocks, axis=1)


def default_alignment(config: ModelConfig) -> Alignment:
    """The default for a model without a measured alignment: all heads of the second to last, or only, decoder layer.

    In trained models that layer aligns best, not the last one (Garg et al. 2019, section 4.1).
    """
    return Alignment(layer=max(0, config.num_decoder_layers - 2), heads=tuple(range(config.num_heads)))


def weights_of(model: Transformer, alignment: Alignment | None = None) -> Weights:
    """The weights of a model in fp32. alignment: `default_alignment` for None."""
    config = model.config
    state = {name: tensor.detach().float().cpu().numpy() for name, tensor in model.state_dict().items()}
    table = state["embedding.weight"]
    return Weights(
        config=config,
        source_table=state.get("embedding.source_weight", table),
        target_table=table,
        output_table=state.get("embedding.output_weight", table),
        # From the model, because the state dict has only a learned table, not a computed one.
        positions=model.embedding.positions.detach().float().cpu().numpy(),
        encoder=_stack(state, config, "encoder"),
        decoder=_stack(state, config, "decoder"),
        alignment=alignment or default_alignment(config),
        output_bias=state.get("embedding.output_bias"),
    )


def _stack(state: Mapping[str, Floats], config: ModelConfig, name: str) -> Stack:
    """The weights of the stack `encoder` or `decoder`."""
    num_layers = config.num_encoder_layers if name == "encoder" else config.num_decoder_layers
    layers = tuple(_layer(state, config, f"{name}.{index}") for index in range(num_layers))
    return Stack(layers, _norm(state, f"{name}_norm") if config.norm == "pre" else None)


def _layer(state: Mapping[str, Floats], config: ModelConfig, name: str) -> Layer:
    has_cross = f"{name}.cross_attention.w_q.weight" in state
    has_ssru = f"{name}.ssru.w.weight" in state
    return Layer(
        first=_ssru(state, f"{name}.ssru")
        if has_ssru
        else _self_attention(state, config, f"{name}.self_attention"),
        cross_attention=_cross_attention(state, config, f"{name}.cross_attention") if has_cross else None,
        feed_forward=FeedForward(
            inner=_linear(state, f"{name}.feed_forward.w_1"), outer=_linear(state, f"{name}.feed_forward.w_2")
        ),
        norms=tuple(_norm(state, f"{name}.residuals.{index}.norm") for index in range(3 if has_cross else 2)),
    )


def _self_attention(state: Mapping[str, Floats], config: ModelConfig, name: str) -> SelfAttention:
    q = _queries(state, config, name)
    key, value = state[f"{name}.w_k.weight"].T, state[f"{name}.w_v.weight"].T
    bias = np.zeros(3 * config.d_model, np.float32)
    bias[: config.d_model] = q.bias
    qkv = Linear(np.concatenate([q.weight, key, value], axis=1), bias)
    return SelfAttention(qkv, _attention_output(state, name))


def _ssru(state: Mapping[str, Floats], name: str) -> Ssru:
    z, f = state[f"{name}.w.weight"].T, _linear(state, f"{name}.w_f")
    weight = np.concatenate([z, f.weight], axis=1)
    return Ssru(Linear(weight, np.concatenate([np.zeros(z.shape[1], np.float32), f.bias])))


def _cross_attention(state: Mapping[str, Floats], config: ModelConfig, name: str) -> CrossAttention:
    return CrossAttention(
        q=_queries(state, config, name),
        key=state[f"{name}.w_k.weight"].T,
        value=state[f"{name}.w_v.weight"].T,
        out=_attention_output(state, name),
    )


def _queries(state: Mapping[str, Floats], config: ModelConfig, name: str) -> Linear:
    """W^Q multiplied by 1 / sqrt(d_k)."""
    linear = _linear(state, f"{name}.w_q")
    scale = np.float32(config.head_dim**-0.5)
    return Linear(linear.weight * scale, linear.bias * scale)


def _attention_output(state: Mapping[str, Floats], name: str) -> Linear:
    """W^O, with b_o + b_v W^O as its bias."""
    out = _linear(state, f"{name}.w_o")
    passed = state[f"{name}.w_v.bias"].astype(np.float64) @ out.weight.astype(np.float64)
    return Linear(out.weight, (passed + out.bias).astype(np.float32))


def _linear(state: Mapping[str, Floats], name: str) -> Linear:
    return Linear(state[f"{name}.weight"].T, state[f"{name}.bias"])


def _norm(state: Mapping[str, Floats], name: str) -> Norm:
    return Norm(gamma=state[f"{name}.weight"], beta=state[f"{name}.bias"])
