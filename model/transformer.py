"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017), in the paper's order.

Shapes: batch, source_length, target_length, d_model, num_heads (the paper's h), head_dim (d_k = d_v).
Masks are boolean, and True where a query may attend. `None` means that it may attend everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.config import PAD_ID, ModelConfig
from model.dropout import Dropout
from model.ssru import SSRU

# --- 3.1 Encoder and decoder stacks: masks ---


def padding_mask(ids: Tensor) -> Tensor:
    """Mask (batch, 1, 1, length) of the keys of `ids` (batch, length) that are not padding."""
    return (ids != PAD_ID)[:, None, None, :]


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """Mask (length, length) that keeps position i from attending past i (section 3.1)."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def without_autocast(device: torch.device) -> torch.autocast:
    """A context in which operations keep the types of their inputs."""
    return torch.autocast(device.type, enabled=False)


# --- 3.2.1 Scaled dot-product attention ---


def scaled_dot_product_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V, equation (1), step by step.

    q (batch, num_heads, queries, head_dim), k and v (batch, num_heads, keys, head_dim), mask
    broadcast to (batch, num_heads, queries, keys). Returns the result, shaped as q, and the weights
    (batch, num_heads, queries, keys). The fused kernel computes the same without keeping the weights.
    """
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = scores.softmax(dim=-1)
    return weights @ v, weights


# --- 3.2.2 Multi-head attention ---


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O, head_i = Attention(Q W^Q, K W^K, V W^V)."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def project_heads(self, queries: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Q W^Q, K W^K, V W^V, each (batch, length, d_model) -> (batch, num_heads, length, head_dim)."""
        projected = (self.w_q(queries), self.w_k(memory), self.w_v(memory))
        q, k, v = (x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x in projected)
        return q, k, v

    def forward(
        self, queries: Tensor, memory: Tensor, mask: Tensor | None = None, *, causal: bool = False
    ) -> Tensor:
        """Attend from `queries` (batch, queries, d_model) to `memory` (batch, keys, d_model), fused.

        `causal` applies the mask of `causal_mask` without building it. It cannot be combined with `mask`.
        """
        q, k, v = self.project_heads(queries, memory)
        dtype = q.dtype
        with without_autocast(q.device):
            if q.device.type == "cpu":  # the backward pass of the CPU's bf16 kernel takes six times as long
                q, k, v = q.float(), k.float(), v.float()
            heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal).to(dtype)
        joined: Tensor = self.w_o(heads.transpose(1, 2).flatten(-2))
        return joined

    def attend_explicitly(
        self, queries: Tensor, memory: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """As `forward`, but by equation (1). Also returns the weights (batch, num_heads, queries, keys)."""
        q, k, v = self.project_heads(queries, memory)
        heads, weights = scaled_dot_product_attention(q, k, v, mask)
        return self.w_o(heads.transpose(1, 2).flatten(-2)), weights


# --- 3.3 Position-wise feed-forward networks ---

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, equation (2), or with another activation."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.w_1 = nn.Linear(config.d_model, config.d_ff)
        self.w_2 = nn.Linear(config.d_ff, config.d_model)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, d_model) -> the same shape."""
        y: Tensor = self.w_2(self.activation(self.w_1(x)))
        return y


# --- 3.4 Embeddings and 3.5 positional encoding ---


def sinusoidal_positions(max_length: int, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos(the same): (max_length, d_model)."""
    # On the CPU, because other tensors that `empty_model` makes have no memory.
    position = torch.arange(max_length, dtype=torch.float64, device="cpu")[:, None]
    even = torch.arange(0, d_model, 2, dtype=torch.float64, device="cpu")
    frequency = torch.exp(even * (-math.log(10000.0) / d_model))
    angles = position * frequency
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2).float()


