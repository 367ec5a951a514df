"""Copies on a GPU, tested on a CPU: the kernel's arithmetic, the order of copies, errors and memory."""

# ruff: noqa: N802 - the names are the library's
from __future__ import annotations

import ctypes
import gc
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from app.errors import EngineFailure
from app.runtime import cuda_copies
from app.runtime.cuda_copies import KERNEL, KernelCopier, RowCopier, make_copier
from app.runtime.cuda_memory import Cuda
from app.runtime.cuda_pool import CudaPool
from app.runtime.kv_cache import PoolShape
from tests.runtime.host_cuda import STREAM, HostCuda, host_cuda, read_cuda

NUM_ROWS = 8
# A column has 32 bytes, two of the kernel's vectors.
SHAPE = PoolShape(num_planes=4, num_rows=NUM_ROWS, num_heads=3, capacity=7, head_dim=16, dtype="float16")
# Definitions with which the CUDA kernel compiles as C++.
PRELUDE = r"""
struct int4 { int x, y, z, w; };
struct Place { unsigned x, y, z; };
static Place blockIdx, threadIdx, blockDim;
#define __global__
"""
LAUNCH = r"""
extern "C" void launch(void** a, unsigned gx, unsigned gy, unsigned gz, unsigned threads) {
    blockDim.x = threads;
    for (blockIdx.z = 0; blockIdx.z < gz; blockIdx.z++)
    for (blockIdx.y = 0; blockIdx.y < gy; blockIdx.y++)
    for (blockIdx.x = 0; blockIdx.x < gx; blockIdx.x++)
    for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++)
        copy_rows(*(const int4**)a[0], *(int4**)a[1], *(const int**)a[2], *(int*)a[3], *(int*)a[4],
                  *(int*)a[5], *(int*)a[6], *(int*)a[7], *(int*)a[8]);
}
"""


class HostDriver:
    """A fake of CUDA's driver. It runs the kernel that is compiled for the CPU."""

    def __init__(self, library: Any, cuda: HostCuda) -> None:
        self._library = library
        self._cuda = cuda
        self.num_launches = 0
        self.code = 0

    def cuModuleLoadData(self, module: Any, image: bytes) -> int:
        module._obj.value = 1
        assert image == b"sm_90"
        return self.code

    def cuModuleGetFunction(self, function: Any, module: Any, name: bytes) -> int:
        function._obj.value = 2
        assert name == b"copy_rows"
        return self.code

    def cuLaunchKernel(self, function: Any, *arguments: Any) -> int:
        gx, gy, gz, threads, _, _, shared, stream, addresses, extra = arguments
        assert (function.value, shared, stream.value, extra) == (2, 0, STREAM, None)
        self._cuda.run_pending()  # work enqueued earlier runs first
        self._library.launch(addresses, gx, gy, gz, threads)
        self.num_launches += 1
        return self.code


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The kernel compiled to a function for this CPU."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    folder = tmp_path_factory.mktemp("kernel")
    (folder / "kernel.cpp").write_text(PRELUDE + KERNEL + LAUNCH, "utf-8")
    library = folder / "kernel.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(folder / "kernel.cpp")]
    subprocess.run(command, check=True, timeout=120)
    return ctypes.CDLL(str(library))


@pytest.fixture
def driver(kernel: Any, monkeypatch: pytest.MonkeyPatch) -> HostDriver:
    monkeypatch.setattr(cuda_copies, "compile_kernel", lambda architecture: architecture.encode())
    return HostDriver(kernel, HostCuda(is_late=True))


def random_values(seed: int, *, num_rows: int = NUM_ROWS, length: int = 7) -> Any:
    return (
        np.random.default_rng(seed)
        .standard_normal((SHAPE.num_planes, num_rows, SHAPE.num_heads, length, SHAPE.head_dim))
        .astype(np.float16)
    )


def test_one_launch_writes_and_copies_all_rows(driver: HostDriver) -> None:
    """Copies sentences to rows, then rows to rows, with and without cycles. Every copy is late, as on a GPU."""
    cuda = host_cuda(driver._cuda)
    pool = CudaPool(SHAPE, cuda, KernelCopier(cuda, driver=driver), staging=cuda.allocate(SHAPE.num_bytes))
    expected = np.zeros_like(random_values(1))
    for seed, length, rows in ((1, 7, list(range(NUM_ROWS))), (2, 5, [6, 1]), (3, 1, [0, 7, 2])):
        values = random_values(seed, num_rows=len(rows), length=length)
        lengths = np.array(
            [length, *[max(1, length - 2)] * (len(rows) - 1)]
        )  # the other sentences are padded
        pool.write(onnxruntime.OrtValue.ortvalue_from_numpy(values), rows, lengths)
        cuda.wait()  # the values are freed after the wait
        for index, row in enumerate(rows):
            expected[:, row, :, : lengths[index]] = values[:, index, :, : lengths[index]]
    for sources, targets in (([0, 1], [2, 3]), ([4, 5, 6], [5, 6, 4]), ([7, 7], [0, 1]), ([], [])):
        columns = [1 + (row % 7) for row in sources]
        pool.copy(*(np.array(values, np.int32) for values in (sources, targets, columns)))
        before = expected.copy()
        for source, target, length in zip(sources, targets, columns, strict=True):
            expected[:, target, :, :length] = before[:, source, :, :length]
    cuda.wait()
    np.testing.assert_array_equal(read_cuda(pool, SHAPE), expected)
    assert driver.num_launches == 3 + 1 + 2 + 1


