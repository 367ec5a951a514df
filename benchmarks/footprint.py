"""Measure a server's start time and memory, and what each loading step adds to both.

Starts `transduce serve` alternately on one core and on all cores. On several cores it has worker processes. Reads
resident (RSS) and proportional (PSS) memory in 10^6 bytes: when ready, under load, and after language detection. A
separate process runs the loading steps one after another and measures each. Linux only.

    python -m benchmarks.footprint --output benchmarks/results/footprint.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.machine import ROOT, describe_run
from benchmarks.server_process import ServeOptions, ServerProcess, compile_sources

RESULT = Path(__file__).with_name("results") / "footprint.json"
SENTENCE = (
    "the house is old and my friend who lives near the river said that we will see him tomorrow after work"
)
WORDS = SENTENCE.split()
NUM_CLIENTS, LONGEST = 32, 40
MARK = "step: "
STEPS = (
    ("numpy", "import numpy"),
    ("FastAPI, Pydantic", "import fastapi, pydantic_settings"),
    ("the server's own modules, uvicorn, sentence splitter", "import app.main"),
    ("ONNX Runtime", "import app.runtime.ort_runner"),
    ("routes", "application = app.main.Application(app.settings.load_settings({'num_lanes': 1}))"),
    (
        "bundle, tokeniser, graphs, weights",
        "model = app.startup.load_model(app.startup.find_bundles(application.settings)[0], application.settings)",
    ),
    ("detector of languages", "detector = app.startup.lazy_detector(['en', 'de']).start_loading().result()"),
)
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def memory_of(pid: int | str) -> dict[str, float]:
    """rss, pss and anonymous memory of a process and its descendants, in 10^6 bytes."""
    children = [
        found for path in Path(f"/proc/{pid}/task").glob("*/children") for found in path.read_text().split()
    ]
    lines = (line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines())
    found = {fields[0][:-1].lower(): int(fields[1]) * 1024 / 1e6 for fields in lines if len(fields) == 3}
    each = [found, *map(memory_of, children)]
    return {name: sum(one[name] for one in each) for name in ("rss", "pss", "anonymous")}


def translate(server: ServerProcess, text: str, source: str = "en") -> float:
    """Send a text; returns the seconds until the response."""
    body = json.dumps({"text": text, "source": source, "target": "de"}).encode()
    request = urllib.request.Request(f"{server.url}/v1/translate", body, {"content-type": "application/json"})
    started = time.perf_counter()
    OPENER.open(request, timeout=60).read()
    return time.perf_counter() - started


def load(server: ServerProcess, seconds: float) -> int:
    """Run closed-loop clients with texts of 2 to LONGEST words. Returns the number of answers."""
    until = time.perf_counter() + seconds

    def send_texts(client: int) -> int:
        count = 0
        while time.perf_counter() < until:
            length = 2 + (client * 7 + count * 11) % (LONGEST - 1)
            translate(
                server, " ".join(WORDS[(client + count + place) % len(WORDS)] for place in range(length))
            )
            count += 1
        return count

    with ThreadPoolExecutor(NUM_CLIENTS) as clients:
        return sum(clients.map(send_texts, range(NUM_CLIENTS)))


def measure_start(served: ServeOptions) -> dict[str, float]:
    """Start a server. Returns its start time, its memory when ready, and the times of the first four answers."""
    with ServerProcess(served) as server:
        ready = memory_of(server.pid)
        answers = [
            translate(server, f"The {word} is on the table.") for word in ("book", "key", "letter", "bread")
        ]
        return {
            "ready_s": server.ready_s,
            **{f"answer_{place}_ms": 1000 * seconds for place, seconds in enumerate(answers, 1)},
            **{f"ready_{name}_mb": size for name, size in ready.items()},
        }


def medians(starts: list[dict[str, float]]) -> dict[str, float]:
    """The median of each figure over several starts."""
    return {name: statistics.median(start[name] for start in starts) for name in starts[0]}


def measure_memory(served: ServeOptions, seconds: float) -> dict[str, Any]:
    """Memory at each stage of a server's run."""
    with ServerProcess(served) as server:
        found = {"ready": memory_of(server.pid)}
        num_answers = load(server, seconds / 2)
        found["under load"] = memory_of(server.pid)
        num_answers += load(server, seconds / 2)
        found["under load, twice as long"] = memory_of(server.pid)
        first_s = translate(server, "Where is the station?", "auto")
        found["after detection"] = memory_of(server.pid)
        return {"memory": found, "num_answers": num_answers, "first_detection_s": first_s}


def measure_steps(python: str) -> list[dict[str, Any]]:
    """The time of each loading step in milliseconds, and the resident memory that it adds in 10^6 bytes.

    python: the server's interpreter.
    """
    script = ["import gc, time", "gc.disable()", "from benchmarks.footprint import MARK, memory_of"]
    script += ["last, size = time.perf_counter(), memory_of('self')['rss']"]
    for name, code in STEPS:
        script += [code, "now, new = time.perf_counter(), memory_of('self')['rss']"]
        script += [f"print(MARK, {name!r}, 1000 * (now - last), new - size, sep='|')"]
        script += ["last, size = time.perf_counter(), memory_of('self')['rss']"]
    done = subprocess.run(
        [python, "-c", "\n".join(script)], cwd=ROOT, check=True, capture_output=True, text=True
    )
    rows = [line.split("|")[1:] for line in done.stdout.splitlines() if line.startswith(f"{MARK}|")]
    return [{"step": name, "ms": float(ms), "rss_mb": float(size)} for name, ms, size in rows]


def main() -> int:
    """Measure, write JSON, print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", default=sys.executable, help="the server's Python (default: this one)")
    parser.add_argument("--bundle", type=Path, help="default: the bundled model")
    parser.add_argument("--num-starts", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of the load (default: 20)")
    parser.add_argument("--output", type=Path, default=RESULT)
    args = parser.parse_args()
    run = describe_run("benchmarks.footprint", python=args.python)
    compile_sources(args.python)
    one_core, all_cores = (
        ServeOptions(args.python, args.bundle, cores=cores) for cores in (frozenset({0}), None)
    )
    pairs = [(measure_start(one_core), measure_start(all_cores)) for _ in range(args.num_starts)]
    starts, starts_on_all_cores = ([pair[place] for pair in pairs] for place in (0, 1))
    result = {
        **run,
        "starts": starts,
        "medians": medians(starts),
        "starts_on_all_cores": starts_on_all_cores,
        "medians_on_all_cores": medians(starts_on_all_cores),
        **measure_memory(all_cores, args.seconds),
        "steps": measure_steps(args.python),
    }
    args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(
        json.dumps(
            {
                name: result[name]
                for name in result
                if name.startswith(("medians", "memory", "first", "steps"))
            },
            indent=1,
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