class Embedding(nn.Module):
    """Subword embeddings times sqrt(d_model) (section 3.4) plus positions (section 3.5), with dropout.

    One weight (vocab_size, d_model) serves the target and, unless they have their own, the source and the output.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.scale = math.sqrt(config.d_model)
        self.weight = nn.Parameter(torch.empty(config.vocab_size, config.d_model))
        self.source_weight = nn.Parameter(torch.empty_like(self.weight)) if config.own_source_table else None
        self.output_weight = nn.Parameter(torch.empty_like(self.weight)) if config.own_output_table else None
        self.output_bias = nn.Parameter(torch.zeros(config.vocab_size)) if config.output_bias else None
        self.dropout = Dropout(config.dropout)
        if config.positions == "learned":
            self.positions = nn.Parameter(torch.empty(config.max_length, config.d_model))
        else:
            self.register_buffer(
                "positions", sinusoidal_positions(config.max_length, config.d_model), persistent=False
            )

    @property
    def source_table(self) -> Tensor:
        """The table (vocab_size, d_model) that embeds sources."""
        return self.weight if self.source_weight is None else self.source_weight

    @property
    def output_table(self) -> Tensor:
        """The table (vocab_size, d_model) that `project` multiplies with."""
        return self.weight if self.output_weight is None else self.output_weight

    def forward(self, ids: Tensor, *, is_source: bool = False) -> Tensor:
        """Ids (batch, length) -> (batch, length, d_model). Raises ValueError past max_length."""
        if ids.size(1) > self.positions.size(0):
            raise ValueError(f"{ids.size(1)} subwords, where positions end at {self.positions.size(0)}")
        table = self.source_table if is_source else self.weight
        x = F.embedding(ids, table) * self.scale + self.positions[: ids.size(1)]
        if torch.is_autocast_enabled(x.device.type):  # residual sums of mixed types are slow on a CPU
            x = x.to(torch.get_autocast_dtype(x.device.type))
        embedded: Tensor = self.dropout(x)
        return embedded

    def project(self, x: Tensor) -> Tensor:
        """(..., d_model) -> logits (..., vocab_size), by `output_table` (section 3.4) and the bias, if there is one."""
        return F.linear(x, self.output_table, self.output_bias)


# --- 3.1 Encoder and decoder stacks ---


class Norm(nn.LayerNorm):
    """Layer normalisation that returns the type of its input. Autocast on a GPU would return fp32."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  (PyTorch's name)
        """(..., d_model) -> the same shape."""
        if input.device.type == "cpu":
            return super().forward(input)
        with without_autocast(input.device):
            weight, bias = self.weight.to(input.dtype), self.bias.to(input.dtype)
            return F.layer_norm(input, self.normalized_shape, weight, bias, self.eps)


class Residual(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))) as in sections 3.1 and 5.4. Pre-norm moves the norm inside."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = Norm(config.d_model, eps=1e-5)
        self.dropout = Dropout(config.dropout)
        self.is_pre_norm = config.norm == "pre"

    def before(self, x: Tensor) -> Tensor:
        """The sub-layer's input: x, normalised only in pre-norm."""
        y: Tensor = self.norm(x) if self.is_pre_norm else x
        return y

    def after(self, x: Tensor, sublayer: Tensor) -> Tensor:
        """The sum of x and the sub-layer's output, normalised only in post-norm."""
        y: Tensor = x + self.dropout(sublayer)
        if not self.is_pre_norm:
            y = self.norm(y)
        return y


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config.d_model, config.num_heads)
        self.feed_forward = FeedForward(config)
        self.residuals = nn.ModuleList(Residual(config) for _ in range(2))

    def forward(self, x: Tensor, source_mask: Tensor | None) -> Tensor:
        """(batch, source_length, d_model) -> the same shape."""
        attention, feed_forward = cast(list[Residual], self.residuals)
        y = attention.before(x)
        x = attention.after(x, self.self_attention(y, y, source_mask))
        x = feed_forward.after(x, self.feed_forward(feed_forward.before(x)))
        return x


