"""A cache pool in a GPU's memory. Written from the documentation of CUDA's runtime: it has not run on a GPU yet.

ONNX Runtime binds raw device addresses, so rows 0..n-1 of a plane are bound where they stand, as on the
host. Copies go through libcudart, which the CUDA provider has loaded into the process by then.
"""

from __future__ import annotations

import ctypes
from typing import Any, Literal

import numpy as np
import onnxruntime

from app.errors import EngineFailure
from app.runtime.interface import Int32s
from app.runtime.kv_cache import PoolShape

LIBRARY = "libcudart.so.13"
DEVICE_TO_DEVICE = 3


class _Position(ctypes.Structure):
    """cudaPos."""

    _fields_ = (("x", ctypes.c_size_t), ("y", ctypes.c_size_t), ("z", ctypes.c_size_t))


class _Pitched(ctypes.Structure):
    """cudaPitchedPtr: a box of rows of `pitch` bytes, `ysize` rows a slice."""

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


class CudaPool:
    """As `HostPool`, on GPU 0. A pool is a box of bytes: columns of a head, heads of all rows, planes.

    values: the OrtValue that holds it, (planes, rows, num_heads, capacity, head_dim).
    """

    def __init__(
        self, shape: PoolShape, *, device: Literal["cuda", "cpu"] = "cuda", library: Any = None
    ) -> None:
        """Take the memory. Raises OSError where CUDA's runtime library is not there.

        device, library: host memory and another library with the same two functions, for tests without a GPU.
        """
        self._shape = shape
        self._device = device
        self._dtype = np.dtype(shape.dtype)
        self.values = self._allocate(shape.num_rows)
        # What a copy of rows to rows passes through, so that targets may be sources of others.
        self._staging = self._allocate(shape.num_rows)
        self._library = ctypes.CDLL(LIBRARY) if library is None else library

    def _allocate(self, num_rows: int) -> Any:
        s = self._shape
        axes = [s.num_planes, num_rows, s.num_heads, s.capacity, s.head_dim]
        return onnxruntime.OrtValue.ortvalue_from_shape_and_type(axes, self._dtype.type, self._device, 0)

    @property
    def _column_bytes(self) -> int:
        return self._shape.head_dim * self._dtype.itemsize

    def bind(self, binding: Any, name: str, *, plane: int, num_rows: int) -> None:
        """As `Pool.bind`."""
        s = self._shape
        plane_bytes = s.num_rows * s.num_heads * s.capacity * self._column_bytes
        axes = [num_rows, s.num_heads, s.capacity, s.head_dim]
        address = self.values.data_ptr() + plane * plane_bytes
        binding.bind_input(name, self._device, 0, self._dtype.type, axes, address)
        binding.bind_output(f"present_{name}", self._device, 0, self._dtype.type, axes, address)

    def write(self, values: Any, rows: list[int]) -> None:
        """As `Pool.write`; `values` is on the same device."""
        _, num_sentences, _, length, _ = values.shape()
        block = (values.data_ptr(), num_sentences, length)
        for index, row in enumerate(rows):
            self._copy_row(block, index, self._box(self.values), row, length)
        self._wait()

    def copy(self, sources: Int32s, targets: Int32s, lengths: Int32s) -> None:
        """As `Pool.copy`, by way of the staging pool."""
        values, staging = self._box(self.values), self._box(self._staging)
        moves = list(zip(sources.tolist(), targets.tolist(), lengths.tolist(), strict=True))
        for source, _, length in moves:
            self._copy_row(values, source, staging, source, length)
        for source, target, length in moves:
            self._copy_row(staging, source, values, target, length)
        self._wait()

    def _box(self, values: Any) -> tuple[int, int, int]:
        """A pool as `_copy_row` takes it: address, rows, columns of a head."""
        return values.data_ptr(), self._shape.num_rows, self._shape.capacity

    def _copy_row(
        self,
        source: tuple[int, int, int],
        source_row: int,
        target: tuple[int, int, int],
        target_row: int,
        length: int,
    ) -> None:
        """Copy the first `length` columns of a row, all heads and planes at once. Raises EngineFailure."""
        copy = _Copy(kind=DEVICE_TO_DEVICE)
        copy.src, copy.src_pos = self._pitched(source), _Position(0, source_row * self._shape.num_heads, 0)
        copy.dst, copy.dst_pos = self._pitched(target), _Position(0, target_row * self._shape.num_heads, 0)
        copy.extent = _Extent(length * self._column_bytes, self._shape.num_heads, self._shape.num_planes)
        self._check(self._library.cudaMemcpy3DAsync(ctypes.byref(copy), None))

    def _pitched(self, box: tuple[int, int, int]) -> _Pitched:
        address, num_rows, capacity = box
        pitch = capacity * self._column_bytes
        return _Pitched(address, pitch, pitch, num_rows * self._shape.num_heads)

    def _wait(self) -> None:
        """The copies' stream is not the graphs': both are brought together here."""
        self._check(self._library.cudaDeviceSynchronize())

    def _check(self, code: int) -> None:
        if code:
            raise EngineFailure(f"a copy on the GPU failed with CUDA error {code}")
