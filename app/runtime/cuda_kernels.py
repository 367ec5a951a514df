"""Compiles the project's CUDA kernels (`cuda/*.cu`) for the GPU at the server's start, and launches them.

CUDA's compiler library (NVRTC) compiles them. Tests compile the same sources as C++ and run them on a CPU.
The custom operator RowAttention launches `attend_rows` in ONNX Runtime's graph (`app.runtime.cuda_attention`).
"""

from __future__ import annotations

import ctypes
import logging
import threading
from functools import cache
from pathlib import Path
from typing import Any

from app.errors import EngineFailure
from app.runtime.cuda_memory import Cuda

logger = logging.getLogger(__name__)

COMPILER, DRIVER = "libnvrtc.so.13", "libcuda.so.1"
SOURCES = Path(__file__).with_name("cuda")
NAMES = ("copy_rows", "advance_greedy", "advance_beams", "attend_rows")


class Kernels:
    """The compiled kernels of one GPU, each by its name.

    cuda: the GPU and the stream that they are enqueued on.
    """

    def __init__(self, cuda: Cuda, *, driver: Any = None) -> None:
        """Compile and load all kernels, if this process has not done so for an earlier model.

        Raises OSError for a missing library, AttributeError for one without a needed function, and EngineFailure if
        the compiler or the driver fails.

        driver: a replacement for tests, with cuModuleLoadData, cuModuleGetFunction and cuLaunchKernel. Its kernels are
            loaded anew.
        """
        self.cuda = cuda
        major, minor = cuda.compute_capability()
        architecture = f"sm_{major}{minor}"
        if driver is None:
            with _LOADING:
                module = _module(architecture)
        else:
            module = Module(driver, architecture)
        self.driver: Any = module.driver
        self._functions = module.functions

    def launch(self, name: str, grid: tuple[int, int, int], num_threads: int, *arguments: Any) -> Launch:
        """A launch of a kernel, which `Launch.enqueue` enqueues as often as needed.

        grid: blocks in each dimension. num_threads: threads of a block. arguments: ctypes values.
        """
        return Launch(self, self._functions[name], (*grid, num_threads, 1, 1), arguments, self.cuda.stream)

    def address_of(self, name: str) -> int:
        """The CUfunction of a kernel, for a library that launches it."""
        return self._functions[name].value or 0


class Module:
    """All kernels, compiled and loaded.

    functions: the CUfunction of each kernel, by its name.
    """

    def __init__(self, driver: Any, architecture: str) -> None:
        """Raises the errors of `Kernels`. architecture: the GPU's, such as sm_90."""
        self.driver = driver
        self._image = compile_sources(source_text(), architecture)
        module = ctypes.c_void_p()
        check_driver(driver.cuModuleLoadData(ctypes.byref(module), self._image))
        self.functions = {name: ctypes.c_void_p() for name in NAMES}
        for name, function in self.functions.items():
            check_driver(driver.cuModuleGetFunction(ctypes.byref(function), module, name.encode()))


_LOADING = threading.Lock()


@cache
def _module(architecture: str) -> Module:
    """The module of this process and GPU 0, never unloaded: all models share it. The caller holds _LOADING."""
    return Module(ctypes.CDLL(DRIVER), architecture)


def check_driver(code: int) -> None:
    """Raise EngineFailure for a code that is not CUDA_SUCCESS."""
    if code:
        raise EngineFailure(f"a kernel could not be run: CUDA driver error {code}")


class Launch:
    """One kernel with its arguments, whose values may change between two launches."""

    def __init__(
        self, kernels: Kernels, function: Any, sizes: tuple[int, ...], arguments: tuple[Any, ...], stream: int
    ) -> None:
        """sizes: of the grid and of a block. arguments: ctypes values."""
        self._kernels, self._function, self._sizes = kernels, function, sizes
        self._arguments = arguments  # kept alive, because the launch reads them by address
        self._addresses = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
        self._stream = ctypes.c_void_p(stream)

    def enqueue(self) -> None:
        """Enqueue the kernel on the stream, with the arguments' present values. Raises EngineFailure."""
        launch = self._kernels.driver.cuLaunchKernel
        check_driver(launch(self._function, *self._sizes, 0, self._stream, self._addresses, None))


def load_kernels(cuda: Cuda) -> Kernels | None:
    """All kernels, or None if they cannot be compiled or loaded. The log then says why."""
    try:
        return Kernels(cuda)
    except (OSError, AttributeError, EngineFailure) as error:
        logger.warning(
            "the project's CUDA kernels cannot be used, so cache rows are copied one by one and each step is a call "
            "of its own, which is slower: %s",
            error,
        )
        return None


def source_text() -> str:
    """The sources of all kernels as one program. Raises OSError."""
    return "\n".join(path.read_text("utf-8") for path in sorted(SOURCES.glob("*.cu")))


def compile_sources(source: str, architecture: str) -> bytes:
    """The machine code of a program. Raises OSError if the compiler is missing, EngineFailure if it fails."""
    compiler = ctypes.CDLL(COMPILER)
    program = ctypes.c_void_p()
    _check_compiler(
        compiler.nvrtcCreateProgram(
            ctypes.byref(program), source.encode(), b"transduce.cu", 0, None, None
        )
    )  # fmt: skip
    options = (ctypes.c_char_p * 1)(f"--gpu-architecture={architecture}".encode())
    try:
        _check_compiler(compiler.nvrtcCompileProgram(program, 1, options))
        size = ctypes.c_size_t()
        _check_compiler(compiler.nvrtcGetCUBINSize(program, ctypes.byref(size)))
        image = ctypes.create_string_buffer(size.value)
        _check_compiler(compiler.nvrtcGetCUBIN(program, image))
    finally:
        compiler.nvrtcDestroyProgram(ctypes.byref(program))
    return image.raw


def _check_compiler(code: int) -> None:
    if code:
        raise EngineFailure(f"CUDA's compiler failed with error {code}")
