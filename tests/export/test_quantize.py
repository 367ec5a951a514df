"""Quantisation to int8: rounding errors, columns, and rows of zeros."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from export.quantize import CHUNK_ROWS, LARGEST, quantize_columns, quantize_rows

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
def test_pairs_of_columns_have_the_largest_scale_at_which_their_sums_fit(
    table: np.ndarray[tuple[int, int], np.dtype[np.float32]],
) -> None:
    """A sum of two rounded weights may be 1 larger than LARGEST. A single last column is no pair."""
    quantized, scales = quantize_rows(table)
    even = table.shape[1] // 2 * 2
    sums = quantized[:, :even:2].astype(int) + quantized[:, 1:even:2]
    assert np.abs(sums).max(initial=0) <= LARGEST + 1
    used = np.abs(table[:, :even:2].astype(np.float64) + table[:, 1:even:2]).max(axis=1, initial=0)
    used = np.maximum(used, np.abs(table).max(axis=1)) / LARGEST
    np.testing.assert_allclose(scales[used > 0], used[used > 0], rtol=1e-5)


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


def test_a_row_does_not_depend_on_the_number_of_rows_before_it() -> None:
    table = np.random.default_rng(1).normal(size=(CHUNK_ROWS + 2, 3)).astype(np.float32)
    quantized, scales = quantize_rows(table)
    last, last_scales = quantize_rows(table[CHUNK_ROWS - 1 :])
    np.testing.assert_array_equal(quantized[CHUNK_ROWS - 1 :], last)
    np.testing.assert_array_equal(scales[CHUNK_ROWS - 1 :], last_scales)


def test_the_smallest_numbers_keep_their_signs() -> None:
    """Their scale is the smallest number itself, so their quotients are larger than LARGEST."""
    smallest = np.float32(2.0**-149)
    quantized, scales = quantize_rows(np.array([[190, -180]], np.float32) * smallest)
    assert scales == [smallest]
    assert quantized.tolist() == [[LARGEST, -LARGEST]]
