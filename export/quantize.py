"""Symmetric eight-bit quantisation of weights: x ~ q * scale, one scale for each column or row.

q is in [-127, 127]. The weights of inputs 2i and 2i + 1 are a pair. The sum of a pair is in [-128, 128], because
processors with AVX2 and without VNNI then multiply faster (docs/native-kernels.md, Small pairs).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Int8s = NDArray[np.int8]

# The largest magnitude of a quantised weight. Before rounding, also of the sum of a pair.
LARGEST = 127
# Rows that are converted at a time. If larger, temporary arrays take more memory.
CHUNK_ROWS = 1024


def quantize_columns(weight: Floats) -> tuple[Int8s, Floats]:
    """Quantise (inputs, outputs) to int8 of the same shape and scales (outputs,). A column of zeros has scale 1."""
    quantized, scales = quantize_rows(weight.T)
    return np.ascontiguousarray(quantized.T), scales


def quantize_rows(table: Floats, *, factor: float = 1.0) -> tuple[Int8s, Floats]:
    """Quantise (rows, columns) times `factor` to int8 of the same shape and scales (rows,).

    A row of zeros has scale 1.
    """
    quantized, scales = np.empty(table.shape, np.int8), np.empty(len(table), np.float32)
    for start in range(0, len(table), CHUNK_ROWS):
        rows = slice(start, start + CHUNK_ROWS)
        values = np.ascontiguousarray(table[rows]) * np.float32(factor)
        pairs = values[:, : values.shape[1] // 2 * 2].reshape(len(values), -1, 2).sum(axis=2)
        found = np.maximum(np.abs(values).max(axis=1), np.abs(pairs).max(axis=1, initial=0)) / LARGEST
        found[found == 0] = 1.0
        quantized[rows] = np.rint(values / found[:, None]).clip(-LARGEST, LARGEST)
        scales[rows] = found
    return quantized, scales
