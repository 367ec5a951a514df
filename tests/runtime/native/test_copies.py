"""Copies of cache rows by the native library: any moves come out as if all were made at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.runtime.kernels import is_native_usable

if not is_native_usable():
    pytest.skip("no native kernels here", allow_module_level=True)

from app.runtime.native import copy_rows, set_num_threads

NUM_PLANES, NUM_ROWS, CAPACITY, WIDTH = 4, 7, 5, 3


@pytest.mark.parametrize("num_threads", [1, 2])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_moves_are_as_if_all_at_once(num_threads: int, data: st.DataObject) -> None:
    set_num_threads(num_threads)
    rows = range(NUM_ROWS)
    targets = data.draw(st.lists(st.sampled_from(rows), unique=True))
    sources = [data.draw(st.sampled_from(rows)) for _ in targets]
    lengths = [data.draw(st.integers(0, CAPACITY)) for _ in targets]
    before = np.arange(NUM_PLANES * NUM_ROWS * CAPACITY * WIDTH, dtype=np.float16)
    before = before.reshape(NUM_PLANES, NUM_ROWS, CAPACITY, WIDTH)
    expected, values = before.copy(), before.copy()
    for source, target, length in zip(sources, targets, lengths, strict=True):
        expected[:, target, :length] = before[:, source, :length]
    arrays = [np.array(numbers, np.int64) for numbers in (sources, targets, lengths)]
    copy_rows(values, arrays[0], arrays[1], arrays[2] * values.strides[2])
    np.testing.assert_array_equal(values, expected)
    set_num_threads(1)


def test_rows_and_lengths_that_there_are_not_are_refused() -> None:
    values = np.zeros((NUM_PLANES, NUM_ROWS, CAPACITY, WIDTH), np.float16)
    good, one = np.array([0], np.int64), np.array([values.strides[1]], np.int64)
    for rows in ((np.array([NUM_ROWS]), good), (good, np.array([-1]))):
        with pytest.raises(IndexError):
            copy_rows(values, *rows, one)
    for num_bytes in (one + 1, -one):
        with pytest.raises(ValueError, match="a row has 30 bytes"):
            copy_rows(values, good, good + 1, num_bytes)
