"""Copies the valid columns of cache rows on a GPU, all rows in one kernel or each with cudaMemcpy3DAsync.

CUDA's compiler library (NVRTC) compiles the kernel for the GPU at the server's start. Tests compile the kernel, and
check its arithmetic on a CPU. It has not run on a GPU.
"""

from __future__ import annotations

import ctypes
import logging
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from app.errors import EngineFailure
from app.runtime.cuda_memory import Cuda
from app.runtime.interface import Int32s

logger = logging.getLogger(__name__)

COMPILER, DRIVER = "libnvrtc.so.13", "libcuda.so.1"
DEVICE_TO_DEVICE = 3
# Bytes that a thread copies at a time: the size of CUDA's int4.
VECTOR_BYTES = 16
# Threads of a block. One block copies the columns of one head.
NUM_THREADS = 128
# A block copies one head in one plane of one move: source row, target row, number of columns.
KERNEL = r"""
extern "C" __global__ void copy_rows(
    const int4* source, int4* target, const int* moves,
    int source_rows, int source_capacity, int target_rows, int target_capacity,
    int num_heads, int column_vectors)
{
    const int* move = moves + 3 * blockIdx.z;
    const long long plane = blockIdx.y, head = blockIdx.x;
    const long long from = ((plane * source_rows + move[0]) * num_heads + head) * source_capacity;
    const long long to = ((plane * target_rows + move[1]) * num_heads + head) * target_capacity;
    const int4* in = source + from * column_vectors;
    int4* out = target + to * column_vectors;
    const int end = move[2] * column_vectors;
    for (int i = threadIdx.x; i < end; i += blockDim.x) {
        out[i] = in[i];
    }
}
"""


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


def make_copier(cuda: Cuda, column_bytes: int) -> Copier:
    """A KernelCopier if the kernel fits and compiles, else a RowCopier. A failure to compile is logged."""
    if column_bytes % VECTOR_BYTES:
        return RowCopier(cuda)
    try:
        return KernelCopier(cuda)
    except (OSError, AttributeError, EngineFailure) as error:
        logger.warning("cache rows are copied one by one, which is slower: %s", error)
        return RowCopier(cuda)


class KernelCopier:
    """Copies all moves in one kernel launch."""

    def __init__(self, cuda: Cuda, *, driver: Any = None) -> None:
        """Compile and load the kernel. Raises OSError for a missing library, and EngineFailure.

        driver: a replacement for tests, with cuModuleLoadData, cuModuleGetFunction and cuLaunchKernel.
        """
        self._cuda = cuda
        self._driver = ctypes.CDLL(DRIVER) if driver is None else driver
        major, minor = cuda.compute_capability()
        self._image = compile_kernel(f"sm_{major}{minor}")
        module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        self._check(self._driver.cuModuleLoadData(ctypes.byref(module), self._image))
        self._check(self._driver.cuModuleGetFunction(ctypes.byref(self._function), module, b"copy_rows"))

    def copy(self, source: DeviceBlock, target: DeviceBlock, moves: Int32s) -> None:
        """As `Copier.copy`."""
        if not len(moves):
            return
        pointers = source.address, target.address, *self._cuda.upload(moves.astype(np.int32))
        sizes = (
            *(source.num_rows, source.capacity, target.num_rows, target.capacity),
            *(source.num_heads, source.column_bytes // VECTOR_BYTES),
        )
        values = [*map(ctypes.c_void_p, pointers), *map(ctypes.c_int, sizes)]
        addresses = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        grid, block = (source.num_heads, source.num_planes, len(moves)), (NUM_THREADS, 1, 1)
        stream = ctypes.c_void_p(self._cuda.stream)
        self._check(self._driver.cuLaunchKernel(self._function, *grid, *block, 0, stream, addresses, None))

    @staticmethod
    def _check(code: int) -> None:
        if code:
            raise EngineFailure(f"a kernel could not be run: CUDA driver error {code}")


def compile_kernel(architecture: str) -> bytes:
    """The kernel's machine code. Raises OSError if the compiler is missing, EngineFailure if it fails."""
    compiler = ctypes.CDLL(COMPILER)
    program = ctypes.c_void_p()
    _check_compiler(
        compiler.nvrtcCreateProgram(
            ctypes.byref(program), KERNEL.encode(), b"copy_rows.cu", 0, None, None
        )
    )  # fmt: skip
    options = (ctypes.c_char_p * 1)(f"--gpu-architecture={architecture}".encode())
    _check_compiler(compiler.nvrtcCompileProgram(program, 1, options))
    size = ctypes.c_size_t()
    _check_compiler(compiler.nvrtcGetCUBINSize(program, ctypes.byref(size)))
    image = ctypes.create_string_buffer(size.value)
    _check_compiler(compiler.nvrtcGetCUBIN(program, image))
    compiler.nvrtcDestroyProgram(ctypes.byref(program))
    return image.raw


def _check_compiler(code: int) -> None:
    if code:
        raise EngineFailure(f"CUDA's compiler failed with error {code}")


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
    """Copies each move with one cudaMemcpy3DAsync. Its width is a head's bytes, its height heads, its depth planes."""

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
