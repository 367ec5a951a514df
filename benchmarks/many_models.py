"""Measure a server that holds fewer models than it serves: errors, memory against the budget, and warm latency.

Copies the bundled model under other names, serves all copies with a memory budget for a few of them, and sends requests
whose models follow a Zipf distribution. Then serves only the most popular copies, without a budget, and sends them the
same kind of requests. Writes JSON and Markdown. Linux only.

    python -m benchmarks.many_models --output benchmarks/results/many_models.json
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from app.known_models import read_model
from app.settings import Settings
from benchmarks.cache import summary
from benchmarks.load import TIMEOUT_MS, Connection, LoadError, Request, TimedAnswer, request_of
from benchmarks.machine import ROOT, measured
from benchmarks.server_process import NO_CACHE, ServeOptions, ServerProcess
from benchmarks.serving import read_sentences

RESULT = Path(__file__).with_name("results") / "many_models.json"
BUNDLE = ROOT / "bundles" / "en-de"
PRECISION = "int8"
SETTINGS = {**NO_CACHE, "device": "cpu", "precision": PRECISION}
# Seconds between two readings of the memory. If longer, a short peak is missed. If shorter, the readings take CPU time
# from the server.
SAMPLE_S = 0.25
SHARE_OF_A_MODEL = 0.5  # room in the budget beside the loaded models, as a share of one model
SEED = 1


@dataclass(frozen=True)
class Load:
    """The load of one run: closed-loop clients. exponent: of the Zipf distribution of the models."""

    num_clients: int
    seconds: float
    exponent: float


@dataclass
class Outcome:
    """The clients' answers. errors: status and body of each answer other than 200."""

    answers: list[TimedAnswer] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def latencies_ms(self, *, is_warm: bool) -> list[float]:
        """The latencies of requests whose model was in memory, or, with is_warm=False, of all others."""
        return [each.latency_ms for each in self.answers if ("load" not in each.phases_ms) == is_warm]


