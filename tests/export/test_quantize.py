"""Quantisation to int8: rounding errors, columns, and rows of zeros."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from export.quantize import LARGEST, quantize_columns, quantize_rows

tables = arrays(
    np.float32,
    array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=6),
    elements=st.floats(-1e4, 1e4, width=32, allow_subnormal=False),
)


@given(tables)
def test_each_value_is_within_half_a_step_of_its_row(
    table: np.ndarray[tuple[int, int], np.dtype[np.float32]],
) -> None:
    quantized, scales = quantize_rows(table)
    assert quantized.dtype == np.int8
    error = np.abs(quantized * scales[:, None].astype(np.float64) - table)
    assert (error <= scales[:, None] * (0.5 + 1e-4)).all()
    assert quantized.min() >= -LARGEST


@given(tables)
def test_columns_are_rows_of_the_transpose(table: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> None:
    quantized, scales = quantize_columns(table)
    rows, row_scales = quantize_rows(table.T.copy())
    np.testing.assert_array_equal(quantized.T, rows)
    np.testing.assert_array_equal(scales, row_scales)


def test_zeros_stay_zeros() -> None:
    quantized, scales = quantize_rows(np.zeros((2, 3), np.float32))
    assert not quantized.any()
    np.testing.assert_array_equal(scales, [1.0, 1.0])
