"""The sizes of a bundle's model, and the features that its kind of decoder does not allow."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from app.graphs import Precision
from app.language_pairs import ManifestPart


class Dimensions(ManifestPart):
    """Sizes of the model. positions, decoder: kinds of the position table and of the decoder, as in `model.config`.

    A manifest without the field `decoder` means a decoder of self-attention. For such a decoder the field is not
    written, so that older servers read the manifest.
    """

    vocab_size: int = Field(ge=8)
    d_model: int = Field(ge=2)
    num_heads: int = Field(ge=1)
    d_ff: int = Field(ge=1)
    num_encoder_layers: int = Field(ge=1)
    num_decoder_layers: int = Field(ge=1)
    norm: Literal["post", "pre"]
    activation: Literal["relu", "gelu", "silu"]
    positions: Literal["sinusoidal", "learned"]
    decoder: Literal["attention", "ssru"] = "attention"

    @property
    def head_dim(self) -> int:
        """d_model / num_heads."""
        return self.d_model // self.num_heads

    @model_serializer(mode="wrap")
    def _as_written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out the field `decoder` if the decoder has self-attention."""
        fields: dict[str, Any] = write(self)
        if self.decoder == "attention":
            del fields["decoder"]
        return fields


def decoder_problems(
    dimensions: Dimensions, precisions: Set[Precision], *, has_target_starts: bool
) -> Iterator[str]:
    """Yield a problem for each feature of a manifest that its kind of decoder does not allow."""
    if dimensions.decoder != "ssru":
        return
    if "fp16" in precisions:
        yield "variants: fp16 is not possible with dimensions.decoder ssru, which runs on a CPU only"
    if has_target_starts:
        # A model with target_starts decodes bos once, before a row's first step. A search that starts again in the row
        # needs the result of that step. A cache keeps it as the column of bos; a recurrent state is overwritten.
        yield "language_pairs: a target_start is not possible with dimensions.decoder ssru"
