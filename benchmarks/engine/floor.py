"""Measures memory bandwidth and the rate of multiply-adds, and computes a lower bound for the time of a case.

NumPy measures the bandwidth, and ONNX Runtime's own matrix product measures the rate. The machine may be faster than
both. So a good engine can take less time than this bound.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper

from app.bundle import Manifest
from app.graphs import Precision
from benchmarks.engine.jobs import Job, JobResult

WEIGHT_BYTES: dict[Precision, int] = {"int8": 1, "fp16": 2, "fp32": 4}
CACHE_BYTES = {"float32": 4, "float16": 2, "int8": 1}
# Rows, inputs and outputs of the measured matrix product.
PRODUCT = (512, 2048, 2048)
# Seconds of each measurement, and of each in a quick run.
MEASURING_S, QUICK_MEASURING_S = 0.4, 0.05
# Bytes that one reading covers. With fewer bytes, the start of the threads would distort the bandwidth.
READ_BYTES = 1 << 28


@dataclass(frozen=True)
class Machine:
    """The machine's rates with all threads. bytes_per_s: by buffer size in MiB. products_per_s: by precision."""

    num_threads: int
    bytes_per_s: dict[str, float]
    products_per_s: dict[str, float]

    def bandwidth(self, num_bytes: int) -> float:
        """The bandwidth at the nearest measured size."""
        nearest = min(self.bytes_per_s, key=lambda size: abs(int(size) - num_bytes / 2**20))
        return self.bytes_per_s[nearest]


@dataclass(frozen=True)
class Floor:
    """The lower bound of a call's time in seconds, and the work behind it.

    weights_gb, cache_gb: reads in 10^9 bytes. products_g, attention_g: computation in 10^9 multiply-adds.
    """

    weights_gb: float
    cache_gb: float
    products_g: float
    attention_g: float
    seconds: float


def measure_machine(
    num_threads: int, sizes_mib: tuple[int, ...], *, precisions: tuple[Precision, ...], is_quick: bool
) -> Machine:
    """Measure the machine in a few seconds. sizes_mib: buffer sizes in MiB. precisions: those of `products_per_s`."""
    measuring_s = QUICK_MEASURING_S if is_quick else MEASURING_S
    return Machine(
        num_threads,
        {str(size): _bytes_per_s(size * 2**20, num_threads, measuring_s) for size in sizes_mib},
        {precision: _products_per_s(precision, num_threads, measuring_s) for precision in precisions},
    )


