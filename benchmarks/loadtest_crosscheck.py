"""Check the load tester against independent tools: the same rate on the same server.

Compares `transduce loadtest` with wrk2 and autocannon. wrk2 sends at a constant rate, and its latency counts from the
time when a request was due. Each connection of autocannon sends its share of requests at the start of every second, and
its latency counts from the time of sending. There are three servers: one with known response times, one that stalls,
and the translation server, which autocannon does not load. Also measures the tester's and httpx's CPU time per request.
Each part is merged into the result file, so parts can run separately. Linux only. Needs one core for the server and one
for the tester.

    python -m benchmarks.loadtest_crosscheck --wrk2 wrk2/wrk --autocannon node_modules/autocannon/autocannon.js
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import uvloop

from benchmarks.loadtest_alternation import agrees, compare_other_passes, compare_own_passes, median_of
from benchmarks.loadtest_server import percentile_s
from benchmarks.machine import ROOT, describe_run
from benchmarks.server_process import ServeOptions, ServerProcess
from transduce.loadtest.arrivals import Arrivals, ClosedLoop
from transduce.loadtest.connection import ConnectionPool, head
from transduce.loadtest.dialects import RequestSpec
from transduce.loadtest.plan import RunPlan, Target
from transduce.loadtest.runner import run
from transduce.loadtest.workload import Workload, own_sentences

RESULT = Path(__file__).with_name("results") / "loadtest_crosscheck.json"
# Requests/s of each part.
RATES = {"spread": 200.0, "stalls": 200.0, "translation": 12.0}
PARTS = (*RATES, "cost")
PERCENTILES = ("p50", "p75", "p90", "p99")
# The largest accepted share of our passes in which the tester was late.
MAX_LATE_SHARE = 0.25
# wrk2 opens a connection every 5 ms and gives each an equal share of the rate. With these numbers of connections its
# requests are evenly spaced, as ours are.
NUM_CONNECTIONS = {"spread": 200, "stalls": 200, "translation": 1}
# wrk2 calibrates its sampling for 10 s plus 5 ms per connection. It counts only later requests.
WRK2_CALIBRATION_S = 11
NUM_TEXTS = 30
# Lengths of the shortest and the longest text.
CHARACTERS = (16, 160)
UNITS_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}
WRK2_LINE = re.compile(r"^\s*(\d+\.\d+)%\s+([\d.]+)(us|ms|s|m)\s*$", re.MULTILINE)
COST_OPEN = (1, 16, 200)  # concurrent requests of the part `cost`


@dataclass(frozen=True)
class Tools:
    """Paths of the other testers, None if missing. duration_s: of each measurement. num_rounds: passes of wrk2."""

    wrk2: Path | None
    autocannon: Path | None
    duration_s: int
    num_rounds: int


def workload() -> Workload:
    """Sentences in even steps from short to long.

    Even steps keep the percentiles stable: at a large step, one request more or less would move a percentile by the
    whole step. Sentences with digits are left out, because the server may translate them twice.
    """
    low, high = CHARACTERS
    left = [text for text in own_sentences() if not any(map(str.isdigit, text))]
    texts = []
    for number in range(NUM_TEXTS):
        length = low + (high - low) * number / (NUM_TEXTS - 1)
        texts.append(min(left, key=lambda text: abs(len(text) - length)))
        left.remove(texts[-1])
    return Workload("crosscheck", tuple(RequestSpec((text,)) for text in texts))


def bodies(target: Target) -> list[str]:
    """The request bodies that every tool sends."""
    return [target.dialect.body(request, "en", "de", None).decode() for request in workload().requests]


def ours(part: str, target: Target, tools: Tools) -> dict[str, Any]:
    """Latencies in ms by `transduce loadtest`."""
    load = Arrivals.at(RATES[part], tools.duration_s, "constant")
    plan = RunPlan(target, workload(), load, warm_up_s=2.0, max_connections=NUM_CONNECTIONS[part])
    result = run(plan)
    found = result.latency.percentiles if result.latency else {}
    return {
        "latency_ms": {name: found.get(name) for name in PERCENTILES},
        "outcomes": result.outcomes,
        "is_valid": result.is_valid,
        "lag_p99_ms": result.lag.p99_ms if result.lag else None,
        "cpu_share": result.tester_cpu_share,
    }


def wrk2(part: str, target: Target, tools: Tools) -> dict[str, Any]:
    """Latencies in ms by wrk2."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "post.lua"
        quoted = ",\n".join(f"[==[{body}]==]" for body in bodies(target))
        script.write_text(
            f"local bodies = {{{quoted}}}\nlocal i = 0\n"
            'wrk.method = "POST"\nwrk.headers["Content-Type"] = "application/json"\n'
            "request = function() i = i % #bodies + 1; return wrk.format(nil, nil, nil, bodies[i]) end\n",
            "utf-8",
        )
        seconds = tools.duration_s + WRK2_CALIBRATION_S
        command = [
            str(tools.wrk2),
            "-t1",
            f"-c{NUM_CONNECTIONS[part]}",
            f"-d{seconds}s",
            f"-R{RATES[part]:g}",
            "--latency",
        ]
        done = subprocess.run(
            [*command, "-s", str(script), f"{target.url}{target.path}"],
            check=True,
            capture_output=True,
            text=True,
        )
    found = {
        float(percent): float(value) * UNITS_MS[unit]
        for percent, value, unit in WRK2_LINE.findall(done.stdout)
    }
    failed = [
        line.strip() for line in done.stdout.splitlines() if "Non-2xx" in line or "Socket errors" in line
    ]
    return {"latency_ms": {name: found.get(float(name[1:])) for name in PERCENTILES}, "failures": failed}


