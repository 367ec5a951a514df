"""Measure how two models of one server share its cores.

The server serves two copies of a bundle under two names. In each round, clients load the first model alone, the second
alone, then both at once. A second server serves one copy only. Its rate shows what the presence of an idle model costs.
Writes JSON. Linux only.

    python -m benchmarks.model_shares --output benchmarks/results/model_shares.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.cache import PAIR
from benchmarks.load import HOST, PATH, TIMEOUT_MS, Request, closed_loop
from benchmarks.machine import ROOT, commit, describe_machine, versions
from benchmarks.server_process import NO_CACHE, Command, Process, serve_command
from benchmarks.serving import read_sentences

RESULT = Path(__file__).with_name("results") / "model_shares.json"
BUNDLE = ROOT / "bundles" / "en-de"
NAMES = ("first", "second")
NUM_CLIENTS = 32  # of each loaded model


def put_copy(bundle: Path, folder: Path, name: str) -> None:
    """Put a copy of a bundle there whose model has this name."""
    shutil.copytree(bundle, folder)
    file = folder / "manifest.json"
    manifest = json.loads(file.read_text("utf-8"))
    file.write_text(json.dumps({**manifest, "name": name}), "utf-8")


def requests_to(name: str) -> list[Request]:
    """A request for each of the benchmark's sentences, to this model."""
    requests = []
    for number, text in enumerate(read_sentences()):
        fields = {"text": text, "source": PAIR[0], "target": PAIR[1], "model": name, "timeout_ms": TIMEOUT_MS}
        body = json.dumps(fields).encode()
        head = f"POST {PATH} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
        requests.append(
            Request(number, 0, body, f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        )
    return requests


async def rates(port: int, names: Sequence[str], seconds: float) -> list[float]:
    """The requests/s of each model while clients load these models at once."""

    async def rate(name: str) -> float:
        answers = await closed_loop(
            port, requests_to(name), num_clients=NUM_CLIENTS, num_answers=10**6, limit_s=seconds
        )
        return len(answers) / (answers[-1].ended_at - answers[0].sent_at)

    return list(await asyncio.gather(*(rate(name) for name in names)))


def serve_both(folder: Path) -> Command:
    """The command of a server with every bundle of a folder."""
    only = serve_command(sys.executable, None, NO_CACHE)
    return Command(lambda port: [*only.arguments(port), "--bundles", str(folder)], only.environment)


def measure(seconds: float, num_rounds: int) -> dict[str, object]:
    """Measure the rates in rounds. Figures are medians of the rounds."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name in NAMES:
            put_copy(BUNDLE, folder / name, name)
        only = serve_command(sys.executable, folder / NAMES[0], NO_CACHE)
        with Process(serve_both(folder)) as both, Process(only) as single:
            for _ in range(num_rounds):
                cases = {
                    "only model of its server": (single, NAMES[:1]),
                    "first alone": (both, NAMES[:1]),
                    "second alone": (both, NAMES[1:]),
                    "both": (both, NAMES),
                }
                for case, (server, names) in cases.items():
                    for name, rate in zip(
                        names, asyncio.run(rates(server.port, names, seconds)), strict=True
                    ):
                        found.setdefault(f"{case}, {name}" if case == "both" else case, []).append(rate)
    medians = {case: statistics.median(values) for case, values in found.items()}
    together = [medians[f"both, {name}"] for name in NAMES]
    return {
        "requests_per_s": {case: [round(value, 1) for value in values] for case, values in found.items()},
        "smaller_of_larger_rate": round(min(together) / max(together), 3),
        "both_over_alone": round(sum(together) / medians["first alone"], 3),
        "alone_over_only": round(medians["first alone"] / medians["only model of its server"], 3),
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULT, help="JSON file")
    parser.add_argument("--seconds", type=float, default=6.0, help="duration of each case (default: 6)")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds (default: 3)")
    args = parser.parse_args()
    figures = measure(args.seconds, args.rounds)
    print(json.dumps(figures, indent=1))
    result = {
        "command": shlex.join(["python", "-m", "benchmarks.model_shares", *sys.argv[1:]]),
        "commit": commit(),
        "machine": describe_machine(),
        "versions": versions(sys.executable),
        "figures": figures,
    }
    args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
