"""Measures speed on a GPU: steps with and without CUDA graphs, translations, HTTP. Also memory over time."""

from __future__ import annotations

import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from app.bundle import Bundle, Manifest
from app.runtime.interface import Runner, StepInput
from benchmarks.gpu.subject import (
    GpuBenchmarkOptions,
    SkipError,
    bundled,
    encode,
    free_mb,
    load,
    make_random_bundle,
    natural_lengths,
    read_text,
    translate,
)

if TYPE_CHECKING:
    from benchmarks.server_process import ServerProcess

# Peak rates, measured on an H200 with a copy in its memory and a large bf16 matrix product.
BYTES_PER_S, FLOPS_PER_S = 4.3e12, 790e12
FP16_BYTES = 2
# Lengths in subwords of the target and the source that a row attends to, as in an average sentence.
TARGET_LENGTH, SOURCE_LENGTH = 30, 25
MEMORY_TARGET_LENGTH = 40
SERVER_NEEDS = (
    *("fastapi", "uvicorn", "pydantic_settings", "orjson", "msgspec", "prometheus_client", "sentencex"),
    *("python_multipart", "markdown_it", "py3langid"),
)


def steps(options: GpuBenchmarkOptions) -> dict[str, Any]:
    """Median milliseconds of a decoder step, by rows and beam size, with and without CUDA graphs.

    The time of a beam's step includes its copies of rows.
    """
    bundle = make_random_bundle(options)
    sizes = (1, 8) if options.is_quick else (1, 8, 32, 128, 512)
    rows: list[dict[str, Any]] = []
    for has_graphs in (True, False) if options.device == "cuda" else (True,):
        runner = load(options, bundle, num_rows=max(sizes), has_graphs=has_graphs)
        for beam_size in (1, 4):
            for num_rows in sizes:
                if num_rows < beam_size:
                    continue
                seconds = _time(step_of(runner, num_rows, beam_size), options.pick(200, 3))
                rows.append({
                    "rows": num_rows,
                    "beam": beam_size,
                    "graphs": has_graphs and options.device == "cuda",
                    "step_ms": seconds * 1e3,
                    **_shares(bundle.manifest, num_rows, seconds),
                })  # fmt: skip
    return {"model": bundle.manifest.dimensions.model_dump(), "steps": rows}


def step_of(runner: Runner, num_rows: int, beam_size: int) -> Callable[[], object]:
    """A function that runs a step in the middle of a sentence. With a beam, it also copies a quarter of the rows."""
    random_numbers = np.random.default_rng(num_rows)
    limits = runner.limits
    sources = random_numbers.integers(8, limits.vocab_size, (num_rows, SOURCE_LENGTH)).astype(np.int32)
    runner.encode(list(sources), list(range(num_rows)))
    ids = random_numbers.integers(8, limits.vocab_size, num_rows).astype(np.int32)
    positions = np.full(num_rows, TARGET_LENGTH, np.int32)
    step = StepInput(ids, positions, 1 if beam_size == 1 else 2 * beam_size)
    moved = np.arange(0, num_rows, 4, dtype=np.int32)
    lengths = np.full(len(moved), TARGET_LENGTH + 1, np.int32)

    def run() -> None:
        runner.decode(step)
        if beam_size > 1:
            runner.reorder(moved, moved + 1, lengths, np.zeros_like(lengths))

    return run


def _time(call: Callable[[], object], number: int) -> float:
    """Median seconds of a call, after three calls that capture the graphs."""
    for _ in range(3):
        call()
    times = []
    for _ in range(number):
        started_at = time.perf_counter()
        call()
        times.append(time.perf_counter() - started_at)
    return statistics.median(times)


def _shares(manifest: Manifest, num_rows: int, seconds: float) -> dict[str, float]:
    """The bytes that a step reads and its operations, and the resulting shares of the peak rates."""
    from benchmarks.engine.floor import decoder_weights

    d, weights = manifest.dimensions, decoder_weights(manifest)
    columns = TARGET_LENGTH + 1 + SOURCE_LENGTH
    cache = num_rows * d.num_decoder_layers * 2 * d.d_model * columns
    num_bytes = FP16_BYTES * (weights + cache)
    flops = 2.0 * num_rows * weights + 2.0 * cache
    return {
        "megabytes": num_bytes / 1e6,
        "gflop": flops / 1e9,
        "share_of_bandwidth": num_bytes / seconds / BYTES_PER_S,
        "share_of_matrix_rate": flops / seconds / FLOPS_PER_S,
    }