def write_copies(folder: Path, num_copies: int) -> list[str]:
    """Write copies of the bundled model, of one precision only, and return their names, the most popular first.

    A bundle is valid with another name and with fewer variants, if the manifest lists no file of the missing variants.
    """
    names = [f"copy-{number:02}" for number in range(num_copies)]
    manifest = json.loads((BUNDLE / "manifest.json").read_text("utf-8"))
    manifest["variants"] = {PRECISION: manifest["variants"][PRECISION]}
    kept = [name for name in manifest["files"] if "/" not in name or name.startswith(f"{PRECISION}/")]
    manifest["files"] = {name: manifest["files"][name] for name in kept}
    for name in names:
        for file in kept:
            (folder / name / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(BUNDLE / file, folder / name / file)
        (folder / name / "manifest.json").write_text(json.dumps({**manifest, "name": name}), "utf-8")
    return names


def requests_of(names: Sequence[str], exponent: float) -> Iterator[Request]:
    """Requests without end. The model with rank k is drawn with a probability proportional to 1 / k ** exponent."""
    draw = random.Random(SEED)
    sentences = read_sentences()
    weights = [1 / rank**exponent for rank in range(1, len(names) + 1)]
    number = 0
    while True:
        (name,) = draw.choices(names, weights)
        fields = {"text": draw.choice(sentences), "source": "en", "target": "de", "model": name}
        yield request_of(number, {**fields, "timeout_ms": TIMEOUT_MS})
        number += 1


async def send(port: int, names: Sequence[str], load: Load) -> Outcome:
    """Send requests from all clients for the load's time."""
    requests, outcome = requests_of(names, load.exponent), Outcome()
    until = time.perf_counter() + load.seconds

    async def client() -> None:
        async with Connection(port) as connection:
            while time.perf_counter() < until:
                try:
                    outcome.answers.append(await connection.post(next(requests)))
                except LoadError as error:
                    outcome.errors.append(str(error))

    async with asyncio.TaskGroup() as group:
        for _ in range(load.num_clients):
            group.create_task(client())
    return outcome


class MemoryPeak:
    """The peak memory of a process and all its children while the `with` block runs, in bytes of PSS."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.num_bytes = 0

    def __enter__(self) -> MemoryPeak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def now(self) -> int:
        """The memory now, in bytes. In PSS, a page that n processes share counts 1/n in each."""
        total = 0
        for process in (self._process, *self._process.children(recursive=True)):
            with contextlib.suppress(psutil.Error, FileNotFoundError):  # the process has ended meanwhile
                total += process.memory_full_info().pss
        return total

    def _watch(self) -> None:
        while not self._is_over.wait(SAMPLE_S):
            self.num_bytes = max(self.num_bytes, self.now())


def measure_budget(folder: Path, names: Sequence[str], num_loaded: int, load: Load) -> dict[str, object]:
    """Serve all copies with a budget for `num_loaded` of them, and SHARE_OF_A_MODEL of another one."""
    settings = Settings(**SETTINGS)  # type: ignore[arg-type]  # pydantic converts the texts
    model_bytes = read_model(folder / names[0], settings).num_bytes
    budget = int(model_bytes * (num_loaded + SHARE_OF_A_MODEL))
    options = {**SETTINGS, "bundles": str(folder), "model_memory": str(budget)}
    served = ServeOptions(sys.executable, None, settings=options)
    with ServerProcess(served) as server, MemoryPeak(server.pid) as peak:
        outcome = asyncio.run(send(server.port, names, load))
        num_loads = server.metric('transduce_model_loads_total{outcome="done"}')
        load_s = server.metric("transduce_model_load_duration_seconds_sum")
        num_unloads = server.metric("transduce_model_unloads_total")
    cold = outcome.latencies_ms(is_warm=False)
    return {
        "num_answers": len(outcome.answers),
        "num_errors": len(outcome.errors),
        "errors": sorted(set(outcome.errors))[:5],
        "warm": summary(outcome.latencies_ms(is_warm=True)),
        "waited_for_load": summary(cold) if cold else None,
        "num_loads": int(num_loads),
        "num_unloads": int(num_unloads),
        "mean_load_s": round(load_s / num_loads, 2),
        "estimate_of_a_model_mb": round(model_bytes / 1e6, 1),
        "budget_mb": round(budget / 1e6, 1),
        "peak_mb": round(peak.num_bytes / 1e6, 1),
    }


def measure_resident(folder: Path, names: Sequence[str], load: Load) -> dict[str, object]:
    """Serve only these copies, all in memory."""
    listed = ",".join(str(folder / name) for name in names)
    served = ServeOptions(sys.executable, None, settings={**SETTINGS, "bundles": listed})
    with ServerProcess(served) as server:
        with MemoryPeak(server.pid) as peak:
            outcome = asyncio.run(send(server.port, names, load))
        return {
            "num_answers": len(outcome.answers),
            "num_errors": len(outcome.errors),
            "warm": summary(outcome.latencies_ms(is_warm=True)),
            "peak_mb": round(peak.num_bytes / 1e6, 1),
        }


def measure(num_copies: int, num_loaded: int, load: Load) -> dict[str, dict[str, object]]:
    """Measure both servers."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        names = write_copies(folder, num_copies)
        return {
            "budget": measure_budget(folder, names, num_loaded, load),
            "resident": measure_resident(folder, names[:num_loaded], load),
        }


def table(figures: dict[str, dict[str, object]]) -> str:
    """The figures as a Markdown table."""
    budget, resident = figures["budget"], figures["resident"]
    rows = [
        ("answers", budget["num_answers"], resident["num_answers"]),
        ("errors", budget["num_errors"], resident["num_errors"]),
        ("warm requests, p50 / p99", _percentiles(budget["warm"]), _percentiles(resident["warm"])),
        ("requests that waited for a load, p50 / p99", _percentiles(budget["waited_for_load"]), "none"),
        ("loads, mean time", f"{budget['num_loads']}, {budget['mean_load_s']} s", "at the start"),
        ("budget", f"{budget['budget_mb']} MB", "none"),
        ("peak PSS of all processes", f"{budget['peak_mb']} MB", f"{resident['peak_mb']} MB"),
    ]
    head = ["| figure | budget | only the popular models |", "|---|---|---|"]
    return "\n".join([*head, *(f"| {name} | {one} | {other} |" for name, one, other in rows)])


def _percentiles(found: object) -> str:
    return f"{found['p50_ms']:.0f} / {found['p99_ms']:.0f} ms" if isinstance(found, dict) else "none"


def main() -> None:
    """Measure, print the table, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULT, help="JSON file; the Markdown is beside it")
    parser.add_argument("--bundles", type=int, default=20, help="copies on disk (default: 20)")
    parser.add_argument("--loaded", type=int, default=4, help="copies that fit in the budget (default: 4)")
    parser.add_argument("--clients", type=int, default=4, help="clients (default: 4)")
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of each run (default: 60)")
    parser.add_argument("--exponent", type=float, default=1.2, help="of the Zipf distribution (default: 1.2)")
    args = parser.parse_args()
    load = Load(args.clients, args.seconds, args.exponent)
    result = measured("benchmarks.many_models", lambda: measure(args.bundles, args.loaded, load))
    shown = table(result["figures"])
    print(shown)
    result["load"] = vars(args) | {"output": str(args.output)}
    args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    args.output.with_suffix(".md").write_text(shown + "\n", "utf-8")


if __name__ == "__main__":
    main()
