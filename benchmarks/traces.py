"""Measure what OpenTelemetry traces cost: the rate of a server without traces beside servers that trace some requests.

One server has no traces, one traces 1 % of the requests, one all of them. A receiver in a process of its own takes the
spans. The same closed loop runs against each server in turn, many times. Each rate is compared with the mean of the
rates without traces before and after it. Two cases: sentences that are decoded greedily, and sentences from the cache,
whose requests are the cheapest that the server has. The servers have one core. The load and the receiver share another
one. Writes JSON. Linux only.

    python -m benchmarks.traces --output benchmarks/results/traces.json
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import statistics
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.load import Request, closed_loop, make_request
from benchmarks.machine import measured
from benchmarks.server_process import ALL_CORES, ServeOptions, ServerProcess
from benchmarks.serving import read_sentences

RESULT = Path(__file__).with_name("results") / "traces.json"
SHARES = (0.01, 1.0)  # of the requests that are traced
NUM_CLIENTS = 8
WARM_UP_S = 3.0
UNLIMITED = 1 << 30


class Receiver(BaseHTTPRequestHandler):
    """Takes spans and forgets them."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Read the body, and answer."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def receive(parent: Connection) -> None:
    """Run a receiver, and send its port to the parent."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        parent.send(server.server_address[1])
        server.serve_forever()


def rate(server: ServerProcess, requests: list[Request], seconds: float) -> float:
    """Answers a second of a closed loop."""
    began_at = time.perf_counter()
    answers = asyncio.run(
        closed_loop(server.port, requests, num_clients=NUM_CLIENTS, num_answers=UNLIMITED, limit_s=seconds)
    )
    return len(answers) / (max(each.ended_at for each in answers) - began_at)


def compare(*, has_cache: bool, endpoint: str, seconds: float, num_turns: int) -> dict[str, Any]:
    """The rates of one case. `over_without`: a traced server's rate as a share of the rate without traces."""
    requests = [
        make_request(number, text, pair=("en", "de"), beam_size=1)
        for number, text in enumerate(read_sentences())
    ]
    server_core = frozenset({min(ALL_CORES)})
    traced = [{"traces_endpoint": endpoint, "traces_share": str(share)} for share in SHARES]
    with contextlib.ExitStack() as stack:
        plain, *others = (
            stack.enter_context(
                ServerProcess(
                    ServeOptions(
                        sys.executable, None, cores=server_core, has_cache=has_cache, settings=settings
                    )
                )
            )
            for settings in ({}, *traced)
        )
        for server in (plain, *others):
            rate(server, requests, WARM_UP_S)
        off = [rate(plain, requests, seconds)]
        found: dict[float, list[float]] = {share: [] for share in SHARES}
        ratios: dict[float, list[float]] = {share: [] for share in SHARES}
        for _ in range(num_turns):
            for share, server in zip(SHARES, others, strict=True):
                found[share].append(rate(server, requests, seconds))
                off.append(rate(plain, requests, seconds))
                ratios[share].append(found[share][-1] / statistics.fmean(off[-2:]))
    own = [now / statistics.fmean(pair) for *pair, now in zip(off, off[2:], off[1:], strict=False)]
    return {
        "case": "cached" if has_cache else "decoded greedily",
        "answers_per_s_without_traces": round(statistics.median(off), 1),
        "without_traces_over_itself": summary(own),
        "traced": [
            {
                "share": share,
                "answers_per_s": round(statistics.median(found[share]), 1),
                "over_without": summary(ratios[share]),
            }
            for share in SHARES
        ],
    }


def summary(ratios: list[float]) -> dict[str, float]:
    """Median, least and largest."""
    return {
        "median": round(statistics.median(ratios), 4),
        "least": round(min(ratios), 4),
        "largest": round(max(ratios), 4),
    }


def measure_all(*, seconds: float, num_turns: int) -> dict[str, Any]:
    """Measure both cases."""
    os.sched_setaffinity(0, {max(ALL_CORES)})
    pipe, receiver_end = multiprocessing.Pipe()
    receiver = multiprocessing.get_context("spawn").Process(target=receive, args=(receiver_end,), daemon=True)
    receiver.start()
    endpoint = f"http://127.0.0.1:{pipe.recv()}/v1/traces"
    cases = [
        compare(has_cache=has_cache, endpoint=endpoint, seconds=seconds, num_turns=num_turns)
        for has_cache in (False, True)
    ]
    receiver.terminate()
    return {"num_clients": NUM_CLIENTS, "seconds": seconds, "num_turns": num_turns, "cases": cases}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULT, help="JSON file")
    parser.add_argument("--seconds", type=float, default=2.0, help="duration of a pass (default: 2)")
    parser.add_argument(
        "--turns", type=int, default=15, help="passes of each server with traces (default: 15)"
    )
    args = parser.parse_args()
    result = measured("benchmarks.traces", lambda: measure_all(seconds=args.seconds, num_turns=args.turns))
    print(json.dumps(result["figures"], indent=1))
    args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
