"""Converts a model to CTranslate2's format, so that both engines run the same weights.

The vocabulary's tokens are the ids as decimal numbers. So both engines take and return ids, and neither engine's time
includes a tokeniser.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from ctranslate2.specs import common_spec, transformer_spec  # type: ignore[import-untyped]
from numpy.typing import NDArray

from model.config import BOS_ID, EOS_ID, UNK_ID
from model.transformer import Transformer

Quantization = Literal["int8", "float32"]
ACTIVATIONS = {
    "relu": common_spec.Activation.RELU,
    "gelu": common_spec.Activation.GELU,
    "silu": common_spec.Activation.SWISH,
}


def write_ctranslate2(model: Transformer, folder: Path, quantization: Quantization) -> None:
    """Convert a model and write it to `folder`, which must not exist. Copies the model's table of positions."""
    config = model.config
    weights = _Weights(model)
    spec = transformer_spec.TransformerSpec.from_config(
        num_layers=(config.num_encoder_layers, config.num_decoder_layers),
        num_heads=config.num_heads,
        pre_norm=config.norm == "pre",
        activation=ACTIVATIONS[config.activation],
    )
    for stack in (spec.encoder, spec.decoder):
        stack.scale_embeddings = True
        stack.position_encodings.encodings = model.embedding.positions.detach().float().numpy().copy()
    spec.encoder.embeddings[0].weight = weights["embedding.weight"]
    spec.decoder.embeddings.weight = weights["embedding.weight"].copy()
    spec.decoder.projection.weight = weights["embedding.weight"].copy()
    if config.output_bias:
        spec.decoder.projection.bias = weights["embedding.output_bias"]
    for side, layers in (("encoder", spec.encoder.layer), ("decoder", spec.decoder.layer)):
        for index, layer in enumerate(layers):
            weights.set_layer(layer, f"{side}.{index}")
    if config.norm == "pre":
        weights.set_norm(spec.encoder.layer_norm, "encoder_norm")
        weights.set_norm(spec.decoder.layer_norm, "decoder_norm")
    vocabulary = [str(index) for index in range(config.vocab_size)]
    spec.register_source_vocabulary(vocabulary)
    spec.register_target_vocabulary(vocabulary)
    spec.config.bos_token = spec.config.decoder_start_token = vocabulary[BOS_ID]
    spec.config.eos_token, spec.config.unk_token = vocabulary[EOS_ID], vocabulary[UNK_ID]
    spec.config.add_source_bos = spec.config.add_source_eos = False
    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    folder.mkdir(parents=True)
    spec.save(str(folder))


class _Weights:
    """Copies the model's state into a CTranslate2 specification."""

    def __init__(self, model: Transformer) -> None:
        self._state: dict[str, NDArray[np.float32]] = {
            name: value.detach().float().numpy().copy() for name, value in model.state_dict().items()
        }

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        return self._state[name]

    def set_layer(self, layer: Any, name: str) -> None:
        """Copy an encoder layer, or a decoder layer, which also has a cross-attention block."""
        self_attention = layer.self_attention
        self._set_linear(self_attention.linear[0], *(f"{name}.self_attention.w_{part}" for part in "qkv"))
        self._set_linear(self_attention.linear[1], f"{name}.self_attention.w_o")
        norms = [self_attention.layer_norm]
        if hasattr(layer, "attention"):
            cross = layer.attention
            self._set_linear(cross.linear[0], f"{name}.cross_attention.w_q")
            self._set_linear(cross.linear[1], *(f"{name}.cross_attention.w_{part}" for part in "kv"))
            self._set_linear(cross.linear[2], f"{name}.cross_attention.w_o")
            norms.append(cross.layer_norm)
        self._set_linear(layer.ffn.linear_0, f"{name}.feed_forward.w_1")
        self._set_linear(layer.ffn.linear_1, f"{name}.feed_forward.w_2")
        norms.append(layer.ffn.layer_norm)
        for index, norm in enumerate(norms):
            self.set_norm(norm, f"{name}.residuals.{index}.norm")

    def set_norm(self, norm: Any, name: str) -> None:
        """Copy the scale and the offset of a layer norm."""
        norm.gamma, norm.beta = self[f"{name}.weight"], self[f"{name}.bias"]

    def _set_linear(self, linear: Any, *names: str) -> None:
        """Copy linear layers with the same input as one layer with concatenated outputs: weight (outputs, inputs)."""
        linear.weight = np.concatenate([self[f"{name}.weight"] for name in names])
        linear.bias = np.concatenate([self[f"{name}.bias"] for name in names])
