"""Symmetric eight-bit quantisation of weights: x ~ q * scale, q in [-127, 127], one scale for each column or row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Int8s = NDArray[np.int8]

LARGEST = 127


def quantize_columns(weight: Floats) -> tuple[Int8s, Floats]:
    """Quantise (inputs, outputs) to int8 of the same shape and scales (outputs,). A column of zeros has scale 1."""
    quantized, scales = quantize_rows(np.ascontiguousarray(weight.T))
    return np.ascontiguousarray(quantized.T), scales


def quantize_rows(table: Floats) -> tuple[Int8s, Floats]:
    """Quantise (rows, columns) to int8 of the same shape and scales (rows,). A row of zeros has scale 1."""
    scales = np.abs(table).max(axis=1) / LARGEST
    scales[scales == 0] = 1.0
    quantized = np.rint(table / scales[:, None]).clip(-LARGEST, LARGEST)
    return quantized.astype(np.int8), scales.astype(np.float32)
