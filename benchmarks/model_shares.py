"""Measure how two models of one server share its cores.

The server serves two copies of a bundle under two names. In each round, clients send requests to the first model alone,
to the second alone, then to both at once. A second server serves one copy only. Its rate shows what the presence of an
idle model costs. Writes JSON. Linux only.

    python -m benchmarks.model_shares --output benchmarks/results/model_shares.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.cache import PAIR
from benchmarks.load import TIMEOUT_MS, Request, closed_loop, request_of
from benchmarks.machine import measured
from benchmarks.many_models import write_copies
from benchmarks.server_process import NO_CACHE, Process, serve_command
from benchmarks.serving import read_sentences

RESULT = Path(__file__).with_name("results") / "model_shares.json"
# The names of the two rates that are measured while clients send requests to both models.
BOTH = ("both, first", "both, second")
NUM_CLIENTS = 32  # for each model that gets requests


def requests_to(name: str) -> list[Request]:
    """A request for each of the benchmark's sentences, to this model."""
    fields = {"source": PAIR[0], "target": PAIR[1], "model": name, "timeout_ms": TIMEOUT_MS}
    return [request_of(number, {"text": text, **fields}) for number, text in enumerate(read_sentences())]


async def rates(port: int, names: Sequence[str], seconds: float) -> list[float]:
    """The requests/s of each model while clients send requests to these models at once."""

    async def rate(name: str) -> float:
        answers = await closed_loop(
            port, requests_to(name), num_clients=NUM_CLIENTS, num_answers=10**6, limit_s=seconds
        )
        return len(answers) / (answers[-1].ended_at - answers[0].sent_at)

    return list(await asyncio.gather(*(rate(name) for name in names)))


def measure(seconds: float, num_rounds: int) -> dict[str, object]:
    """Measure the rates in rounds. Figures are medians of the rounds."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        first, second = write_copies(folder, 2)
        everything = serve_command(sys.executable, None, {**NO_CACHE, "bundles": str(folder)})
        only = serve_command(sys.executable, folder / first, NO_CACHE)
        with Process(everything) as both, Process(only) as single:
            for _ in range(num_rounds):
                cases = {
                    ("only model of its server",): (single, (first,)),
                    ("first alone",): (both, (first,)),
                    ("second alone",): (both, (second,)),
                    BOTH: (both, (first, second)),
                }
                for labels, (server, names) in cases.items():
                    measured_rates = asyncio.run(rates(server.port, names, seconds))
                    for label, rate in zip(labels, measured_rates, strict=True):
                        found.setdefault(label, []).append(rate)
    medians = {case: statistics.median(values) for case, values in found.items()}
    together = [medians[case] for case in BOTH]
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
    result = measured("benchmarks.model_shares", lambda: measure(args.seconds, args.rounds))
    print(json.dumps(result["figures"], indent=1))
    args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
