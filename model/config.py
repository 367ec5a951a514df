"""The hyper-parameters of a Transformer: one frozen configuration, and named presets."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

Norm = Literal["post", "pre"]
Activation = Literal["relu", "gelu", "silu"]
Positions = Literal["sinusoidal", "learned"]
Decoder = Literal["attention", "ssru"]

PAD_ID, BOS_ID, EOS_ID, UNK_ID = 0, 1, 2, 3


class ConfigError(ValueError):
    """A configuration that contradicts itself or names something that does not exist."""


@dataclass(frozen=True)
class ModelConfig:
    """Hyper-parameters of "Attention Is All You Need", and options that the paper does not have.

    vocab_size: size of the joint vocabulary, in subwords.
    d_model, d_ff: widths (sections 3.2 and 3.3). num_heads: h; a head has d_model / num_heads columns.
    num_encoder_layers, num_decoder_layers: N of section 3.1, here two independent numbers.
    dropout: P_drop of section 5.4, on each sub-layer's output and on the embedding sums; 0 is off.
    norm: "post" is LayerNorm(x + Sublayer(x)), section 3.1; "pre" is x + Sublayer(LayerNorm(x)).
    activation: activation of the feed-forward network; the paper's is "relu", equation (2).
    positions: "sinusoidal" (section 3.5, sine and cosine interleaved) or "learned" (Table 3, row E).
    output_bias: whether the logits have a bias (vocab_size,). Marian's logits have one, the paper's have none.
    own_source_table, own_output_table: whether the source or the output has its own table (vocab_size, d_model). In the
        paper, source, target and output share one. With its own table, a source may have other subwords than a target
        for the same ids.
    max_length: the longest source or target, in subwords with the end token.
    decoder: the first sub-layer of a decoder layer. "attention" is the paper's masked self-attention, "ssru" a
        recurrence (`model.ssru`).
    """

    vocab_size: int
    d_model: int = 512
    num_heads: int = 8
    d_ff: int = 2048
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    dropout: float = 0.1
    norm: Norm = "post"
    activation: Activation = "relu"
    positions: Positions = "sinusoidal"
    max_length: int = 256
    output_bias: bool = False
    own_source_table: bool = False
    own_output_table: bool = False
    decoder: Decoder = "attention"

    def __post_init__(self) -> None:
        """Raise ConfigError for values with which no model can be built."""
        for name in (
            "vocab_size",
            "d_model",
            "num_heads",
            "d_ff",
            "num_encoder_layers",
            "num_decoder_layers",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}: it must be at least 1")
        if self.d_model % self.num_heads:
            raise ConfigError(f"d_model {self.d_model} is not a multiple of num_heads {self.num_heads}")
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ConfigError(
                f"d_model {self.d_model} is odd: sinusoidal positions pair a sine with a cosine"
            )
        if not 0.0 <= self.dropout < 1.0:
            raise ConfigError(f"dropout {self.dropout} is outside [0, 1)")
        if self.max_length < 2:
            raise ConfigError(f"max_length {self.max_length} leaves no room for a subword and the end token")
        for name, known in (
            ("norm", ("post", "pre")),
            ("activation", ("relu", "gelu", "silu")),
            ("positions", ("sinusoidal", "learned")),
            ("decoder", ("attention", "ssru")),
        ):
            if getattr(self, name) not in known:
                raise ConfigError(f"{name} is {getattr(self, name)!r}: one of {', '.join(known)} is needed")

    @property
    def head_dim(self) -> int:
        """d_k = d_v = d_model / h (section 3.2.2)."""
        return self.d_model // self.num_heads

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a JSON object."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(fields: dict[str, Any]) -> ModelConfig:
        """Read what `to_json` wrote. A missing field has its default.

        Raises ConfigError if vocab_size is missing, a field is unknown, or a value is impossible.
        """
        known = {field.name for field in dataclasses.fields(ModelConfig)}
        if unknown := sorted(set(fields) - known):
            raise ConfigError(f"unknown model fields: {', '.join(unknown)}")
        if "vocab_size" not in fields:
            raise ConfigError("the model field vocab_size is missing")
        return ModelConfig(**fields)


# base and big are the paper's (Table 3). tiny is for tests. small can be trained and served on two CPU cores. small and
# fast have a deep encoder, which runs once for each sentence, and a shallow decoder, which runs once for each subword.
PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"d_model": 64, "num_heads": 2, "d_ff": 128, "num_encoder_layers": 2, "num_decoder_layers": 2},
    "small": {"d_model": 256, "num_heads": 4, "d_ff": 1024, "num_encoder_layers": 6, "num_decoder_layers": 3},
    "base": {"d_model": 512, "num_heads": 8, "d_ff": 2048, "num_encoder_layers": 6, "num_decoder_layers": 6},
    "fast": {"d_model": 512, "num_heads": 8, "d_ff": 2048, "num_encoder_layers": 12, "num_decoder_layers": 2},
    "big": {
        "d_model": 1024,
        "num_heads": 16,
        "d_ff": 4096,
        "num_encoder_layers": 6,
        "num_decoder_layers": 6,
        "dropout": 0.3,
    },
}


def preset(name: str, vocab_size: int, **changes: Any) -> ModelConfig:
    """Return the preset `name` for a vocabulary, with fields changed by keyword.

    Raises ConfigError for a name that is not in PRESETS, a field that does not exist or an impossible value.
    """
    if name not in PRESETS:
        raise ConfigError(f"no preset is called {name!r}: one of {', '.join(PRESETS)} is needed")
    return ModelConfig.from_json({**PRESETS[name], "vocab_size": vocab_size, **changes})
