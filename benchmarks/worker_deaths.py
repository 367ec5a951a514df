"""Kill a random engine worker at regular times under load, and compare all answers with answers before the kills.

One server first answers all requests in a closed loop, which gives its capacity and the expected answers. Then it gets
requests at half of its capacity, at Poisson times, without kills. Then it gets the same load while a worker is killed
with SIGKILL at regular times. Every request must be answered, with the expected translations. Writes JSON. Linux only.

    python -m benchmarks.worker_deaths --output benchmarks/results/worker_deaths.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.cache import summary
from benchmarks.load import Request, TimedAnswer, closed_loop, rate_of
from benchmarks.machine import measured
from benchmarks.server_process import ServeOptions, ServerProcess
from benchmarks.swaps import NUM_CLIENTS, Answer, make_requests, under_load
from transduce.loadtest.server_side import processes_of

RESULT = Path(__file__).with_name("results") / "worker_deaths.json"
SEED = 5
RESTARTS = "transduce_worker_restarts_total"
# Two workers on any machine, and more restarts than this benchmark needs.
SETTINGS = {"num_lanes": "2", "max_worker_restarts": "1000"}
# Requests that are in progress at a death, or due within this many seconds after it, count as near it. The new worker
# loads in this time.
NEAR_S = 2.0


async def wait(seconds: float) -> list[float]:
    """Wait without killing a worker. Returns no times."""
    await asyncio.sleep(seconds)
    return []


async def kill_workers(server: ServerProcess, seconds: float, *, every_s: float) -> list[float]:
    """Kill a random worker every `every_s` seconds. Returns the times, of time.perf_counter."""
    draw, killed_at = random.Random(SEED), list[float]()
    until = time.perf_counter() + seconds
    while (left_s := until - time.perf_counter()) > 0:
        await asyncio.sleep(min(every_s, left_s))
        if left_s > every_s:
            os.kill(draw.choice(processes_of(server.pid)[1:]), signal.SIGKILL)
            killed_at.append(time.perf_counter())
    return killed_at


def figures(
    answers: Sequence[TimedAnswer], failures: Sequence[str], expected: Mapping[int, Answer]
) -> dict[str, object]:
    """Failed requests, other answers than the expected ones, and the latencies of one run."""
    wrong = [one for one in answers if Answer.parse(one) != expected[one.request.number]]
    return {
        "num_answers": len(answers),
        "num_failures": len(failures),
        "failures": list(failures[:10]),
        "num_other_answers": len(wrong),
        "answered": summary([one.latency_ms for one in answers]),
    }


async def measure_on(
    server: ServerProcess, *, seconds: float, every_s: float, share: float
) -> dict[str, object]:
    """Measure the capacity, then both runs."""
    requests: list[Request] = make_requests()
    alone = await closed_loop(
        server.port, requests, num_clients=NUM_CLIENTS, num_answers=len(requests), limit_s=300.0
    )
    expected = {one.request.number: Answer.parse(one) for one in alone}
    # The loop returns only its first len(requests) answers. The answer to a long sentence may come after them.
    missing = [request for request in requests if request.number not in expected]
    rest = await closed_loop(server.port, missing, num_clients=1, num_answers=len(missing), limit_s=300.0)
    expected |= {one.request.number: Answer.parse(one) for one in rest}
    capacity = rate_of([one.ended_at for one in alone], num_warm_up=NUM_CLIENTS)
    rate = share * capacity
    undisturbed = await under_load(server, requests, rate=rate, until=asyncio.create_task(wait(seconds)))
    kills = asyncio.create_task(kill_workers(server, seconds, every_s=every_s))
    answers, failures = await under_load(server, requests, rate=rate, until=kills)
    killed_at = await kills
    near = [
        one.latency_ms
        for one in answers
        if any(one.due_at <= at + NEAR_S and one.ended_at >= at for at in killed_at)
    ]
    return {
        "capacity_per_s": round(capacity, 1),
        "offered_per_s": round(rate, 1),
        "seconds_each": seconds,
        "undisturbed": figures(*undisturbed, expected),
        "with_deaths": figures(answers, failures, expected),
        "near_a_death": summary(near) if near else None,
        "num_kills": len(killed_at),
        "num_restarts": int(await asyncio.to_thread(server.metric, RESTARTS)),
    }


def measure(bundle: Path | None, *, seconds: float, every_s: float, share: float) -> dict[str, object]:
    """Start a server and measure."""
    with ServerProcess(ServeOptions(sys.executable, bundle, settings=SETTINGS)) as server:
        return asyncio.run(measure_on(server, seconds=seconds, every_s=every_s, share=share))


def main() -> None:
    """Measure, print and write. The exit code is 1 if a request failed or got another answer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--bundle", type=Path, help="the bundle that is served (default: the server's default bundle)"
    )
    parser.add_argument("--output", type=Path, default=RESULT, help="JSON file")
    parser.add_argument("--seconds", type=float, default=120.0, help="duration of each run (default: 120)")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between deaths (default: 10)")
    parser.add_argument(
        "--share", type=float, default=0.5, help="load as a share of the capacity (default: 0.5)"
    )
    args = parser.parse_args()
    result = measured(
        "benchmarks.worker_deaths",
        lambda: measure(args.bundle, seconds=args.seconds, every_s=args.every, share=args.share),
    )
    found = result["figures"]
    print(json.dumps(found, indent=1))
    args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    runs = (found["undisturbed"], found["with_deaths"])
    if any(run["num_failures"] or run["num_other_answers"] for run in runs):
        sys.exit(1)


if __name__ == "__main__":
    main()
