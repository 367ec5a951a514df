"""A cache pool in a GPU's memory.

ONNX Runtime binds raw device addresses, so rows 0..n-1 of a plane are bound in place, as on the host.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from app.runtime.cuda_copies import Copier, DeviceBlock, KernelCopier
from app.runtime.cuda_kernels import Launch
from app.runtime.cuda_memory import Cuda
from app.runtime.interface import Int32s, Int64s
from app.runtime.kv_cache import PoolShape


class CudaPool:
    """A `Pool` on GPU 0. Copies are enqueued on the stream that also runs ONNX Runtime's graphs."""

    def __init__(self, shape: PoolShape, cuda: Cuda, copier: Copier, *, staging: int) -> None:
        """Allocate the pool's memory. Raises EngineFailure.

        staging: address of memory of at least the pool's size, through which rows may be copied. Pools may share it.
        """
        self._shape = shape
        self._cuda = cuda
        self._copier = copier
        self._dtype = np.dtype(shape.dtype)
        self.block = DeviceBlock(
            address=cuda.allocate(shape.num_bytes),
            num_planes=shape.num_planes,
            num_rows=shape.num_rows,
            num_heads=shape.num_heads,
            capacity=shape.capacity,
            column_bytes=shape.head_dim * self._dtype.itemsize,
        )
        self._staging = replace(self.block, address=staging)

    def bind(self, binding: Any, name: str, *, plane: int, num_rows: int) -> None:
        """As `Pool.bind`."""
        s = self._shape
        axes = [num_rows, s.num_heads, s.capacity, s.head_dim]
        address = self.block.address + plane * (s.num_bytes // s.num_planes)
        place = (self._cuda.device, 0, self._dtype.type, axes, address)
        binding.bind_input(name, *place)
        binding.bind_output(f"present_{name}", *place)

    def write(self, values: Any, rows: list[int], lengths: Int64s) -> None:
        """As `Pool.write`. `values` is on the same device and computed on the same stream."""
        _, num_sentences, _, longest, _ = values.shape()
        block = replace(self.block, address=values.data_ptr(), num_rows=num_sentences, capacity=longest)
        self._copier.copy(block, self.block, _moves(np.arange(num_sentences), rows, lengths))

    def copies_on_device(self, moves: int, num_moves: int) -> Launch:
        """A launch of the copying kernel, as `KernelCopier.launch`. Requires a KernelCopier."""
        assert isinstance(self._copier, KernelCopier)
        return self._copier.launch(self.block, self.block, moves, num_moves)

    def copy(self, sources: Int32s, targets: Int32s, lengths: Int32s) -> None:
        """As `Pool.copy`. If a target is also a source, copies go through the staging memory."""
        if set(sources.tolist()).isdisjoint(targets.tolist()):
            self._copier.copy(self.block, self.block, _moves(sources, targets, lengths))
            return
        # Rows of the staging memory. There are enough, because each target occurs once.
        staged = np.arange(len(sources))
        self._copier.copy(self.block, self._staging, _moves(sources, staged, lengths))
        self._copier.copy(self._staging, self.block, _moves(staged, targets, lengths))


def _moves(sources: Any, targets: Any, lengths: Any) -> Int32s:
    """Three columns as an array (n, 3)."""
    moves: Int32s = np.empty((len(sources), 3), np.int32)
    moves[:, 0], moves[:, 1], moves[:, 2] = sources, targets, lengths
    return moves
