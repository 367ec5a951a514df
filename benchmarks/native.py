"""Measure a decoder step of the native kernels by rows and threads, and its lower bound.

The graph is a decoder of the base size with random weights. It consists of native operators and one
LayerNormalization. Each row attends to `--columns` subwords of its target and to as many of its source; each of them is
a column of a cache. Times are medians of a step through ONNX Runtime. The lower bound (floor) is the larger of two
times. The first is the bytes of weights and caches over the bandwidth. The second is a sum: the multiply-adds with
weights over the peak rate, and the caches' bytes over the bandwidth. Bandwidth and peak rate are those of `--threads`
cores of the machine on which the kernels were tuned.

    python -m benchmarks.native --vocab-size 8000,32000 --cache float16,float32 --json benchmarks/results/native.json
    python -m benchmarks.native --rows 8 --threads 2 --vocab-size 32000 --operators
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from app.runtime import native
from benchmarks.machine import describe_run

DOMAIN = "transduce"
EPSILON = 1e-5
# Peak multiply-adds/s and bytes/s of one core of the machine on which the kernels were tuned.
PEAK_PRODUCTS = {"int8": 333e9, "float32": 83e9}
PEAK_BYTES = 28e9


@dataclass(frozen=True)
class Size:
    """A decoder's dimensions.

    columns: every row attends to this many columns of its target, and to as many of its source. capacity: allocated
    columns of a cache. dtype: type of the weights. cache: type of the caches.
    """

    vocab_size: int
    columns: int
    dtype: str
    cache: str
    d_model: int = 512
    d_ff: int = 2048
    num_heads: int = 8
    num_layers: int = 6
    capacity: int = 256

    @property
    def num_weights(self) -> int:
        """The number of weights that a step multiplies with."""
        layer = 6 * self.d_model**2 + 2 * self.d_model * self.d_ff
        return self.num_layers * layer + self.vocab_size * self.d_model

    def floor_ms(self, rows: int, threads: int) -> float:
        """The lower bound of a step's time in milliseconds."""
        item = np.dtype(self.cache).itemsize
        cache_bytes = rows * self.num_layers * 4 * self.columns * self.d_model * item
        weight_bytes = self.num_weights * np.dtype(self.dtype).itemsize
        streamed = (weight_bytes + cache_bytes) / PEAK_BYTES
        multiplied = rows * self.num_weights / PEAK_PRODUCTS[self.dtype] + cache_bytes / PEAK_BYTES
        return max(streamed, multiplied) / threads * 1e3


