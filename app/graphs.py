"""The graphs of a bundle's variant: what whoever loads them needs of the manifest, without the manifest's reader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

Precision = Literal["int8", "fp16", "fp32"]
# For the manifest's reader: a field that is not known is refused.
STRICT = {"extra": "forbid"}


@dataclass(frozen=True)
class TensorSpec:
    """One input or output of a graph: axes are sizes, or names of sizes that vary."""

    __pydantic_config__: ClassVar = STRICT

    name: str
    dtype: str
    axes: tuple[int | str, ...]


@dataclass(frozen=True)
class GraphSpec:
    """One graph of a variant. `file` is a path in the bundle."""

    __pydantic_config__: ClassVar = STRICT

    file: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


@dataclass(frozen=True)
class GraphPair:
    """An encoder and a decoder that belong together."""

    __pydantic_config__: ClassVar = STRICT

    encoder: GraphSpec
    decoder: GraphSpec


@dataclass(frozen=True, kw_only=True)
class Variant(GraphPair):
    """The same weights in one precision: graphs of ONNX Runtime's own operators, and of the native kernels.

    opset: of the standard operators. native: None where the kernels do not take a model of this size or precision.
    """

    __pydantic_config__: ClassVar = STRICT

    opset: int
    native: GraphPair | None = None
