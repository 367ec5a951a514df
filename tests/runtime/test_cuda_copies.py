"""Copies on a GPU, tested on a CPU: the kernel's arithmetic, the order of copies, errors and memory."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import Mock

import numpy as np
import onnxruntime
import pytest

from app.errors import EngineFailure
from app.runtime.cuda_copies import KernelCopier, RowCopier, make_copier
from app.runtime.cuda_kernels import COMPILER, Kernels, compile_sources, load_kernels, source_text
from app.runtime.cuda_memory import Cuda
from app.runtime.cuda_pool import CudaPool
from app.runtime.cuda_threads import THREAD_LOCAL
from app.runtime.kv_cache import PoolShape
from tests.runtime.host_cuda import HostCuda, host_cuda, read_cuda
from tests.runtime.host_kernels import host_kernels

NUM_ROWS = 8
NVRTC_FUNCTIONS = ("nvrtcCreateProgram", "nvrtcCompileProgram", "nvrtcGetCUBINSize", "nvrtcGetCUBIN")
# A column has 32 bytes, two of the kernel's vectors.
SHAPE = PoolShape(num_planes=4, num_rows=NUM_ROWS, num_heads=3, capacity=7, head_dim=16, dtype="float16")


@pytest.fixture
def kernels(library: Any, monkeypatch: pytest.MonkeyPatch) -> Kernels:
    """Kernels of a GPU whose copies are late."""
    return host_kernels(host_cuda(HostCuda(is_late=True)), library, monkeypatch)


def random_values(seed: int, *, num_rows: int = NUM_ROWS, length: int = 7) -> Any:
    return (
        np.random.default_rng(seed)
        .standard_normal((SHAPE.num_planes, num_rows, SHAPE.num_heads, length, SHAPE.head_dim))
        .astype(np.float16)
    )


@pytest.mark.seconds
def test_one_launch_copies_all_rows_and_two_launches_copy_cycles(kernels: Kernels) -> None:
    """Copies sentences to rows, then rows to rows, with and without cycles. Every copy is late, as on a GPU."""
    cuda = kernels.cuda
    pool = CudaPool(SHAPE, cuda, make_copier(cuda, kernels, 32), staging=cuda.allocate(SHAPE.num_bytes))
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
    # The writes take three launches. The copies take one, two for the cycle, one, and none for no rows.
    assert kernels.driver.launches == ["copy_rows"] * (3 + 1 + 2 + 1)


def test_a_failed_launch_is_an_engine_failure(kernels: Kernels) -> None:
    cuda = kernels.cuda
    pool = CudaPool(SHAPE, cuda, KernelCopier(cuda, kernels), staging=cuda.allocate(SHAPE.num_bytes))
    kernels.driver.code = 719
    with pytest.raises(EngineFailure, match="CUDA driver error 719"):
        pool.copy(*(np.array([row], np.int32) for row in (0, 1, 1)))


def test_without_a_kernel_rows_are_copied_one_by_one(
    kernels: Kernels, caplog: pytest.LogCaptureFixture
) -> None:
    cuda = host_cuda()
    assert isinstance(make_copier(cuda, kernels, 24), RowCopier)  # 24 bytes are not a multiple of a vector
    assert load_kernels(cuda) is None
    assert isinstance(make_copier(cuda, None, 32), RowCopier)
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
    assert cuda.free_and_total_bytes() == (3_000_000, 4_000_000)
    del cuda, memory
    gc.collect()
    assert sorted(library.freed) == sorted(library.blocks)


def test_each_thread_ignores_the_captures_of_others_before_its_first_call() -> None:
    """So does a thread that only frees memory. The mode is cudaStreamCaptureModeThreadLocal."""
    library = HostCuda()
    held = [in_thread(lambda: host_cuda(library, num_upload_bytes=256))]

    def use() -> None:
        held[0].allocate(8)
        held[0].wait()

    in_thread(use)
    in_thread(held.clear)
    assert library.thread_modes == [THREAD_LOCAL] * 3
    assert len(library.freed) == 3


def in_thread(work: Callable[[], Any]) -> Any:
    """The result of work in a new thread."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(work).result()


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
        cuda.free_and_total_bytes,
        cuda.compute_capability,
        lambda: pool.copy(*(np.array([row], np.int32) for row in (0, 1, 1))),
    ):
        with pytest.raises(EngineFailure, match="CUDA error 46"):
            call()


def test_the_kernels_compile_for_a_gpu() -> None:
    """This test needs CUDA's compiler library, but no GPU."""
    try:
        ctypes.CDLL(COMPILER)
    except OSError:
        pytest.skip("there is no NVRTC")
    assert compile_sources(source_text(), "sm_90").startswith(b"\x7fELF")


@pytest.mark.parametrize("failing", NVRTC_FUNCTIONS)
def test_a_program_that_cannot_be_compiled_is_freed(failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Mock(**{f"{name}.return_value": 6 if name == failing else 0 for name in NVRTC_FUNCTIONS})
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: compiler)
    with pytest.raises(EngineFailure, match="CUDA's compiler failed with error 6"):
        compile_sources("", "sm_90")
    assert compiler.nvrtcDestroyProgram.call_count == (failing != "nvrtcCreateProgram")