class DecoderGraphBuilder:
    """Builds the decoder's graph, operator by operator."""

    def __init__(self, size: Size) -> None:
        self._size = size
        self._random = np.random.default_rng(1)
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def build(self) -> bytes:
        """Build the graph. Returns it as a serialised ONNX model."""
        size, d = self._size, self._size.d_model
        table = self._weights("table", size.vocab_size, d, size.vocab_size)
        position_table = self._constant("position_table", self._floats(size.capacity, d))
        self._op("Embed", ["ids", "positions", *table, position_table], ["x"])
        self._constant("one", np.ones(d, np.float32))
        self._constant("zero", np.zeros(d, np.float32))
        self._nodes.append(
            helper.make_node("LayerNormalization", ["x", "one", "zero"], ["normed"], axis=-1, epsilon=EPSILON)
        )
        flow = ["x", "normed"]
        heads = {"num_heads": size.num_heads, "epsilon": EPSILON}
        for layer in range(size.num_layers):
            self_cache, cross_cache = (
                [f"{kind}_{part}_{layer}" for part in ("keys", "values")] for kind in ("self", "cross")
            )
            qkv, out = self._linear(f"qkv_{layer}", d, 3 * d), self._linear(f"o_{layer}", d, d)
            flow = self._block(
                "SelfAttentionStep", [*flow, "positions", *self_cache, *qkv, *out], layer, **heads
            )
            q, out = self._linear(f"cross_q_{layer}", d, d), self._linear(f"cross_o_{layer}", d, d)
            inputs = [*flow, "slots", "lengths", *cross_cache, *q, *out]
            flow = self._block("CrossAttentionStep", inputs, layer, **heads)
            inner, outer = self._linear(f"1_{layer}", d, size.d_ff), self._linear(f"2_{layer}", size.d_ff, d)
            flow = self._block(
                "FeedForward", [*flow, *inner, *outer], layer, activation="relu", epsilon=EPSILON
            )
        self._op("Candidates", [flow[1], *table, "num_candidates", "wanted"], ["best", "ids_out", "all"])
        return self._finish()

    def _block(self, kind: str, inputs: list[str], layer: int, **attributes: Any) -> list[str]:
        return self._op(
            kind, [*inputs, "one", "zero"], [f"{kind}_{layer}_{i}" for i in range(2)], **attributes
        )

    def _op(self, kind: str, inputs: list[str], outputs: list[str], **attributes: Any) -> list[str]:
        name = f"{kind}:{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, outputs, name=name, domain=DOMAIN, **attributes))
        return outputs

    def _floats(self, *shape: int) -> NDArray[np.float32]:
        return self._random.standard_normal(shape).astype(np.float32)

    def _constant(self, name: str, values: NDArray[Any]) -> str:
        self._constants.append(numpy_helper.from_array(values, name))
        return name

    def _weights(self, name: str, rows: int, columns: int, num_scales: int) -> list[str]:
        if self._size.dtype == "float32":
            values, scales = self._floats(rows, columns) / 20, np.zeros(0, np.float32)
        else:
            values = self._random.integers(-127, 128, (rows, columns), np.int8)
            scales = np.full(num_scales, 1 / 2000, np.float32)
        return [self._constant(f"w_{name}", values), self._constant(f"s_{name}", scales)]

    def _linear(self, name: str, inputs: int, outputs: int) -> list[str]:
        weights = self._weights(name, inputs, outputs, outputs)
        return [*weights, self._constant(f"b_{name}", self._floats(outputs))]

    def _finish(self) -> bytes:
        size = self._size
        integers = {"ids": "int32", "positions": "int32", "slots": "int32", "lengths": "int32"}
        integers |= {"num_candidates": "int64", "wanted": "int64"}
        caches = [
            f"{kind}_{part}_{layer}"
            for layer in range(size.num_layers)
            for kind in ("self", "cross")
            for part in ("keys", "values")
        ]
        types = {"int32": TensorProto.INT32, "int64": TensorProto.INT64, "float32": TensorProto.FLOAT}
        types |= {"float16": TensorProto.FLOAT16}
        graph = helper.make_graph(
            self._nodes,
            "decoder",
            [helper.make_tensor_value_info(name, types[dtype], None) for name, dtype in integers.items()]
            + [helper.make_tensor_value_info(name, types[size.cache], None) for name in caches],
            [
                helper.make_tensor_value_info("best", types["float32"], None),
                helper.make_tensor_value_info("ids_out", types["int64"], None),
                helper.make_tensor_value_info("all", types["float32"], None),
            ],
            self._constants,
        )
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
        content: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
        return content


