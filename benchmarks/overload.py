"""Measure a server above its capacity: answered, rejected and late requests.

First, 64 closed-loop clients measure the capacity. Then one process sends requests at Poisson times, at multiples of
that rate, without waiting for responses. Each request has a short deadline. Goodput counts answers within the deadline.
Writes JSON. Linux only.

    python -m benchmarks.overload --output benchmarks/results/overload.json
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cache import PAIR, summary
from benchmarks.load import HOST, Request, closed_loop, make_request, rate_of, request_of
from benchmarks.machine import measured
from benchmarks.server_process import ServeOptions, ServerProcess
from benchmarks.serving import read_sentences

RESULT = Path(__file__).with_name("results") / "overload.json"
NUM_CLIENTS = 64
MULTIPLES = (0.8, 1.2, 2.0, 5.0)
SEED = 11


@dataclass(frozen=True)
class Answer:
    """The response to a request.

    lag_ms: from the time when the request was due until the tester began it. elapsed_ms: from the time when it was due
    to the last byte. retry_after_s: 0 without the header.
    """

    status: int
    lag_ms: float
    elapsed_ms: float
    retry_after_s: float


async def send(port: int, request: Request, due_at: float) -> Answer:
    """Send a request. due_at: when it was due, on the clock time.perf_counter."""
    lag_ms = (time.perf_counter() - due_at) * 1e3
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(request.content)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    await reader.readexactly(int(head.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0]))
    elapsed_ms = (time.perf_counter() - due_at) * 1e3
    writer.close()
    retry = head.partition(b"retry-after:")[2].partition(b"\r\n")[0]
    return Answer(int(head.split(b" ")[1]), lag_ms, elapsed_ms, float(retry or 0))


async def flood(
    port: int, requests: Sequence[Request], *, rate: float, seconds: float, timeout_ms: int
) -> dict[str, Any]:
    """Send requests at Poisson times without waiting for answers. Returns counts, rates and latencies of the answers.

    timeout_ms: the deadline of a request. The client's clock measures it from the time when the request was due. So the
    tester's own delay and the time in the socket's queue count. elapsed_s in the result: from the first request to the
    last answer.
    """
    draw = random.Random(SEED)
    tasks: list[asyncio.Task[Answer]] = []
    cpu_before_s = time.process_time()
    started_at = due_at = time.perf_counter()
    for request in itertools.cycle(requests):
        due_at += draw.expovariate(rate)
        if due_at > started_at + seconds:
            break
        await asyncio.sleep(max(0.0, due_at - time.perf_counter()))
        tasks.append(asyncio.ensure_future(send(port, request, due_at)))
    # How long the tester sent requests: longer than `seconds` if the tester is late.
    sending_s = max(seconds, time.perf_counter() - started_at)
    answers = await asyncio.gather(*tasks)
    elapsed_s = time.perf_counter() - started_at
    served = [each.elapsed_ms for each in answers if each.status == 200]
    num_in_time = sum(elapsed_ms <= timeout_ms for elapsed_ms in served)
    refused = [each for each in answers if each.status == 429]
    return {
        "elapsed_s": round(elapsed_s, 3),
        "offered_per_s": round(len(answers) / sending_s, 1),
        "lag_p99_ms": summary([each.lag_ms for each in answers])["p99_ms"],
        "goodput_per_s": round(num_in_time / elapsed_s, 1),
        "num_late": len(served) - num_in_time,
        "statuses": dict(sorted(Counter(str(each.status) for each in answers).items())),
        "answered": summary(served) if served else None,
        "refused": summary([each.elapsed_ms for each in refused]) if refused else None,
        "retry_after_s": dict(sorted(Counter(int(each.retry_after_s) for each in refused).items())),
        "testers_share_of_a_core": round((time.process_time() - cpu_before_s) / elapsed_s, 3),
    }


def with_deadline(requests: Sequence[Request], timeout_ms: int) -> list[Request]:
    """The same requests with another deadline."""
    return [
        request_of(
            request.number,
            {**json.loads(request.body), "timeout_ms": timeout_ms},
            beam_size=request.beam_size,
        )
        for request in requests
    ]


def measure(bundle: Path | None, *, beam_size: int, timeout_ms: int, seconds: float) -> dict[str, object]:
    """Measure the capacity, then each multiple of it, on one server."""
    requests = [
        make_request(number, sentence, pair=PAIR, beam_size=beam_size)
        for number, sentence in enumerate(read_sentences())
    ]
    with ServerProcess(ServeOptions(sys.executable, bundle)) as server:
        loop = closed_loop(server.port, requests, num_clients=NUM_CLIENTS, num_answers=10**6, limit_s=seconds)
        capacity = rate_of([one.ended_at for one in asyncio.run(loop)], num_warm_up=NUM_CLIENTS)
        found: dict[str, object] = {
            "num_clients": NUM_CLIENTS,
            "capacity_per_s": round(capacity, 1),
            "timeout_ms": timeout_ms,
        }
        requests = with_deadline(requests, timeout_ms)
        for multiple in MULTIPLES:
            server_s = server.cpu_time_s()
            seen = asyncio.run(
                flood(server.port, requests, rate=multiple * capacity, seconds=seconds, timeout_ms=timeout_ms)
            )
            found[f"{multiple} x"] = {
                **seen,
                "goodput_of_capacity": round(seen["goodput_per_s"] / capacity, 3),
                "event_loops_share_of_a_core": round((server.cpu_time_s() - server_s) / seen["elapsed_s"], 3),
            }
    return found


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bundle", type=Path, help="the bundle that is served (default: the bundled model)")
    parser.add_argument("--output", type=Path, default=RESULT, help="JSON file")
    parser.add_argument(
        "--timeout-ms", type=int, default=1500, help="deadline of each request (default: 1500)"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="duration of each pass (default: 10)")
    parser.add_argument("--beam-size", type=int, default=4, help="beam size of each request (default: 4)")
    args = parser.parse_args()
    result = measured(
        "benchmarks.overload",
        lambda: measure(
            args.bundle, beam_size=args.beam_size, timeout_ms=args.timeout_ms, seconds=args.seconds
        ),
    )
    args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
