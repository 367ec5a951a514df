"""Memory of the key-value caches, in fixed pools of rows. A copy of rows leaves out columns that no copied row uses.

A pool holds one kind of attention (self or cross) for all layers: (planes, rows, num_heads, capacity, head_dim).
Planes 2i and 2i + 1 are keys and values of layer i. Rows 0..n-1 of a plane are one contiguous block, which a graph
reads and writes in place.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from app.graphs import TensorSpec
from app.runtime.interface import Int32s, Int64s


@dataclass(frozen=True)
class PoolShape:
    """The sizes of a pool's axes, in their order, and its number type (float32 or float16)."""

    num_planes: int
    num_rows: int
    num_heads: int
    capacity: int
    head_dim: int
    dtype: str

    @property
    def num_bytes(self) -> int:
        """Size of the whole pool."""
        axes = (self.num_planes, self.num_rows, self.num_heads, self.capacity, self.head_dim)
        return math.prod(axes) * np.dtype(self.dtype).itemsize


def pool_shape(spec: TensorSpec, *, num_layers: int, num_rows: int) -> PoolShape:
    """The shape of a pool for one kind of attention. spec: the graph's input for one layer of that kind."""
    _, num_heads, capacity, head_dim = spec.axes
    return PoolShape(
        num_planes=2 * num_layers,
        num_rows=num_rows,
        num_heads=int(num_heads),
        capacity=int(capacity),
        head_dim=int(head_dim),
        dtype=spec.dtype,
    )


class Pool(Protocol):
    """A pool on any device."""

    def bind(self, binding: Any, name: str, *, plane: int, num_rows: int) -> None:
        """Bind rows 0..num_rows-1 of a plane as the input `name` and the output `present_<name>`."""

    def write(self, values: Any, rows: list[int], lengths: Int64s) -> None:
        """Write an OrtValue (planes, len(rows), num_heads, longest, head_dim) to the first columns of `rows`.

        lengths: (len(rows),) columns of each sentence. longest: their maximum. Later columns may be written, too.
        """

    def copy(self, sources: Int32s, targets: Int32s, lengths: Int32s) -> None:
        """Copy the first `lengths` columns of source rows to target rows, as if all at once."""


def paged_zeros(shape: Sequence[int], dtype: str, num_sparse: int = sys.maxsize) -> NDArray[Any]:
    """Zeros (planes, rows, ...) whose pages are allocated when first written.

    num_sparse: how many leading rows of each plane are in the system's smallest pages. The other rows are in 2 MB pages
    if the system has them: these are read faster when many rows run. The leading rows have small pages because short
    sentences write only the beginning of each row: with 2 MB pages, a few sentences would allocate the whole cache.
    """
    item = np.dtype(dtype).itemsize
    num_bytes = math.prod(shape) * item
    pages = mmap.mmap(-1, max(1, num_bytes), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        row, plane = math.prod(shape[2:]) * item, math.prod(shape[1:]) * item
        with contextlib.suppress(OSError):  # a kernel that has no huge pages refuses the advice
            pages.madvise(mmap.MADV_NOHUGEPAGE)
            for begin in range(0, num_bytes, max(1, plane)):
                start = math.ceil((begin + num_sparse * row) / mmap.PAGESIZE) * mmap.PAGESIZE
                if start < begin + plane:
                    pages.madvise(mmap.MADV_HUGEPAGE, start, begin + plane - start)
    return np.frombuffer(pages, dtype, math.prod(shape)).reshape(shape)


class HostPool:
    """A pool in host memory. Pages are allocated when first written."""

    def __init__(self, shape: PoolShape) -> None:
        axes = (shape.num_planes, shape.num_rows, shape.num_heads, shape.capacity, shape.head_dim)
        self._values = paged_zeros(axes, shape.dtype)

    def bind(self, binding: Any, name: str, *, plane: int, num_rows: int) -> None:
        """As `Pool.bind`, without a copy."""
        view = onnxruntime.OrtValue.ortvalue_from_numpy(self._values[plane, :num_rows])
        binding.bind_ortvalue_input(name, view)
        binding.bind_ortvalue_output(f"present_{name}", view)

    def write(self, values: Any, rows: list[int], lengths: Int64s) -> None:
        """As `Pool.write`. Writes all columns."""
        block = values.numpy()
        self._values[:, rows, :, : block.shape[3]] = block

    def read(self, num_rows: int) -> NDArray[Any]:
        """A view of rows 0..num_rows-1: (planes, num_rows, num_heads, capacity, head_dim)."""
        return self._values[:, :num_rows]

    def copy(self, sources: Int32s, targets: Int32s, lengths: Int32s) -> None:
        """As `Pool.copy`.

        If a target is also a source, all rows are copied through a temporary array, each with the longest of `lengths`.
        """
        values = self._values
        moves = list(zip(sources.tolist(), targets.tolist(), lengths.tolist(), strict=True))
        if {source for source, _, _ in moves}.isdisjoint(target for _, target, _ in moves):
            for source, target, length in moves:
                values[:, target, :, :length] = values[:, source, :, :length]
        else:
            longest = int(lengths.max())
            values[:, targets, :, :longest] = values[:, sources, :, :longest]