def test_a_failed_launch_is_an_engine_failure(driver: HostDriver) -> None:
    cuda = host_cuda(driver._cuda)
    copier = KernelCopier(cuda, driver=driver)
    pool = CudaPool(SHAPE, cuda, copier, staging=cuda.allocate(SHAPE.num_bytes))
    driver.code = 719
    with pytest.raises(EngineFailure, match="CUDA driver error 719"):
        pool.copy(*(np.array([row], np.int32) for row in (0, 1, 1)))


def test_without_a_kernel_rows_are_copied_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(make_copier(host_cuda(), 24), RowCopier)  # 24 bytes are not a multiple of a vector
    assert not caplog.records
    assert isinstance(make_copier(host_cuda(), 32), RowCopier)
    assert "which is slower: lib" in caplog.text


def test_uploads_between_two_waits_do_not_overwrite_one_another() -> None:
    """The GPU reads uploads late. If the upload memory is full, the next upload waits for earlier uploads."""
    library = HostCuda(is_late=True)
    cuda = host_cuda(library, num_upload_bytes=1024)
    cuda.wait()
    places = []
    for number in (1, 2):
        (address,) = cuda.upload(np.full(75, number, np.int32))
        places.append((address, number))
    waits = library.num_waits
    cuda.upload(np.full(75, 9, np.int32))
    assert library.num_waits == waits + 1
    for address, number in places:
        assert (np.ctypeslib.as_array((ctypes.c_int32 * 75).from_address(address)) == number).all()
    with pytest.raises(EngineFailure, match="1280 bytes to upload at once, the limit is 1024"):
        cuda.upload(np.zeros(300, np.int32))


def test_arrays_of_one_upload_have_aligned_addresses() -> None:
    cuda = host_cuda(num_upload_bytes=1024)
    ids, lengths = np.arange(7, dtype=np.int32), np.array([3, 4])
    addresses = cuda.upload(ids, lengths)
    assert [address % 256 for address in addresses] == [0, 0]
    np.testing.assert_array_equal((ctypes.c_int32 * 7).from_address(addresses[0]), ids)
    np.testing.assert_array_equal((ctypes.c_int64 * 2).from_address(addresses[1]), lengths)


def test_memory_is_zeroed_and_freed_with_its_owner() -> None:
    library = HostCuda()
    cuda: Cuda | None = host_cuda(library, num_upload_bytes=256)
    assert cuda is not None
    address, memory = cuda.allocate(300), cuda.allocate_host(20)
    assert not np.ctypeslib.as_array((ctypes.c_uint8 * 300).from_address(address)).any()
    assert not memory.any()
    assert address % 256 == 0
    assert cuda.free_bytes() == (3_000_000, 4_000_000)
    del cuda, memory
    gc.collect()
    assert sorted(library.freed) == sorted(library.blocks)


def test_a_cuda_error_is_an_engine_failure() -> None:
    library = HostCuda()
    cuda = host_cuda(library)
    pool = CudaPool(SHAPE, cuda, RowCopier(cuda), staging=cuda.allocate(SHAPE.num_bytes))
    library.code = 46
    for call in (
        cuda.wait,
        lambda: cuda.allocate(8),
        lambda: cuda.allocate_host(8),
        lambda: cuda.upload(np.zeros(1, np.int32)),
        cuda.free_bytes,
        cuda.compute_capability,
        lambda: pool.copy(*(np.array([row], np.int32) for row in (0, 1, 1))),
    ):
        with pytest.raises(EngineFailure, match="CUDA error 46"):
            call()


def test_the_kernel_compiles_for_a_gpu(tmp_path: Path) -> None:
    """This test needs CUDA's compiler library, but no GPU."""
    try:
        ctypes.CDLL(cuda_copies.COMPILER)
    except OSError:
        pytest.skip("there is no NVRTC")
    assert cuda_copies.compile_kernel("sm_90").startswith(b"\x7fELF")
