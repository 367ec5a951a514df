"""The project's CUDA kernels compiled as C++ for a CPU, a fake CUDA driver that runs them, and runners with both."""

# ruff: noqa: N802 - the names are the library's
from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from app.graphs import Precision
from app.runtime import cuda_kernels
from app.runtime.cuda_kernels import NAMES, Kernels, source_text
from app.runtime.cuda_memory import Cuda
from model.config import EOS_ID
from tests.export.tiny import random_model
from tests.runtime.host_cuda import STREAM, Both, HostCuda, load_both, one_variant

# The kinds of bundles of `load_ending`: the precision, and whether targets begin with a start token of their pair.
KINDS: dict[str, tuple[Precision, bool]] = {"fp32": ("fp32", False), "int8 prefilled": ("int8", True)}
# A subword that becomes the best candidate after some steps. How many steps that takes depends on the sentence.
SIMILAR_TO_END = 396
# Definitions with which the CUDA kernels compile as C++. The threads of a block run at once and meet at __syncthreads.
PRELUDE = r"""
#include <barrier>
#include <bit>
#include <cmath>
#include <thread>
#include <utility>
#include <vector>
struct int4 { int x, y, z, w; };
struct Place { unsigned x, y, z; };
static thread_local Place blockIdx, threadIdx, blockDim, gridDim;
static std::barrier<>* barrier;
[[maybe_unused]] static void __syncthreads() { barrier->arrive_and_wait(); }
[[maybe_unused]] static int min(int a, int b) { return a < b ? a : b; }
[[maybe_unused]] static float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
[[maybe_unused]] static float to_float(unsigned short bits) { return float(std::bit_cast<_Float16>(bits)); }
[[maybe_unused]] static unsigned short to_half(float value) { return std::bit_cast<unsigned short>(_Float16(value)); }
// On a GPU, the threads of a warp exchange values. Here the threads of a block do.
[[maybe_unused]] static float __shfl_xor_sync(unsigned, float value, int other) {
    static float values[1024];
    values[threadIdx.x] = value;
    __syncthreads();
    value = values[threadIdx.x ^ other];
    __syncthreads();
    return value;
}
#define __global__
#define __device__ [[maybe_unused]] static
#define __shared__ static
#define __restrict__
"""
LAUNCH = r"""
template <class... Values, size_t... at>
void call(void (*kernel)(Values...), void** arguments, std::index_sequence<at...>) {
    kernel(*static_cast<Values*>(arguments[at])...);
}

template <class... Values> void launch(void (*kernel)(Values...), void** arguments, Place grid, unsigned num_threads) {
    auto run = [&](unsigned thread) {
        gridDim = grid;
        blockDim = {num_threads, 1, 1};
        threadIdx = {thread, 0, 0};
        for (unsigned block = 0; block < grid.x * grid.y * grid.z; ++block) {
            blockIdx = {block % grid.x, block / grid.x % grid.y, block / grid.x / grid.y};
            call(kernel, arguments, std::index_sequence_for<Values...>());
            __syncthreads();  // the blocks run one after another
        }
    };
    std::barrier<> all(num_threads);
    barrier = &all;
    std::vector<std::thread> threads;
    for (unsigned thread = 1; thread < num_threads; ++thread) threads.emplace_back(run, thread);
    run(0);
    for (auto& thread : threads) thread.join();
}
"""
ENTRY = r"""
extern "C" void launch_{name}(void** arguments, unsigned x, unsigned y, unsigned z, unsigned num_threads) {{
    launch({name}, arguments, {{x, y, z}}, num_threads);
}}
"""


def compile_for_host(folder: Path) -> Any:
    """A library with a function for each kernel. Skips the test if there is no C++ compiler."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    source, library = folder / "kernels.cpp", folder / "kernels.so"
    entries = [ENTRY.format(name=name) for name in NAMES]
    source.write_text("\n".join([PRELUDE, source_text(), LAUNCH, *entries]), "utf-8")
    command = [compiler, "-std=c++20", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-pthread"]
    subprocess.run([*command, "-o", str(library), str(source)], check=True, timeout=120)
    return ctypes.CDLL(str(library))


class HostDriver:
    """A fake of CUDA's driver that runs kernels on this CPU. Its functions return `code` as their error code.

    launches: the names of the kernels that were launched.
    """

    def __init__(self, library: Any, cuda: HostCuda, num_threads: int) -> None:
        """num_threads: threads of each block, instead of the number on a GPU.

        attend_rows needs a multiple of the threads that share a column (cuda/attention.cu). The other kernels work with
        any number.
        """
        self._library = library
        self._num_threads = num_threads
        self._cuda = cuda
        self.launches: list[str] = []
        self.code = 0

    def cuModuleLoadData(self, module: Any, image: bytes) -> int:
        module._obj.value = 1
        assert image == b"sm_90"
        return self.code

    def cuModuleGetFunction(self, function: Any, module: Any, name: bytes) -> int:
        assert module.value == 1
        function._obj.value = 1 + NAMES.index(name.decode())
        return self.code

    def cuLaunchKernel(self, function: Any, *arguments: Any) -> int:
        *grid, _, _, _, shared, stream, addresses, extra = arguments
        assert (shared, stream.value, extra) == (0, STREAM, None)
        name = NAMES[function.value - 1]
        self.launches.append(name)
        # The kernel must get the arguments of the launch, so they are copied. No argument has more than eight bytes.
        values = [(ctypes.c_uint8 * 8)(*ctypes.string_at(address, 8)) for address in addresses]
        launched = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))

        def run(_: Any = values) -> None:
            getattr(self._library, f"launch_{name}")(launched, *grid, self._num_threads)

        self._cuda.enqueue(stream, run)
        return self.code


def host_kernels(
    cuda: Cuda, library: Any, monkeypatch: pytest.MonkeyPatch, *, num_threads: int = 1
) -> Kernels:
    """The kernels of a GPU that uses host memory. library: what `compile_for_host` returns."""
    with monkeypatch.context() as patch:
        patch.setattr(cuda_kernels, "compile_sources", lambda _, architecture: architecture.encode())
        return Kernels(cuda, driver=HostDriver(library, cuda.library, num_threads))


def load_ending(kind: str, library: Any, folder: Path, *, num_rows: int) -> Both:
    """Runners of a model whose translations end at different steps.

    The copies and kernels of the GPU runner run as late as possible. kind: a key of KINDS. library: what
    `compile_for_host` returns. folder: for the bundle.
    """
    precision, has_target_start = KINDS[kind]
    model = random_model(max_length=24)
    with torch.no_grad():  # the end token is a little likelier than SIMILAR_TO_END
        table = model.embedding.weight.mul_(0.1)
        table[EOS_ID] = table[SIMILAR_TO_END] * 1.02
    bundle = one_variant(model, precision, folder, has_target_start=has_target_start)
    with pytest.MonkeyPatch.context() as patch:
        return load_both(
            bundle,
            num_rows=num_rows,
            num_repeats=3,
            load_kernels=lambda cuda: host_kernels(cuda, library, patch),
        )