AUTOCANNON_SCRIPT = """
const autocannon = require(process.argv[2]);
const input = JSON.parse(process.argv[3]);
const requests = input.bodies.map(body => ({method: 'POST', body, headers: {'content-type': 'application/json'}}));
autocannon({...input.options, requests}).then(result => console.log(JSON.stringify(result)));
"""


def autocannon(part: str, target: Target, tools: Tools) -> dict[str, Any]:
    """Latencies by autocannon, in whole milliseconds, counted from the time of sending.

    Its correction for coordinated omission is turned off. The correction adds latencies if two answers are further
    apart than the interval between the requests of one connection. Here connections are often idle, so it would always
    add latencies.
    """
    options = {
        "url": f"{target.url}{target.path}",
        "connections": NUM_CONNECTIONS[part],
        "overallRate": RATES[part],
        "duration": tools.duration_s,
        "timeout": 30,
        "ignoreCoordinatedOmission": True,
    }
    script_input = json.dumps({"bodies": bodies(target), "options": options})
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "post.js"
        script.write_text(AUTOCANNON_SCRIPT, "utf-8")
        command = ["node", str(script), str(tools.autocannon and tools.autocannon.resolve()), script_input]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    result = json.loads(done.stdout)
    return {
        "latency_ms": {name: result["latency"][name] for name in PERCENTILES},
        "failures": result["non2xx"] + result["errors"],
    }


def compare(part: str, target: Target, tools: Tools) -> dict[str, Any]:
    """Run all testers one after another. ratios: their latencies over ours. is_steady: whether our pass was valid."""
    found: dict[str, Any] = {
        "rate": RATES[part],
        "num_texts": NUM_TEXTS,
        "transduce": ours(part, target, tools),
    }
    if part == "spread":
        found["known_ms"] = {name: percentile_s(float(name[1:]) / 100) * 1e3 for name in PERCENTILES}
    if tools.wrk2 is not None:
        found["wrk2"] = wrk2(part, target, tools)
    if tools.autocannon is not None:
        found["autocannon"] = autocannon(part, target, tools)
    own = found["transduce"]["latency_ms"]
    found["is_steady"] = found["transduce"]["is_valid"]
    found["ratios"] = {
        tool: {name: found[tool]["latency_ms"][name] / own[name] for name in PERCENTILES}
        for tool in ("wrk2", "autocannon")
        if tool in found
    }
    found["agrees"] = {tool: _all_agree(found[tool]["latency_ms"], own) for tool in found["ratios"]}
    return found


def alternate(part: str, target: Target, tools: Tools) -> dict[str, Any]:
    """Alternate our tester with wrk2. Our tester is first and last.

    is_steady: whether our passes agree with their neighbours, and our tester was late in at most the share
    MAX_LATE_SHARE of them.
    """
    own: list[dict[str, Any]] = [ours(part, target, tools)]
    others: list[dict[str, Any]] = []
    while len(others) < tools.num_rounds:
        others.append(wrk2(part, target, tools))
        own.append(ours(part, target, tools))
        print(json.dumps([others[-1], own[-1]]), file=sys.stderr, flush=True)
    own_ms, others_ms = [each["latency_ms"] for each in own], [each["latency_ms"] for each in others]
    other_result, own_result = compare_other_passes(others_ms, own_ms), compare_own_passes(own_ms)
    num_late = sum(not each["is_valid"] for each in own)
    return {
        "rate": RATES[part],
        "num_texts": NUM_TEXTS,
        "num_rounds": tools.num_rounds,
        "transduce": {"latency_ms": median_of(own_ms), "passes": own},
        "wrk2": {"latency_ms": median_of(others_ms), "passes": others},
        "ratios": {"wrk2": other_result.ratios, "control": own_result.ratios},
        "ranges": {"wrk2": other_result.ranges, "control": own_result.ranges},
        "num_late": num_late,
        "is_steady": own_result.agrees and num_late <= MAX_LATE_SHARE * len(own),
        "agrees": {"wrk2": other_result.agrees},
    }


def _all_agree(other_ms: Mapping[str, float], own_ms: Mapping[str, float]) -> bool:
    return all(agrees(other_ms[name], own_ms[name]) for name in PERCENTILES)