class DecoderLayer(nn.Module):
    """Masked self-attention or an SSRU, attention over the encoder's output, then the feed-forward network."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        has_ssru = config.decoder == "ssru"
        self.ssru = SSRU(config.d_model) if has_ssru else None
        self.self_attention = None if has_ssru else MultiHeadAttention(config.d_model, config.num_heads)
        self.cross_attention = MultiHeadAttention(config.d_model, config.num_heads)
        self.feed_forward = FeedForward(config)
        self.residuals = nn.ModuleList(Residual(config) for _ in range(3))

    def forward(self, x: Tensor, memory: Tensor, source_mask: Tensor | None) -> Tensor:
        """x (batch, target_length, d_model), memory (batch, source_length, d_model) -> the shape of x."""
        first, cross_attention, feed_forward = cast(list[Residual], self.residuals)
        x = first.after(x, self.mix_positions(first.before(x)))
        x = cross_attention.after(x, self.cross_attention(cross_attention.before(x), memory, source_mask))
        x = feed_forward.after(x, self.feed_forward(feed_forward.before(x)))
        return x

    def mix_positions(self, y: Tensor) -> Tensor:
        """The first sub-layer, in which position t of y (batch, target_length, d_model) reads positions up to t."""
        if self.self_attention is None:
            mixed: Tensor = cast(SSRU, self.ssru)(y)
        else:
            mixed = self.self_attention(y, y, causal=True)
        return mixed


def final_norm(config: ModelConfig) -> nn.Module:
    """The norm at the end of a stack. Pre-norm leaves sums unnormalised and needs one. The paper's stacks have none."""
    return Norm(config.d_model, eps=1e-5) if config.norm == "pre" else nn.Identity()


class Transformer(nn.Module):
    """Figure 1: encoder, decoder and the shared embedding. Targets are right-padded with PAD_ID."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_encoder_layers))
        self.encoder_norm = final_norm(config)
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_decoder_layers))
        self.decoder_norm = final_norm(config)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise matrices as Glorot-uniform and biases as zero. Embeddings are N(0, 1 / d_model).

        Learned positions are initialised as the embeddings. Once scaled by sqrt(d_model), these have unit variance.
        """
        for name, parameter in self.named_parameters():
            if parameter.is_meta:  # to fill it, PyTorch would import its compiler, which takes a second
                continue
            if name == "embedding.output_bias":
                nn.init.zeros_(parameter)
            elif name.startswith("embedding."):
                nn.init.normal_(parameter, std=self.config.d_model**-0.5)
            elif parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def encode(self, source: Tensor, source_mask: Tensor | None = None) -> Tensor:
        """Ids (batch, source_length) -> memory (batch, source_length, d_model)."""
        x = self.embedding(source, is_source=True)
        for layer in self.encoder:
            x = layer(x, source_mask)
        memory: Tensor = self.encoder_norm(x)
        return memory

    def decode(self, target: Tensor, memory: Tensor, source_mask: Tensor | None = None) -> Tensor:
        """Ids (batch, target_length), shifted right, and memory -> (batch, target_length, d_model).

        Position t sees targets up to t. Padding lies to the right, so the causal mask also hides it.
        """
        x = self.embedding(target)
        for layer in self.decoder:
            x = layer(x, memory, source_mask)
        decoded: Tensor = self.decoder_norm(x)
        return decoded

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits (batch, target_length, vocab_size) of the subword after each target position."""
        mask = source_padding(source)
        return self.embedding.project(self.decode(target, self.encode(source, mask), mask))


def empty_model(config: ModelConfig) -> Transformer:
    """A model without memory for its parameters, which `load_state_dict(..., assign=True)` sets."""
    with torch.device("meta"):
        return Transformer(config)


def source_padding(source: Tensor) -> Tensor | None:
    """`padding_mask`, or None if nothing is padded, which keeps the fused kernel on its fastest path."""
    mask = padding_mask(source)
    return None if bool(mask.all()) else mask


def num_parameters(model: nn.Module) -> int:
    """The number of trained parameters. The shared embedding counts once."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