def _bytes_per_s(num_bytes: int, num_threads: int, measuring_s: float) -> float:
    """The best bandwidth of several reads. Each thread computes the maximum of its part, without Python's lock."""
    # Write the buffer first. Pages that were never written all map to one page, which would stay in the L1 cache.
    parts = [np.ones(num_bytes // num_threads // 8, np.int64) for _ in range(num_threads)]
    num_turns = max(1, READ_BYTES // num_bytes)

    def read(part: NDArray[np.int64]) -> None:
        for _ in range(num_turns):
            part.max()

    best = 0.0
    with ThreadPoolExecutor(num_threads) as executor:
        until = time.perf_counter() + measuring_s
        while time.perf_counter() < until:
            started_at = time.perf_counter()
            list(executor.map(read, parts))
            best = max(best, num_turns * num_bytes / (time.perf_counter() - started_at))
    return best


def _products_per_s(precision: str, num_threads: int, measuring_s: float) -> float:
    """The best rate of several products by ONNX Runtime's kernel, which packs the constant weights."""
    rows, inputs, outputs = PRODUCT
    rng = np.random.default_rng(0)
    x: NDArray[Any]
    float_weights = rng.normal(size=(inputs, outputs)).astype(np.float32)
    if precision == "int8":
        node = helper.make_node(
            "MatMulIntegerToFloat",
            ["x", "w", "x_scale", "w_scale", "x_zero"],
            ["y"],
            domain="com.microsoft",
        )
        constants = {
            "w": rng.integers(-127, 128, (inputs, outputs)).astype(np.int8),
            "x_scale": np.float32(0.01),
            "w_scale": np.full(outputs, 0.01, np.float32),
            "x_zero": np.uint8(128),
        }
        x = rng.integers(0, 256, (rows, inputs)).astype(np.uint8)
        dtype = TensorProto.UINT8
    else:
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
        constants = {"w": float_weights}
        x = float_weights[:rows]
        dtype = TensorProto.FLOAT
    graph = helper.make_graph(
        [node],
        "product",
        [helper.make_tensor_value_info("x", dtype, [rows, inputs])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, outputs])],
        [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    best = 0.0
    until = time.perf_counter() + measuring_s
    while time.perf_counter() < until:
        started_at = time.perf_counter()
        session.run(None, {"x": x})
        best = max(best, rows * inputs * outputs / (time.perf_counter() - started_at))
    return best


def decoder_bytes(manifest: Manifest, precision: Precision) -> int:
    """Bytes of weights that a decoder step reads: its layers and the output projection."""
    return decoder_weights(manifest) * WEIGHT_BYTES[precision]


def decoder_weights(manifest: Manifest) -> int:
    """The number of weights that a decoder step uses.

    A layer has 4 d^2 in self-attention, 2 d^2 in cross-attention and 2 d f in feed-forward. The other 2 d^2 of
    cross-attention project keys and values, which `_encoder_weights` counts.
    """
    size = manifest.dimensions
    layer = 6 * size.d_model**2 + 2 * size.d_model * size.d_ff
    return size.num_decoder_layers * layer + size.vocab_size * size.d_model


def _encoder_weights(manifest: Manifest) -> int:
    """The number of weights that an encoding uses.

    An encoder layer has 4 d^2 + 2 d f. Each decoder layer adds 2 d^2 for the cross-attention keys and values.
    """
    size = manifest.dimensions
    layer = 4 * size.d_model**2 + 2 * size.d_model * size.d_ff
    return size.num_encoder_layers * layer + size.num_decoder_layers * 2 * size.d_model**2


def floor_of(manifest: Manifest, precision: Precision, machine: Machine, job: Job, done: JobResult) -> Floor:
    """The lower bound of one call: the larger of the time to read and the time to compute.

    Each step reads the decoder's weights once, and each group's encoding reads the encoder's weights once. A step also
    reads each row's self-attention keys and values up to its position. It reads each sentence's cross-attention keys
    and values once, for any beam size. Products with weights run at the rate of their precision. Products of attention
    are fp32 in every precision, so they run at the rate of fp32.
    """
    size = manifest.dimensions
    sources = [ids for group in job.groups for ids in group]
    steps = [job.max_target_length if job.is_forced else len(ids) + 1 for ids in done.ids]
    num_calls = max(1, len(done.times_s))
    num_steps, num_rows = done.spent.num_steps / num_calls, done.spent.num_rows / num_calls
    source_tokens = sum(map(len, sources))
    # A column is the keys and values of one position, in all decoder layers.
    own_columns = sum(length * (length + 1) / 2 for length in steps) * job.beam_size
    cross_columns = sum(length * len(ids) for length, ids in zip(steps, sources, strict=True))
    column_bytes = 2 * size.num_decoder_layers * size.d_model * _cache_bytes(manifest, precision)
    weights_bytes = num_steps * decoder_bytes(manifest, precision) + len(job.groups) * (
        _encoder_weights(manifest) * WEIGHT_BYTES[precision]
    )
    cache_bytes = column_bytes * (own_columns + cross_columns)
    products = num_rows * decoder_weights(manifest) + source_tokens * _encoder_weights(manifest)
    attention = 2 * size.d_model * size.num_decoder_layers * (
        own_columns + job.beam_size * cross_columns
    ) + 2 * size.d_model * size.num_encoder_layers * sum(len(ids) ** 2 for ids in sources)
    reading_s = (weights_bytes + cache_bytes) / machine.bandwidth(decoder_bytes(manifest, precision))
    computing_s = products / machine.products_per_s[precision] + attention / machine.products_per_s["fp32"]
    return Floor(
        weights_bytes / 1e9, cache_bytes / 1e9, products / 1e9, attention / 1e9, max(reading_s, computing_s)
    )


def _cache_bytes(manifest: Manifest, precision: Precision) -> int:
    """Bytes of one cached number, by the type that the decoder's graph declares."""
    specs = manifest.variants[precision].decoder.inputs
    dtype = next((spec.dtype for spec in specs if "key" in spec.name), "float32")
    return CACHE_BYTES[dtype]
