"""The operators' arithmetic in numpy: exact int8 sums, floats in float32 or wider."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from export.quantize import LARGEST

Floats = NDArray[np.float32]
EPSILON = 1e-5
# The outputs of a block, by name.
OUTPUTS = {"total": "float32", "normalised": "float32"}
# The tolerance of attention in int8. A number between two quantisation levels may round either way. This changes an
# output by at most LEVEL.
LEVEL = 0.02


def quantized(x: Floats, *, is_rectified: bool = False) -> tuple[NDArray[np.int64], Floats]:
    """Quantised rows (rows, columns), and the scale of each row (rows, 1): the row's largest magnitude / levels.

    is_rectified: x is the output of ReLU, so all 255 levels are for numbers above 0.
    """
    levels = np.float32(255 if is_rectified else 127)
    magnitude = np.abs(x).max(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = np.rint(x * (levels / magnitude))
    return np.nan_to_num(whole, posinf=0, neginf=0).astype(np.int64), magnitude / levels


@dataclass(frozen=True)
class Weights:
    """The weights of a product as the graph stores them. scales: empty for weights in float32."""

    stored: NDArray[Any]
    scales: Floats
    bias: Floats

    @property
    def is_int8(self) -> bool:
        return self.stored.dtype == np.int8

    def inputs(self, suffix: str) -> dict[str, NDArray[Any]]:
        """The node's constants w, s and b, with a suffix."""
        return {f"w_{suffix}": self.stored, f"s_{suffix}": self.scales, f"b_{suffix}": self.bias}

    def product(self, x: Floats, *, is_rectified: bool = False) -> Floats:
        """x W + b, (rows, outputs)."""
        if not self.is_int8:
            product: Floats = (x.astype(np.float64) @ self.stored + self.bias).astype(np.float32)
            return product
        whole, scale = quantized(x, is_rectified=is_rectified)
        # The sums are exact, because every sum is an integer below 2^53.
        sums = whole.astype(np.float64) @ self.stored.astype(np.float64)
        scaled: Floats = (sums * scale.astype(np.float64) * self.scales + self.bias).astype(np.float32)
        return scaled


def random_weights(seed: int, inputs: int, outputs: int, *, dtype: str = "int8") -> Weights:
    """Weights with the magnitude of a trained layer. Outputs are about as large as inputs."""
    random = np.random.default_rng(seed)
    weight = (random.standard_normal((inputs, outputs)) / np.sqrt(inputs)).astype(np.float32)
    bias = random.standard_normal(outputs).astype(np.float32)
    if dtype == "float32":
        return Weights(weight, np.zeros(0, np.float32), bias)
    stored, scales = quantized_rows(weight.T)
    return Weights(np.ascontiguousarray(stored.T), scales, bias)


def random_table(seed: int, rows: int, columns: int, *, dtype: str = "int8") -> Weights:
    """An embedding table (rows, columns). Its bias is not used."""
    values = np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)
    nothing = np.zeros(0, np.float32)
    if dtype == "float32":
        return Weights(values, nothing, nothing)
    stored, scales = quantized_rows(values)
    return Weights(stored, scales, nothing)


def quantized_rows(table: Floats) -> tuple[NDArray[np.int8], Floats]:
    """int8 weights (rows, columns) and the scales of the rows, without the export's limit for pairs of weights.

    The kernels have other products for weights within that limit, which all models of `transduce export` have.
    """
    scales = np.abs(table).max(axis=1) / np.float32(LARGEST)
    return np.rint(table / scales[:, None]).astype(np.int8), scales


def norm_inputs(seed: int, width: int) -> dict[str, Floats]:
    """The node's constants gamma and beta."""
    random = np.random.default_rng(seed)
    return {
        "gamma": (1 + random.standard_normal(width) / 10).astype(np.float32),
        "beta": random.standard_normal(width).astype(np.float32),
    }


def layer_norm(x: Floats, gamma: Floats, beta: Floats) -> Floats:
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=1, keepdims=True)
    variance = (centred**2).mean(axis=1, keepdims=True)
    normalised: Floats = (centred / np.sqrt(variance + EPSILON) * gamma + beta).astype(np.float32)
    return normalised


def attention(q: Floats, keys: Floats, values: Floats, num_heads: int) -> tuple[Floats, Floats]:
    """One row's attention output (d,) and weights (num_heads, columns), for q (d,) and keys, values (columns, d).

    The scale 1 / sqrt(d_k) is part of q.
    """
    heads = []
    weights = []
    for head in np.split(np.arange(q.size), num_heads):
        scores = keys[:, head].astype(np.float64) @ q[head].astype(np.float64)
        weight = np.exp(scores - scores.max())
        weight /= weight.sum()
        heads.append(weight @ values[:, head].astype(np.float64))
        weights.append(weight)
    return np.concatenate(heads).astype(np.float32), np.array(weights, np.float32)
