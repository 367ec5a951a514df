"""A fake of CUDA's runtime library that uses host memory, and the GPU runner with this fake."""

# ruff: noqa: N802, N815 - the names are the library's
from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from app.bundle import Bundle
from app.graphs import Precision
from app.language_pairs import LanguagePair
from app.runtime.cuda_kernels import Kernels
from app.runtime.cuda_memory import Cuda
from app.runtime.cuda_pool import CudaPool
from app.runtime.cuda_runner import CudaRunner
from app.runtime.kv_cache import PoolShape
from app.runtime.ort_runner import OrtRunner, load_runner
from app.runtime.session import Session, SessionOptions
from export.bundle_writer import make_manifest, write_variant
from export.weights import weights_of
from model.transformer import Transformer
from tests.export.tiny import bundle_request

STREAM = 4711


class HostCuda:
    """The CUDA functions that the project uses. They return `code` as their error code, but a free always returns 0.

    is_late: whether copies and kernels wait until the host waits for them or a graph runs. Otherwise they run at once.
    num_waits, num_event_waits, num_copies_out: the numbers of waits for the stream, waits for an event, and copies
        from the device to the host.
    blocks: all memory that was allocated, by address. freed: the addresses that were freed.
    num_done: how many copies and kernels have run.
    thread_modes: the modes of stream capture that threads have set.
    New memory holds garbage, so a read before the first write gives a wrong result.
    """

    def __init__(self, *, is_late: bool = False) -> None:
        self.code = 0
        self.num_waits = 0
        self.freed: list[int] = []
        self.thread_modes: list[int] = []
        self.blocks: dict[int, Any] = {}
        self._is_late = is_late
        self._pending: deque[Any] = deque()
        self._places: list[int] = []  # for each event, how many copies and kernels precede it
        self.num_done = self.num_event_waits = self.num_copies_out = 0

    def cudaThreadExchangeStreamCaptureMode(self, mode: Any) -> int:
        self.thread_modes.append(mode._obj.value)
        return self.code

    def cudaStreamCreateWithFlags(self, reference: Any, flags: int) -> int:
        assert flags == 1
        reference._obj.value = STREAM
        return self.code

    def cudaMalloc(self, reference: Any, size: Any) -> int:
        block = (ctypes.c_uint8 * (size.value + 256))()
        address = -(-ctypes.addressof(block) // 256) * 256
        ctypes.memset(block, 0x7F, size.value + 256)
        self.blocks[address] = block
        reference._obj.value = address
        return self.code

    cudaMallocHost = cudaMalloc

    def cudaFree(self, address: Any) -> int:
        self.freed.append(address.value)
        return 0

    cudaFreeHost = cudaFree

    def cudaDeviceGetAttribute(self, reference: Any, attribute: int, device: int) -> int:
        reference._obj.value = {75: 9, 76: 0}[attribute]  # compute capability 9.0
        assert device == 0
        return self.code

    def cudaMemGetInfo(self, free: Any, total: Any) -> int:
        free._obj.value, total._obj.value = 3_000_000, 4_000_000
        return self.code

    def cudaMemsetAsync(self, address: Any, value: int, size: Any, stream: Any) -> int:
        return self.enqueue(stream, lambda: ctypes.memset(address.value, value, size.value))

    def cudaMemcpyAsync(self, target: Any, source: Any, size: Any, kind: int, stream: Any) -> int:
        assert kind in {1, 2}
        self.num_copies_out += kind == 2
        return self.enqueue(stream, lambda: ctypes.memmove(target.value, source.value, size.value))

    def cudaMemcpy3DAsync(self, reference: Any, stream: Any) -> int:
        copy = reference._obj

        def move() -> None:
            for z in range(copy.extent.depth):
                for y in range(copy.extent.height):
                    target, source = (
                        block.ptr
                        + ((position.z + z) * block.ysize + position.y + y) * block.pitch
                        + position.x
                        for block, position in ((copy.dst, copy.dst_pos), (copy.src, copy.src_pos))
                    )
                    ctypes.memmove(target, source, copy.extent.width)

        return self.enqueue(stream, move)

    def cudaStreamSynchronize(self, stream: Any) -> int:
        assert stream.value == STREAM
        self.num_waits += 1
        self.run_pending()
        return self.code

    def cudaEventCreateWithFlags(self, reference: Any, flags: int) -> int:
        assert flags == 2
        self._places.append(0)
        reference._obj.value = len(self._places)
        return self.code

    def cudaEventRecord(self, event: Any, stream: Any) -> int:
        assert stream.value == STREAM
        self._places[event.value - 1] = self.num_done + len(self._pending)
        return self.code

    def cudaEventSynchronize(self, event: Any) -> int:
        """Runs the work before the event's place, and no later work."""
        self.num_event_waits += 1
        while self.num_done < self._places[event.value - 1]:
            self._run_next()
        return self.code

    def run_pending(self) -> None:
        """Run all enqueued work, in order."""
        while self._pending:
            self._run_next()

    def _run_next(self) -> None:
        self._pending.popleft()()
        self.num_done += 1

    def enqueue(self, stream: Any, work: Any) -> int:
        """Run work now, or at a wait for it."""
        assert stream.value == STREAM
        if self._is_late:
            self._pending.append(work)
        else:
            work()
            self.num_done += 1
        return self.code


def host_cuda(library: HostCuda | None = None, **options: Any) -> Cuda:
    return Cuda(device="cpu", library=library or HostCuda(), **options)


def read_cuda(pool: CudaPool, shape: PoolShape) -> np.ndarray[Any, Any]:
    """The pool's memory: (planes, rows, num_heads, capacity, head_dim)."""
    axes = (shape.num_planes, shape.num_rows, shape.num_heads, shape.capacity, shape.head_dim)
    content = (ctypes.c_uint8 * shape.num_bytes).from_address(pool.block.address)
    values: np.ndarray[Any, Any] = np.ctypeslib.as_array(content).view(shape.dtype).reshape(axes)
    return values


class Recorder:
    """A session's binding that records the bound addresses."""

    def __init__(self, binding: Any) -> None:
        self.binding = binding
        self.addresses: dict[str, int] = {}

    def bind_input(self, name: str, *location: Any) -> None:
        self.addresses[name] = location[-1]
        self.binding.bind_input(name, *location)

    def bind_output(self, name: str, *location: Any) -> None:
        if len(location) > 1:
            self.addresses[name] = location[-1]
        self.binding.bind_output(name, *location)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.binding, name)