def throughput(options: GpuBenchmarkOptions) -> dict[str, Any]:
    """Target tokens/s of a base-size model with sources and targets of natural lengths, by rows and beam size."""
    bundle = make_random_bundle(options)
    random_numbers = np.random.default_rng(1)
    vocab_size = bundle.manifest.dimensions.vocab_size
    found: dict[str, Any] = {}
    for num_rows in (16,) if options.is_quick else (256, 512, 1024):
        runner = load(options, bundle, num_rows=num_rows)
        for beam_size in (1, 4):
            number = options.pick(4 * num_rows // beam_size, 8)
            lengths, limits = natural_lengths(number)
            sources = [
                [*random_numbers.integers(8, vocab_size, length - 1).tolist(), runner.limits.eos_id]
                for length in lengths
            ]
            warm_up = num_rows // beam_size
            translate(
                runner, sources[:warm_up], beam_size=beam_size, num_target_tokens=limits[:warm_up].tolist()
            )
            done = translate(runner, sources, beam_size=beam_size, num_target_tokens=limits.tolist())
            found[f"rows_{num_rows}_beam_{beam_size}"] = {
                "sentences": number,
                "mean_source_tokens": float(lengths.mean()),
                "mean_target_tokens": done.num_target_tokens / number,
                "target_tokens_per_s": done.num_target_tokens / done.time_s,
                "ms_per_step": done.time_s / done.num_steps * 1e3,
            }
    return found


def http(options: GpuBenchmarkOptions) -> dict[str, Any]:
    """Requests/s and target tokens/s of the server with the bundle, with many closed-loop clients.

    In some cases a request has one sentence, in the others many.
    """
    missing = [name for name in SERVER_NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        raise SkipError(f"not installed: {', '.join(missing)}")
    from benchmarks.server_process import ServeOptions, ServerProcess

    bundle = bundled(options)
    found: dict[str, Any] = {}
    settings = {"golden_min_share": str(options.golden_min_share), "device": options.device}
    served = ServeOptions(sys.executable, options.bundle, precision="fp16", settings=settings)
    with ServerProcess(served) as server:
        for name, num_clients, num_sentences in (("single", 64, 1), ("many", 32, options.pick(32, 2))):
            for beam_size in (1, 4):
                case = LoadCase(options.pick(num_clients, 2), num_sentences, beam_size)
                found[f"{name}_beam_{beam_size}"] = _load_of(options, bundle, server, case)
        found["start_to_ready_s"] = server.ready_s
    return found


@dataclass(frozen=True)
class LoadCase:
    """A closed loop: clients, sentences of each request, beam size."""

    clients: int
    sentences_of_a_request: int
    beam_size: int


def _load_of(
    options: GpuBenchmarkOptions, bundle: Bundle, server: ServerProcess, case: LoadCase
) -> dict[str, Any]:
    """The figures of one closed loop."""
    from benchmarks.load import make_request
    from benchmarks.passes import measure_load

    pair, size = bundle.manifest.language_pairs[0], case.sentences_of_a_request
    texts = read_text(options, options.pick(500, 6) if size == 1 else options.pick(2048, 8)).sources
    requests = [
        make_request(
            number,
            texts[start : start + size],
            pair=(pair.source, pair.target),
            beam_size=case.beam_size,
        )
        for number, start in enumerate(range(0, len(texts), size))
    ]
    loaded, answers = measure_load(server, requests, num_clients=case.clients, limit_s=10.0)
    tokens = statistics.mean(json.loads(answer.body)["usage"]["target_tokens"] for answer in answers)
    return {
        **asdict(case),
        "requests_per_s": loaded.sentences_per_s,
        "target_tokens_per_s": loaded.sentences_per_s * tokens,
        "latency_median_ms": loaded.latency_median_ms,
        "latency_p95_ms": loaded.latency_p95_ms,
        "rows_per_step": loaded.rows_per_step,
        "server_cpu_share": loaded.server_cpu_share,
        "client_cpu_share": loaded.client_cpu_share,
    }


def memory(options: GpuBenchmarkOptions) -> dict[str, Any]:
    """The slope of the device's used memory under random requests, without the first third of the samples."""
    bundle = bundled(options)
    runner = load(options, bundle, num_rows=128)
    random_numbers = np.random.default_rng(2)
    _, sentences, _ = encode(bundle, read_text(options, 100))
    taken: list[tuple[float, float]] = []
    started_at = time.perf_counter()
    while (now := time.perf_counter() - started_at) < options.memory_s or len(taken) < 4:
        number = int(random_numbers.integers(1, options.pick(200, 4)))
        pool = [token for sentence in sentences for token in sentence[:-1]]
        sources = [
            [*random_numbers.choice(pool, length).tolist(), runner.limits.eos_id]
            for length in random_numbers.integers(1, options.pick(60, 8), number)
        ]
        translate(
            runner,
            sources,
            beam_size=int(random_numbers.choice([1, 4])),
            num_target_tokens=[MEMORY_TARGET_LENGTH] * number,
        )
        taken.append((now, -free_mb(options)))
    steady = taken[len(taken) // 3 :]
    seconds, megabytes = (np.array(column) for column in zip(*steady, strict=True))
    return {
        "seconds": taken[-1][0],
        "samples": len(taken),
        "growth_mb": float(megabytes[-1] - megabytes[0]),
        "slope_mb_per_min": float(np.polyfit(seconds, megabytes, 1)[0] * 60),
        "growth_of_first_third_mb": float(megabytes[0] - taken[0][1]),
    }
