"""Copies the valid columns of cache rows on a GPU, all rows in one kernel or each with cudaMemcpy3DAsync.

Tests check the kernel's arithmetic on a CPU.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from app.runtime.cuda_kernels import Kernels, Launch
from app.runtime.cuda_memory import Cuda
from app.runtime.interface import Int32s

DEVICE_TO_DEVICE = 3
# Bytes that a thread copies at a time: the size of CUDA's int4.
VECTOR_BYTES = 16
# Threads of a block. One block copies the columns of one head in one plane.
NUM_THREADS = 128


@dataclass(frozen=True)
class DeviceBlock:
    """Rows of a cache in GPU memory: (planes, num_rows, num_heads, capacity) columns of column_bytes bytes."""

    address: int
    num_planes: int
    num_rows: int
    num_heads: int
    capacity: int
    column_bytes: int


class Copier(Protocol):
    """Copies rows of one block to rows of another with the same planes, heads and columns."""

    def copy(self, source: DeviceBlock, target: DeviceBlock, moves: Int32s) -> None:
        """Enqueue copies. Raises EngineFailure.

        moves: (n, 3) source row, target row, number of columns. No target is a source.
        """


def make_copier(cuda: Cuda, kernels: Kernels | None, column_bytes: int) -> Copier:
    """A KernelCopier if there are kernels and the columns are whole vectors, else a RowCopier."""
    if kernels is None or column_bytes % VECTOR_BYTES:
        return RowCopier(cuda)
    return KernelCopier(cuda, kernels)


class KernelCopier:
    """Copies all moves in one kernel launch."""

    def __init__(self, cuda: Cuda, kernels: Kernels) -> None:
        self._cuda, self._kernels = cuda, kernels

    def copy(self, source: DeviceBlock, target: DeviceBlock, moves: Int32s) -> None:
        """As `Copier.copy`."""
        if not len(moves):
            return
        (address,) = self._cuda.upload(moves.astype(np.int32))
        self.launch(source, target, address, len(moves)).enqueue()

    def launch(self, source: DeviceBlock, target: DeviceBlock, moves: int, num_moves: int) -> Launch:
        """A launch of the kernel. moves: the GPU address of (num_moves, 3) numbers, read when the kernel runs."""
        pointers = source.address, target.address, moves
        sizes = (
            *(source.num_rows, source.capacity, target.num_rows, target.capacity),
            *(source.num_heads, source.column_bytes // VECTOR_BYTES),
        )
        arguments = *map(ctypes.c_void_p, pointers), *map(ctypes.c_int, sizes)
        grid = source.num_heads, source.num_planes, num_moves
        return self._kernels.launch("copy_rows", grid, NUM_THREADS, *arguments)


class _Position(ctypes.Structure):
    """cudaPos."""

    _fields_ = (("x", ctypes.c_size_t), ("y", ctypes.c_size_t), ("z", ctypes.c_size_t))


class _Pitched(ctypes.Structure):
    """cudaPitchedPtr: a block of rows of `pitch` bytes, `ysize` rows a slice."""

    _fields_ = (
        ("ptr", ctypes.c_void_p),
        ("pitch", ctypes.c_size_t),
        ("xsize", ctypes.c_size_t),
        ("ysize", ctypes.c_size_t),
    )


class _Extent(ctypes.Structure):
    """cudaExtent: bytes, rows, slices."""

    _fields_ = (("width", ctypes.c_size_t), ("height", ctypes.c_size_t), ("depth", ctypes.c_size_t))


class _Copy(ctypes.Structure):
    """cudaMemcpy3DParms."""

    _fields_ = (
        ("src_array", ctypes.c_void_p),
        ("src_pos", _Position),
        ("src", _Pitched),
        ("dst_array", ctypes.c_void_p),
        ("dst_pos", _Position),
        ("dst", _Pitched),
        ("extent", _Extent),
        ("kind", ctypes.c_int),
    )


class RowCopier:
    """Copies each move with one cudaMemcpy3DAsync: width in bytes of a head, height in heads, depth in planes."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda

    def copy(self, source: DeviceBlock, target: DeviceBlock, moves: Int32s) -> None:
        """As `Copier.copy`."""
        stream = ctypes.c_void_p(self._cuda.stream)
        for source_row, target_row, length in moves.tolist():
            copy = _Copy(kind=DEVICE_TO_DEVICE)
            copy.src, copy.src_pos = _pitched(source), _Position(0, source_row * source.num_heads, 0)
            copy.dst, copy.dst_pos = _pitched(target), _Position(0, target_row * target.num_heads, 0)
            copy.extent = _Extent(length * source.column_bytes, source.num_heads, source.num_planes)
            self._cuda.check(self._cuda.library.cudaMemcpy3DAsync(ctypes.byref(copy), stream))


def _pitched(block: DeviceBlock) -> _Pitched:
    pitch = block.capacity * block.column_bytes
    return _Pitched(block.address, pitch, pitch, block.num_rows * block.num_heads)