class RecordingSession(Session):
    """A session that records the bound addresses and the graph id of each run.

    A run starts after all work that was enqueued before it, as on one stream. The options of a run must tell ONNX
    Runtime not to wait for the end of the run. A run repeats the graph num_repeats times, as the capture of a CUDA
    graph does.
    """

    def __init__(self, *arguments: Any, cuda: Cuda, num_repeats: int = 1) -> None:
        super().__init__(*arguments)
        self.cuda = cuda
        self.runs: list[tuple[str, dict[str, int]]] = []
        self.num_repeats = num_repeats

    def binding(self) -> Any:
        return Recorder(super().binding())

    def run(self, binding: Any, run_options: Any = None) -> None:
        self.runs.append((run_options.get_run_config_entry("gpu_graph_id"), dict(binding.addresses)))
        assert run_options.get_run_config_entry("disable_synchronize_execution_providers") == "1"
        self.cuda.library.run_pending()
        for _ in range(self.num_repeats):
            super().run(binding.binding, run_options)


# What `load_both` returns.
Both = tuple[OrtRunner, CudaRunner, RecordingSession]


def load_both(
    bundle: Bundle,
    *,
    num_rows: int,
    num_repeats: int = 1,
    load_kernels: Callable[[Cuda], Kernels | None] = lambda _: None,
) -> Both:
    """A CPU runner, a GPU runner that runs the same graphs on the CPU, and the decoder session of the GPU runner.

    bundle: made by `one_variant`. load_kernels: makes the kernels; by default there are none.
    """
    (precision,) = bundle.manifest.variants
    variant = bundle.manifest.variants[precision]
    expected = load_runner(
        bundle, precision=precision, device="cpu", num_rows=num_rows, num_threads=1, kernels="standard"
    )
    assert isinstance(expected, OrtRunner)
    options, cuda = SessionOptions("cpu", num_threads=1), host_cuda(HostCuda(is_late=True))
    encoder = RecordingSession(bundle.path, variant.encoder, options, cuda=cuda)
    decoder = RecordingSession(bundle.path, variant.decoder, options, cuda=cuda, num_repeats=num_repeats)
    runner = CudaRunner(
        encoder, decoder, limits=expected.limits, cuda=cuda, kernels=load_kernels(cuda), has_graphs=True
    )
    return expected, runner, decoder


def one_variant(
    model: Transformer, precision: Precision, folder: Path, *, has_target_start: bool = False
) -> Bundle:
    """A bundle that has only graphs. has_target_start: whether targets begin with a start token of their pair."""
    variant = write_variant(folder, weights_of(model), precision)
    pairs = (LanguagePair(source="en", target="de", target_start="__de__"),) if has_target_start else ()
    request = replace(bundle_request(), pairs=pairs)
    return Bundle(folder, make_manifest(model.config, request, {precision: variant}, folder), ())
