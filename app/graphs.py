"""The manifest's description of a variant's graphs, without Pydantic, for processes that only load graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

Precision = Literal["int8", "fp16", "fp32"]
# The requested operators on a CPU: ONNX Runtime's (standard), the native ones, or the native ones of one target
# (`app/runtime/native/cpu.py`). auto: native if possible.
KernelChoice = Literal["auto", "native", "avx512", "avxvnni", "avx2", "neon", "standard"]
# Pydantic reads this in `app.bundle`. Unknown fields are errors.
STRICT = {"extra": "forbid"}


@dataclass(frozen=True)
class TensorSpec:
    """One input or output of a graph. axes: the size of each axis, or a name if the size varies."""

    __pydantic_config__: ClassVar = STRICT

    name: str
    dtype: str
    axes: tuple[int | str, ...]


@dataclass(frozen=True)
class GraphSpec:
    """One graph of a variant. file: its path in the bundle."""

    __pydantic_config__: ClassVar = STRICT

    file: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    def has_input(self, name: str) -> bool:
        """Whether the graph has an input of this name."""
        return any(spec.name == name for spec in self.inputs)


@dataclass(frozen=True)
class GraphPair:
    """An encoder and its decoder."""

    __pydantic_config__: ClassVar = STRICT

    encoder: GraphSpec
    decoder: GraphSpec


@dataclass(frozen=True, kw_only=True)
class Variant(GraphPair):
    """The model in one precision: graphs for ONNX Runtime's own operators, and for the native kernels.

    opset: opset version of the standard operators. native: None if the kernels do not support the model's size or the
    precision. gpu_decoder: the decoder with this project's attention kernel for GPUs, in fp16; None if there is none.
    """

    __pydantic_config__: ClassVar = STRICT

    opset: int
    native: GraphPair | None = None
    gpu_decoder: GraphSpec | None = None

    @property
    def encoders(self) -> tuple[GraphSpec, ...]:
        """All encoder graphs."""
        return (self.encoder, *([self.native.encoder] if self.native else []))

    @property
    def decoders(self) -> tuple[GraphSpec, ...]:
        """All decoder graphs."""
        native = [self.native.decoder] if self.native else []
        return (self.decoder, *native, *([self.gpu_decoder] if self.gpu_decoder else []))