def load(content: bytes, profile: str | None = None) -> Any:
    """A session with one thread in ONNX Runtime's own pool."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.register_custom_ops_library(str(native.library_path()))
    if profile:
        options.enable_profiling = True
        options.profile_file_prefix = profile
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def bind(session: Any, size: Size, rows: int) -> Any:
    """Bind all inputs and outputs of a step to fixed memory."""
    random = np.random.default_rng(rows)
    arrays: dict[str, NDArray[Any]] = {
        "ids": random.integers(0, size.vocab_size, rows).astype(np.int32),
        "positions": np.full(rows, size.columns - 1, np.int32),
        "slots": np.arange(rows, dtype=np.int32),
        "lengths": np.full(rows, size.columns, np.int32),
        "num_candidates": np.array([8]),
        "wanted": np.array([0]),
        "best": np.zeros((rows, 8), np.float32),
        "ids_out": np.zeros((rows, 8), np.int64),
        "all": np.zeros((rows, size.vocab_size), np.float32),
    }
    binding = session.io_binding()
    for value in session.get_inputs():
        if value.name not in arrays:
            shape = (rows, size.capacity, size.d_model)
            arrays[value.name] = (random.standard_normal(shape, np.float32) / 8).astype(size.cache)
        binding.bind_ortvalue_input(value.name, onnxruntime.OrtValue.ortvalue_from_numpy(arrays[value.name]))
    for value in session.get_outputs():
        binding.bind_ortvalue_output(value.name, onnxruntime.OrtValue.ortvalue_from_numpy(arrays[value.name]))
    return binding


def step_ms(session: Any, binding: Any, seconds: float) -> tuple[float, float]:
    """Run steps for `seconds` seconds. Returns the median and the lowest time in ms, without the first fifth."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        begin = time.perf_counter()
        session.run_with_iobinding(binding)
        times.append(time.perf_counter() - begin)
    times = times[len(times) // 5 :]
    return float(np.median(times)) * 1e3, min(times) * 1e3


def operators_us(content: bytes, size: Size, rows: int, seconds: float) -> dict[str, float]:
    """Microseconds per step by kind of operator, from ONNX Runtime's profile."""
    with tempfile.TemporaryDirectory() as folder:
        session = load(content, profile=f"{folder}/profile")
        binding = bind(session, size, rows)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            session.run_with_iobinding(binding)
        events = json.loads(Path(session.end_profiling()).read_text())
    kernels = [event for event in events if event.get("name", "").endswith("kernel_time")]
    by_node: dict[str, list[int]] = {}
    for event in kernels:
        by_node.setdefault(event["name"], []).append(event["dur"])
    total: defaultdict[str, float] = defaultdict(float)
    for name, durations in by_node.items():
        total[name.partition(":")[0].partition("_")[0]] += float(np.mean(durations[len(durations) // 5 :]))
    return dict(total)


def measure(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measure every case, and print a line for each."""
    for vocab_size, cache in product(map(int, options.vocab_size.split(",")), options.cache.split(",")):
        size = Size(vocab_size, options.columns, options.dtype, cache)
        content = DecoderGraphBuilder(size).build()
        session = load(content)
        for rows, threads in product(map(int, options.rows.split(",")), map(int, options.threads.split(","))):
            native.set_num_threads(threads, spin_us=options.spin_us)
            median, fastest = step_ms(session, bind(session, size, rows), options.seconds)
            case = {
                "vocab_size": vocab_size,
                "weights": options.dtype,
                "cache": cache,
                "columns": options.columns,
                "rows": rows,
                "threads": threads,
                "median_ms": round(median, 3),
                "fastest_ms": round(fastest, 3),
                "floor_ms": round(size.floor_ms(rows, threads), 3),
            }
            if options.operators:
                by_kind = operators_us(content, size, rows, options.seconds)
                case["operators_us"] = {kind: round(us, 1) for kind, us in by_kind.items()}
            print(" ".join(f"{name} {value}" for name, value in case.items()), flush=True)
            yield case


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print one line per case. Returns the exit code, 1 if the native kernels cannot run."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.native",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--rows", default="1,8,32,128", help="rows of a step (default: 1,8,32,128)")
    add("--threads", default="1,2", help="threads of the thread pool (default: 1,2)")
    add("--vocab-size", default="8000", help="vocabulary sizes (default: 8000)")
    add("--columns", type=int, default=22, help="subwords of each side that a row attends to (default: 22)")
    add("--dtype", default="int8", choices=["int8", "float32"], help="type of the weights (default: int8)")
    add("--cache", default="float16", help="types of the caches: float16, float32 (default: float16)")
    add("--spin-us", type=int, help="microseconds that a thread spins before it sleeps")
    add("--seconds", type=float, default=1.0, help="duration of a case (default: 1)")
    add("--operators", action="store_true", help="also measure the time of each kind of operator")
    add("--json", type=Path, help="write the result to this file")
    options = parser.parse_args(arguments)
    if native.library_path() is None or not native.is_supported():
        print("the native kernels were not built, or this CPU cannot run them", file=sys.stderr)
        return 1
    head = describe_run("benchmarks.native", arguments)
    found = list(measure(options))
    if options.json:
        result = {
            **head,
            "peak_products_per_s": PEAK_PRODUCTS[options.dtype],
            "peak_bytes_per_s": PEAK_BYTES,
            "cases": found,
        }
        options.json.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