@contextlib.contextmanager
def known_server(kind: str, core: int) -> Iterator[str]:
    """Run `benchmarks.loadtest_server` on one core. Yields its URL."""
    process = subprocess.Popen(
        ["taskset", "-c", str(core), sys.executable, "-m", "benchmarks.loadtest_server", kind],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def translation_server(core: int) -> Iterator[str]:
    """Run `transduce serve` on one core, without the sentence cache. Yields its URL."""
    with ServerProcess(ServeOptions(sys.executable, None, cores=frozenset({core}))) as server:
        yield server.url


def cost() -> dict[str, Any]:
    """CPU time per request in microseconds, by concurrency, with our connections and with httpx."""
    server_core, own_core = cores()
    with known_server("spread", server_core) as url:
        os.sched_setaffinity(0, {own_core})
        target = Target(url)
        content = bodies(target)[0].encode()
        found = {
            str(num_open): {
                "transduce_us": uvloop.run(_cost_of_ours(target, content, num_open)),
                "httpx_us": uvloop.run(_cost_of_httpx(target, content, num_open)),
            }
            for num_open in COST_OPEN
        }
    return {"cpu_of_a_request_by_requests_under_way": found}


async def _cost_of_ours(target: Target, content: bytes, num_open: int) -> float:
    pool = ConnectionPool(target)
    whole = head(target, len(content)) + content
    found = await _cost(lambda: pool.exchange(whole), num_open)
    pool.close()
    return found


async def _cost_of_httpx(target: Target, content: bytes, num_open: int) -> float:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(trust_env=False, verify=context, limits=limits, timeout=30.0) as client:
        url, headers = f"{target.url}{target.path}", {"content-type": "application/json"}
        return await _cost(lambda: client.post(url, content=content, headers=headers), num_open)


async def _cost(send: Any, num_open: int) -> float:
    """CPU time per request in microseconds. The first requests open the connections and do not count."""
    num_each = max(3, 600 // num_open)

    async def client(num: int) -> None:
        for _ in range(num):
            await send()

    await asyncio.gather(*(client(1) for _ in range(num_open)))
    started_s = time.process_time()
    await asyncio.gather(*(client(num_each) for _ in range(num_open)))
    return (time.process_time() - started_s) / (num_open * num_each) * 1e6


def cores() -> tuple[int, int]:
    """Cores of the server and of the tool."""
    found = sorted(os.sched_getaffinity(0))
    return found[0], found[-1]


def measure(part: str, tools: Tools) -> dict[str, Any]:
    """Measure one part, and return its figures."""
    all_cores = os.sched_getaffinity(0)
    server_core, own_core = cores()
    try:
        if part == "cost":
            return cost()
        server = translation_server(server_core) if part == "translation" else known_server(part, server_core)
        with server as url:
            os.sched_setaffinity(0, {own_core})
            if part == "translation":  # warm up with every text, so that the first tool has no disadvantage
                run(RunPlan(Target(url), workload(), ClosedLoop(1, 30.0, NUM_TEXTS), warm_up_s=0.0))
                return alternate(part, Target(url), tools)
            return compare(part, Target(url), tools)
    finally:
        os.sched_setaffinity(0, all_cores)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the parts and merge them into the result file. Returns the exit code.

    1: wrk2 disagrees. 3: the machine was unsteady in a part. The result of this part is not written.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--wrk2", type=Path, help="path of wrk2's program `wrk`")
    add("--autocannon", type=Path, help="path of autocannon.js")
    add("--part", action="append", choices=PARTS, help="measure this part; may be repeated (default: all)")
    add("--duration", type=int, default=15, metavar="S", help="duration of each measurement (default: 15)")
    add(
        "--rounds",
        type=int,
        default=5,
        metavar="N",
        help="passes of wrk2 on the translation server (default: 5)",
    )
    add("--output", type=Path, default=RESULT)
    args = parser.parse_args(arguments)
    if "translation" in (args.part or PARTS) and (args.wrk2 is None or args.rounds < 2):
        parser.error("the part translation needs --wrk2 and at least 2 rounds")
    # SIGTERM raises SystemExit, so that the servers are stopped before this process ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    tools = Tools(args.wrk2, args.autocannon, args.duration, args.rounds)
    document: dict[str, Any] = json.loads(args.output.read_text("utf-8")) if args.output.exists() else {}
    command_line = ["--duration", str(args.duration), "--rounds", str(args.rounds)]
    command_line += ["--wrk2", "wrk2/wrk"] if args.wrk2 else []
    command_line += ["--autocannon", "node_modules/autocannon/autocannon.js"] if args.autocannon else []
    agree = steady = True
    for part in args.part or PARTS:
        run = describe_run("benchmarks.loadtest_crosscheck", ["--part", part, *command_line])
        found = measure(part, tools)
        print(json.dumps({part: found}, indent=1))
        if not found.get("is_steady", True):
            print(f"{part}: the machine was unsteady, so the part is not written", file=sys.stderr)
            steady = False
            continue
        document[part] = {**run, **found}
        agree &= found.get("agrees", {}).get("wrk2", True)
    args.output.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    return 3 if not steady else 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
