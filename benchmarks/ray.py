"""Compare two replicas on a Ray cluster of this machine with one server of two workers.

Compares the throughput, and the latency of one request at a time. The server and the cluster run at the same time. Each
is idle while the other one is measured. Passes of both alternate. Each pass of Ray is compared with the mean of the
server's passes before and after it. The medians of the ratios count. Both use beams of 4 and no cache. Writes JSON.
Needs Ray (requirements/ray.txt). Linux only.

    python -m benchmarks.ray --output benchmarks/results/ray.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.cache import PAIR
from benchmarks.load import Request, TimedAnswer, closed_loop, make_request, rate_of
from benchmarks.machine import measured
from benchmarks.ray_cluster import RayCluster
from benchmarks.server_process import NO_CACHE, ServeOptions, ServerProcess
from benchmarks.serving import read_sentences
from transduce.loadtest.server_side import cpu_time_s, memory_mb, processes_of

RESULT = Path(__file__).with_name("results") / "ray.json"
NUM_CLIENTS = 64
BEAM_SIZE = 4
NUM_ALONE = 100  # requests of a pass with one client
LIMIT_S = 300.0


def make_requests() -> list[Request]:
    """The benchmark's sentences, one in each request."""
    return [
        make_request(number, text, pair=PAIR, beam_size=BEAM_SIZE)
        for number, text in enumerate(read_sentences())
    ]


def answers(
    port: int, requests: Sequence[Request], *, num_clients: int, num_answers: int
) -> list[TimedAnswer]:
    """The answers of a closed loop."""
    loop = closed_loop(port, requests, num_clients=num_clients, num_answers=num_answers, limit_s=LIMIT_S)
    return asyncio.run(loop)


def rate(port: int, requests: Sequence[Request]) -> float:
    """Answers a second with NUM_CLIENTS clients."""
    found = answers(port, requests, num_clients=NUM_CLIENTS, num_answers=len(requests))
    return rate_of([one.ended_at for one in found], num_warm_up=NUM_CLIENTS)


def alone_ms(port: int, requests: Sequence[Request]) -> float:
    """The median milliseconds of a request, with one client."""
    found = answers(port, requests, num_clients=1, num_answers=NUM_ALONE)
    return statistics.median(one.latency_ms for one in found)


def alternate(
    measure: Callable[[int], float], server: int, ray: int, *, num_rounds: int
) -> dict[str, object]:
    """Measure the server and Ray in turn, the server first and last. server, ray: ports.

    ratio: Ray's value divided by the mean of the server's values before and after it. difference: Ray's value minus
    that mean. Both are medians over the rounds.
    """
    own, others = [measure(server)], []
    for _ in range(num_rounds):
        others.append(measure(ray))
        own.append(measure(server))
    pairs = list(zip(own[:-1], others, own[1:], strict=True))
    return {
        "server": [round(one, 3) for one in own],
        "ray": [round(one, 3) for one in others],
        "ratio": round(statistics.median(2 * one / (before + after) for before, one, after in pairs), 4),
        "difference": round(statistics.median(one - (before + after) / 2 for before, one, after in pairs), 3),
    }


def idle_cores(pids: Sequence[int], seconds: float = 10.0) -> float:
    """The CPU time of processes over `seconds` seconds without requests, as a number of cores."""
    before = sum(map(cpu_time_s, pids))
    time.sleep(seconds)
    return round((sum(map(cpu_time_s, pids)) - before) / seconds, 4)


async def bodies(port: int, requests: Sequence[Request]) -> dict[int, bytes]:
    """The body of each request's answer. Eight clients share the requests, and each request is sent once."""
    shares = [share for start in range(8) if (share := requests[start::8])]
    loops = (
        closed_loop(port, share, num_clients=1, num_answers=len(share), limit_s=LIMIT_S) for share in shares
    )
    return {one.request.number: one.body for found in await asyncio.gather(*loops) for one in found}


def compared(server: int, ray: int, requests: Sequence[Request]) -> dict[str, int]:
    """The number of requests, and of those whose answers by Ray and by the server differ in a byte."""
    own, others = (asyncio.run(bodies(port, requests)) for port in (server, ray))
    different = [one for one in requests if own[one.number] != others[one.number]]
    return {"num_compared": len(requests), "num_different": len(different)}


def measure(*, num_rounds: int) -> dict[str, object]:
    """Start the server and the cluster, and measure both."""
    requests = make_requests()
    settings: dict[str, object] = {name: json.loads(value) for name, value in NO_CACHE.items()}
    options = ServeOptions(sys.executable, None, settings={"num_threads": "2", "num_lanes": "2"})
    with ServerProcess(options) as server, RayCluster() as cluster:
        cluster.deploy(settings, num_replicas=2)
        cluster.wait_for_replicas(2)
        return {
            "answers": compared(server.port, cluster.port, requests),
            "answers_per_s": alternate(
                lambda port: rate(port, requests), server.port, cluster.port, num_rounds=num_rounds
            ),
            "one_client_ms": alternate(
                lambda port: alone_ms(port, requests), server.port, cluster.port, num_rounds=num_rounds
            ),
            "idle_cores_of_ray": idle_cores(cluster.pids()),
            "memory_mb": {
                "server": round(sum(map(memory_mb, processes_of(server.pid)))),
                "ray": round(sum(map(memory_mb, cluster.pids()))),
            },
        }


def main() -> None:
    """Measure, print and write. The exit code is 1 if an answer differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULT, help="JSON file")
    parser.add_argument("--rounds", type=int, default=5, help="passes of Ray (default: 5)")
    args = parser.parse_args()
    result = measured("benchmarks.ray", lambda: measure(num_rounds=args.rounds))
    print(json.dumps(result["figures"], indent=1))
    args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    if result["figures"]["answers"]["num_different"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
