"""The machine's limits: memory bandwidth and rate of products, both measured, and the least time of a case.

What is measured is what numpy and ONNX Runtime's own product reach, which is at most what the machine can do: a
side that uses it better shows a share of the floor above 1.
"""

from __future__ import annotations

import os
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
from benchmarks.engine.jobs import Done, Job

WEIGHT_BYTES: dict[Precision, int] = {"int8": 1, "fp16": 2, "fp32": 4}
CACHE_BYTES = {"float32": 4, "float16": 2, "int8": 1}
# Rows, inputs and outputs of the measured product.
PRODUCT = (512, 2048, 2048)
MEASURING_S = 0.4
# Bytes of one reading: enough that the start of the threads does not count.
READ_BYTES = 1 << 28


@dataclass(frozen=True)
class Machine:
    """Measured with all threads: bytes/s by buffer size, multiply-adds/s by precision."""

    num_threads: int
    bytes_per_s: dict[str, float]
    products_per_s: dict[str, float]

    def bandwidth(self, num_bytes: int) -> float:
        """The bandwidth at the nearest measured size."""
        nearest = min(self.bytes_per_s, key=lambda size: abs(int(size) - num_bytes / 2**20))
        return self.bytes_per_s[nearest]


@dataclass(frozen=True)
class Floor:
    """The least time of a case in seconds, by the limit of each part."""

    weights_gb: float
    cache_gb: float
    products_g: float
    attention_g: float
    seconds: float


def measure_machine(num_threads: int, sizes_mb: tuple[int, ...]) -> Machine:
    """Measure the machine, in a second or two. sizes_mb: of the buffers; the weights' size is added."""
    return Machine(
        num_threads,
        {str(size): _bytes_per_s(size * 2**20, num_threads) for size in sizes_mb},
        {precision: _products_per_s(precision, num_threads) for precision in ("int8", "fp32")},
    )


def _bytes_per_s(num_bytes: int, num_threads: int) -> float:
    """The best of several readings. Each thread finds the maximum of its part; NumPy releases Python's lock for it."""
    # The buffer is written first. Pages that were never written share one page, which stays in the nearest cache.
    parts = [np.ones(num_bytes // num_threads // 8, np.int64) for _ in range(num_threads)]
    num_turns = max(1, READ_BYTES // num_bytes)

    def read(part: NDArray[np.int64]) -> None:
        for _ in range(num_turns):
            part.max()

    best = 0.0
    with ThreadPoolExecutor(num_threads) as executor:
        until = time.perf_counter() + MEASURING_S
        while time.perf_counter() < until:
            started_at = time.perf_counter()
            list(executor.map(read, parts))
            best = max(best, num_turns * num_bytes / (time.perf_counter() - started_at))
    return best


def _products_per_s(precision: str, num_threads: int) -> float:
    """The best of several products by ONNX Runtime's own kernel. Its weights are constant, so it packs them."""
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
    until = time.perf_counter() + MEASURING_S
    while time.perf_counter() < until:
        started_at = time.perf_counter()
        session.run(None, {"x": x})
        best = max(best, rows * inputs * outputs / (time.perf_counter() - started_at))
    return best


def decoder_bytes(manifest: Manifest, precision: Precision) -> int:
    """Weights that a decoder step reads: those of its layers and of the output projection."""
    return _decoder_weights(manifest) * WEIGHT_BYTES[precision]


def _decoder_weights(manifest: Manifest) -> int:
    """Numbers in the weights of a step.

    A layer: self-attention 4 d^2, cross-attention 2 d^2 (its keys and values are the encoder's), feed-forward 2 d f.
    """
    size = manifest.dimensions
    layer = 6 * size.d_model**2 + 2 * size.d_model * size.d_ff
    return size.num_decoder_layers * layer + size.vocab_size * size.d_model


def _encoder_weights(manifest: Manifest) -> int:
    """Numbers in the encoder's weights.

    A layer: 4 d^2 + 2 d f. The keys and values of each decoder layer: 2 d^2.
    """
    size = manifest.dimensions
    layer = 4 * size.d_model**2 + 2 * size.d_model * size.d_ff
    return size.num_encoder_layers * layer + size.num_decoder_layers * 2 * size.d_model**2


def floor_of(manifest: Manifest, precision: Precision, machine: Machine, job: Job, done: Done) -> Floor:
    """The floor of one call.

    Weights are read once in each step, and once for the encoding of each group. Of the cache a step reads each row's
    own keys and values up to its position, and each sentence's once, whatever its beam. Products of weights run at the
    rate of their precision. Products of attention are fp32 in every precision, and run at its rate.
    """
    size = manifest.dimensions
    sources = [ids for group in job.groups for ids in group]
    steps = [job.max_target_length if job.is_forced else len(ids) + 1 for ids in done.ids]
    num_calls = max(1, len(done.times_s))
    num_steps, num_rows = done.spent.num_steps / num_calls, done.spent.num_rows / num_calls
    source_tokens = sum(map(len, sources))
    own_columns = sum(length * (length + 1) / 2 for length in steps) * job.beam_size
    cross_columns = sum(length * len(ids) for length, ids in zip(steps, sources, strict=True))
    column_bytes = 2 * size.num_decoder_layers * size.d_model * _cache_bytes(manifest, precision)
    weights_bytes = num_steps * decoder_bytes(manifest, precision) + len(job.groups) * (
        _encoder_weights(manifest) * WEIGHT_BYTES[precision]
    )
    cache_bytes = column_bytes * (own_columns + cross_columns)
    products = num_rows * _decoder_weights(manifest) + source_tokens * _encoder_weights(manifest)
    attention = 2 * size.d_model * size.num_decoder_layers * (
        own_columns + job.beam_size * cross_columns
    ) + 2 * size.d_model * size.num_encoder_layers * sum(len(ids) ** 2 for ids in sources)
    reading_s = (weights_bytes + cache_bytes) / machine.bandwidth(decoder_bytes(manifest, precision))
    computing_s = products / machine.products_per_s[precision] + attention / machine.products_per_s["fp32"]
    return Floor(
        weights_bytes / 1e9, cache_bytes / 1e9, products / 1e9, attention / 1e9, max(reading_s, computing_s)
    )


def _cache_bytes(manifest: Manifest, precision: Precision) -> int:
    """Bytes of one number in a cache, as the decoder's graph declares it."""
    specs = manifest.variants[precision].decoder.inputs
    dtype = next((spec.dtype for spec in specs if "key" in spec.name), "float32")
    return CACHE_BYTES[dtype]


def num_usable_threads() -> int:
    """The number of cores that this process may run on."""
    return len(os.sched_getaffinity(0))
