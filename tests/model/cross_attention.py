"""The cross-attention of a model's forward pass, to compare with what `model.attention_maps` computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from model.transformer import DecoderLayer, MultiHeadAttention, Transformer


def forward_cross_weights(model: Transformer, source: Sequence[int], target: Sequence[int]) -> Tensor:
    """The weights (num_decoder_layers, num_heads, target_length, source_length) for the inputs of the forward pass."""
    found: list[Tensor] = []

    def record(attention: MultiHeadAttention, inputs: tuple[Any, ...], _output: Tensor) -> None:
        found.append(attention.attend_explicitly(*inputs)[1])

    layers = cast(list[DecoderLayer], model.decoder)
    hooks = [layer.cross_attention.register_forward_hook(record) for layer in layers]
    try:
        with torch.no_grad():
            model(torch.tensor([list(source)]), torch.tensor([list(target)]))
    finally:
        for hook in hooks:
            hook.remove()
    return torch.cat(found)
