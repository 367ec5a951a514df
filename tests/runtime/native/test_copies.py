"""The native library copies cache rows. Any set of moves has the result of a simultaneous copy."""

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
def test_moves_are_made_as_if_all_at_once(num_threads: int, data: st.DataObject) -> None:
    set_num_threads(num_threads)
    rows = range(NUM_ROWS)
    targets = data.draw(st.lists(st.sampled_from(rows), unique=True))
    sources = [data.draw(st.sampled_from(rows)) for _ in targets]
    ends = [data.draw(st.integers(0, CAPACITY)) for _ in targets]
    firsts = [data.draw(st.integers(0, end)) for end in ends]
    numbers = np.arange(NUM_PLANES * NUM_ROWS * CAPACITY * WIDTH, dtype=np.float16)
    before = numbers.reshape(NUM_PLANES, NUM_ROWS, CAPACITY, WIDTH)
    expected, values = before.copy(), before.copy()
    for source, target, first, end in zip(sources, targets, firsts, ends, strict=True):
        expected[:, target, first:end] = before[:, source, first:end]
    moves = np.array((sources, targets, firsts, ends), np.int64).reshape(4, -1)
    moves[2:] *= values.strides[2]
    copy_rows(values, moves)
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize(
    ("move", "error"),
    [
        ((NUM_ROWS, 0, 0, 2), IndexError),
        ((0, -1, 0, 2), IndexError),
        ((0, 1, -2, 2), ValueError),
        ((0, 1, 0, 2 * CAPACITY * WIDTH + 2), ValueError),
        ((0, 1, 4, 2), ValueError),
    ],
)
def test_rows_and_bytes_out_of_range_are_errors(
    move: tuple[int, int, int, int], error: type[Exception]
) -> None:
    """A move is a source row, a target row, and the first and the end byte of the columns that it copies."""
    values = np.zeros((NUM_PLANES, NUM_ROWS, CAPACITY, WIDTH), np.float16)
    copy_rows(values, np.array((0, 1, 0, 2 * CAPACITY * WIDTH), np.int64)[:, None])
    with pytest.raises(error):
        copy_rows(values, np.array(move, np.int64)[:, None])


@pytest.mark.parametrize("shape", [(2, 1, 8), (1, 3, 8)])
def test_strides_of_an_axis_of_length_one_have_no_meaning(shape: tuple[int, int, int]) -> None:
    numbers = np.arange(np.prod(shape), dtype=np.float32)
    strides = numbers.reshape(shape).strides
    wanted = [0 if size == 1 else stride for size, stride in zip(shape, strides, strict=True)]
    values = np.lib.stride_tricks.as_strided(numbers, shape, wanted)
    source, target = shape[1] - 1, 0
    expected = numbers.reshape(shape).copy()
    expected[:, target] = expected[:, source]
    copy_rows(values, np.array((source, target, 0, 32), np.int64)[:, None])
    np.testing.assert_array_equal(numbers.reshape(shape), expected)
