"""One GPU's memory and one CUDA stream, through CUDA's runtime library.

The copies made here and the graphs that ONNX Runtime runs share the stream and run in order. Only the host waits for
results. Memory is allocated once and does not move, because bindings and CUDA graphs hold addresses.

Names, arguments and numbers are those of the CUDA Runtime API's manual, version 13.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.errors import EngineFailure
from app.runtime.cuda_threads import ignore_other_captures

LIBRARY = "libcudart.so.13"
TO_DEVICE, TO_HOST = 1, 2
# cudaStreamNonBlocking: the stream does not wait for the legacy default stream, which cannot be captured.
NON_BLOCKING = 1
# cudaEventDisableTiming: an event without a time is cheaper to record.
NO_TIMING = 2
MAJOR, MINOR = 75, 76  # cudaDevAttrComputeCapabilityMajor, cudaDevAttrComputeCapabilityMinor
# Bytes. The alignment of cudaMalloc's memory and of the parts of one allocation.
ALIGNMENT = 256


def aligned(num_bytes: int) -> int:
    """The least multiple of ALIGNMENT that is at least num_bytes."""
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT


class Cuda:
    """GPU 0 and one stream. Used from one thread at a time. Every method raises EngineFailure if CUDA fails.

    device: the GPU's name in ONNX Runtime's bindings. stream: the stream's handle.
    """

    def __init__(
        self, *, device: str = "cuda", library: Any = None, num_upload_bytes: int = 4 * 1024 * 1024
    ) -> None:
        """Create the stream. Raises OSError if CUDA's runtime library is missing, and EngineFailure.

        library: a replacement with the same functions, for tests without a GPU.
        num_upload_bytes: bytes that `upload` may fill between two waits. If smaller, there are more waits, and the
            largest possible upload is smaller.
        """
        self.device = device
        self._library: Any = ctypes.CDLL(LIBRARY) if library is None else library
        self._device_memory: list[int] = []
        self._host_memory: list[int] = []
        weakref.finalize(self, _free, self._library, self._device_memory, self._host_memory).atexit = False
        handle = ctypes.c_void_p()
        self.check(self.library.cudaStreamCreateWithFlags(ctypes.byref(handle), NON_BLOCKING))
        self.stream = handle.value or 0
        self._num_uploaded = 0
        self._num_upload_bytes = num_upload_bytes
        self._upload_target = self.allocate(num_upload_bytes)
        self._upload_source = self.allocate_host(num_upload_bytes)

    @property
    def library(self) -> Any:
        """CUDA's runtime library, for one call. The thread may call it while another thread captures a CUDA graph."""
        ignore_other_captures(self._library)
        return self._library

    def check(self, code: int) -> None:
        """Raise EngineFailure for a code that is not cudaSuccess."""
        if code:
            raise EngineFailure(f"the GPU failed with CUDA error {code}")

    def compute_capability(self) -> tuple[int, int]:
        """The GPU's compute capability, major and minor."""
        found = []
        for attribute in (MAJOR, MINOR):
            value = ctypes.c_int()
            self.check(self.library.cudaDeviceGetAttribute(ctypes.byref(value), attribute, 0))
            found.append(value.value)
        return found[0], found[1]

    def free_and_total_bytes(self) -> tuple[int, int]:
        """Free and total memory of the GPU."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.check(self.library.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)))
        return free.value, total.value

    def allocate(self, num_bytes: int) -> int:
        """The address of zeroed memory on the GPU, freed with this object."""
        address = ctypes.c_void_p()
        self.check(self.library.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(num_bytes)))
        assert address.value is not None
        self._device_memory.append(address.value)
        size, stream = ctypes.c_size_t(num_bytes), ctypes.c_void_p(self.stream)
        self.check(self.library.cudaMemsetAsync(address, 0, size, stream))
        return address.value

    def allocate_host(self, num_bytes: int) -> NDArray[np.uint8]:
        """Zeroed page-locked host memory, freed with this object. The GPU copies from and to it without a buffer."""
        address = ctypes.c_void_p()
        self.check(self.library.cudaMallocHost(ctypes.byref(address), ctypes.c_size_t(num_bytes)))
        assert address.value is not None
        self._host_memory.append(address.value)
        found = np.ctypeslib.as_array((ctypes.c_uint8 * num_bytes).from_address(address.value))
        found[:] = 0
        return found

    def copy_in(self, target: int, source: NDArray[Any], num_bytes: int) -> None:
        """Enqueue a copy from the beginning of an array of `allocate_host`. Keep it unchanged until the next wait."""
        self._copy(target, source.ctypes.data, num_bytes, TO_DEVICE)

    def copy_out(self, target: NDArray[Any], source: int, num_bytes: int) -> None:
        """Enqueue a copy to the beginning of an array of `allocate_host`. It is complete after the next wait."""
        self._copy(target.ctypes.data, source, num_bytes, TO_HOST)

    def upload(self, *arrays: NDArray[Any]) -> list[int]:
        """Enqueue one copy of arrays to the GPU, and return their addresses there.

        An address is valid for work that is enqueued before the next upload. Raises EngineFailure also for arrays of
        more than num_upload_bytes.
        """
        num_bytes = sum(aligned(values.nbytes) for values in arrays)
        if num_bytes > self._num_upload_bytes:
            raise EngineFailure(f"{num_bytes} bytes to upload at once, the limit is {self._num_upload_bytes}")
        if self._num_uploaded + num_bytes > self._num_upload_bytes:
            self.wait()
        first = end = self._num_uploaded
        addresses = []
        for values in arrays:
            part = self._upload_source[end : end + values.nbytes]
            part[:] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
            addresses.append(self._upload_target + end)
            end += aligned(values.nbytes)
        self.copy_in(self._upload_target + first, self._upload_source[first:], end - first)
        self._num_uploaded = end
        return addresses

    def wait(self) -> None:
        """Wait until all enqueued work is done."""
        self.check(self.library.cudaStreamSynchronize(ctypes.c_void_p(self.stream)))
        self._num_uploaded = 0

    def make_event(self) -> int:
        """The handle of a new event, which marks a place in the stream. It lives as long as the process."""
        event = ctypes.c_void_p()
        self.check(self.library.cudaEventCreateWithFlags(ctypes.byref(event), NO_TIMING))
        return event.value or 0

    def record(self, event: int) -> None:
        """Let an event mark the end of the work that is enqueued now, instead of its earlier place."""
        self.check(self.library.cudaEventRecord(ctypes.c_void_p(event), ctypes.c_void_p(self.stream)))

    def wait_for(self, event: int) -> None:
        """Wait until the work before an event's place is done. Later work may go on."""
        self.check(self.library.cudaEventSynchronize(ctypes.c_void_p(event)))

    def _copy(self, target: int, source: int, num_bytes: int, kind: int) -> None:
        addresses = ctypes.c_void_p(target), ctypes.c_void_p(source)
        size, stream = ctypes.c_size_t(num_bytes), ctypes.c_void_p(self.stream)
        self.check(self.library.cudaMemcpyAsync(*addresses, size, kind, stream))


def _free(library: Any, device_memory: list[int], host_memory: list[int]) -> None:
    """Free all memory. cudaFree waits for running work. The stream is kept, because sessions may still use it."""
    ignore_other_captures(library)
    for address in device_memory:
        library.cudaFree(ctypes.c_void_p(address))
    for address in host_memory:
        library.cudaFreeHost(ctypes.c_void_p(address))
