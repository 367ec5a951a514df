"""Measure the latency of cached sentences and of a stream's first word, over HTTP with one client.

Starts the server with its default settings and sends it the first sentences of `sentences.tsv`: NUM_WARM_UP of them
once, the others twice. Then starts a server without the sentence cache and streams the sentences. Writes JSON. Linux
only.

    python -m benchmarks.cache --output benchmarks/results/cache.json
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.load import HOST, Connection, LoadError, Request, make_request
from benchmarks.machine import measured
from benchmarks.server_process import ServeOptions, ServerProcess
from benchmarks.serving import read_sentences
from transduce.loadtest.percentiles import rank_of

RESULT = Path(__file__).with_name("results") / "cache.json"
PAIR = ("en", "de")
BEAM_SIZES = (4, 1)
STREAM = "/v1/translate/stream"
OK = b"HTTP/1.1 200 "
NUM_WARM_UP = 20
METRICS = (
    "transduce_sentence_cache_bytes",
    "transduce_sentence_cache_entries",
    "transduce_sentence_cache_evictions_total",
)


def summary(milliseconds: Sequence[float]) -> dict[str, float]:
    """The number, the percentiles and the maximum of latencies. p95 and p99 are nearest ranks."""
    ordered = sorted(milliseconds)
    return {
        "num": len(ordered),
        "p50_ms": round(statistics.median(ordered), 3),
        "p95_ms": round(ordered[rank_of(len(ordered), 95) - 1], 3),
        "p99_ms": round(ordered[rank_of(len(ordered), 99) - 1], 3),
        "max_ms": round(ordered[-1], 3),
    }


async def measure_cached(port: int, requests: Sequence[Request]) -> dict[str, object]:
    """Send the first NUM_WARM_UP sentences as a warm-up, then all others twice. The second answers are cached."""
    async with Connection(port) as connection:
        for request in requests[:NUM_WARM_UP]:
            await connection.post(request)
        uncached = [await connection.post(request) for request in requests[NUM_WARM_UP:]]
        cached = [await connection.post(request) for request in requests[NUM_WARM_UP:]]
    num_cached = sum(b"x-transduce-cached-sentences: 0" not in each.head.lower() for each in cached)
    return {
        "uncached": summary([each.latency_ms for each in uncached]),
        "cached": summary([each.latency_ms for each in cached]),
        "num_cached": num_cached,
        "num_equal": sum(a.body == b.body for a, b in zip(uncached, cached, strict=True)),
    }


async def measure_stream(port: int, requests: Sequence[Request]) -> dict[str, object]:
    """The time from the request to the first bytes with text, and to the last byte. Raises LoadError."""
    first, whole = [], []
    reader, writer = await asyncio.open_connection(HOST, port)
    with contextlib.closing(writer):
        for request in requests:
            head = request.content.partition(b"\r\n\r\n")[0].replace(
                b"/v1/translate ", STREAM.encode() + b" "
            )
            started_at = time.perf_counter()
            writer.write(head + b"\r\n\r\n" + request.body)
            received, shown_at = b"", 0.0
            while not received.endswith(b"0\r\n\r\n"):
                part = await reader.read(65_536)
                received += part
                if not part or not OK.startswith(received[: len(OK)]):
                    raise LoadError(f"the stream ended early, or its status is not 200: {received[:200]!r}")
                if not shown_at and (b"event: delta" in received or b"event: segment" in received):
                    shown_at = time.perf_counter()
            whole.append((time.perf_counter() - started_at) * 1e3)
            first.append((shown_at - started_at) * 1e3)
    await writer.wait_closed()
    return {"first": summary(first[NUM_WARM_UP:]), "whole": summary(whole[NUM_WARM_UP:])}


def measure(bundle: Path | None, sentences: Sequence[str]) -> dict[str, object]:
    """Measure the cache and the stream with each beam size."""
    found: dict[str, object] = {}
    for beam_size in BEAM_SIZES:
        requests = [
            make_request(number, sentence, pair=PAIR, beam_size=beam_size)
            for number, sentence in enumerate(sentences)
        ]
        served = ServeOptions(sys.executable, bundle, has_cache=True)
        with ServerProcess(served) as server:
            cached = asyncio.run(measure_cached(server.port, requests))
            cached |= {name: server.metric(name) for name in METRICS}
        with ServerProcess(ServeOptions(sys.executable, bundle)) as server:
            streamed = asyncio.run(measure_stream(server.port, requests))
        found[f"beam_size {beam_size}"] = {"cache": cached, "stream": streamed}
    return found


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bundle", type=Path, help="the bundle that is served (default: the bundled model)")
    parser.add_argument("--output", type=Path, default=RESULT, help="JSON file")
    parser.add_argument(
        "--num-sentences", type=int, default=200, help="use the first N sentences (default: 200)"
    )
    args = parser.parse_args()
    if args.num_sentences <= NUM_WARM_UP:
        parser.error(f"--num-sentences must be above {NUM_WARM_UP}, the sentences of the warm-up")
    result = measured(
        "benchmarks.cache", lambda: measure(args.bundle, read_sentences()[: args.num_sentences])
    )
    args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
