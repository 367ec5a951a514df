"""Compare the server of another checkout with the server of this checkout over HTTP, on the same bundle, in turns.

The ratio shows what the commits between the checkouts cost. Both servers have the same core, and the load tester has
another one. In a turn, closed-loop clients send sentences of 2 to 58 words to one server and then to the other. Nothing
comes from a cache. The other checkout must have its own environment (`make serve` there). Both must be able to read the
bundle.

    python -m benchmarks.two_checkouts --other FOLDER --python .venv/bin/python \
        --output benchmarks/results/two_checkouts.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.http.context import print_progress, running_servers, separate_cores
from benchmarks.http.subjects import Subject
from benchmarks.http.traffic import NUM_CLIENTS, SEED, TEXTS, closed_loop, mixed
from benchmarks.machine import ROOT, describe_run
from benchmarks.server_process import NO_CACHE, serve_command

RESULT = Path(__file__).with_name("results") / "two_checkouts.json"
WARM_UP_S = 3.0
OTHER, THIS = "other", "this"


def subject(name: str, python: str, bundle: Path) -> Subject:
    """The server of the checkout whose environment has this interpreter. bundle: an absolute path."""
    # The script beside the interpreter, because `python -m` would run the code of the current folder.
    program = str(Path(python).absolute().with_name("transduce"))
    served = serve_command(python, bundle, NO_CACHE)

    def arguments(port: int) -> list[str]:
        options = served.arguments(port)
        return [program, *options[options.index("serve") :]]

    return Subject(name, replace(served, arguments=arguments), TEXTS, "defaults without caches")


def measure(
    subjects: Sequence[Subject], *, num_turns: int, seconds: float, num_clients: int
) -> list[dict[str, Any]]:
    """The closed-loop figures of each server in each turn. The order changes with every turn."""
    turns = []
    with running_servers(subjects, separate_cores()) as servers:
        for _, server in servers:
            closed_loop(server, TEXTS, mixed(), num_clients=num_clients, seconds=WARM_UP_S)
        for number in range(num_turns):
            turn = {}
            for each, server in servers if number % 2 == 0 else servers[::-1]:
                load = {"num_clients": num_clients, "seconds": seconds, "seed": SEED + number}
                turn[each.name] = asdict(closed_loop(server, TEXTS, mixed(), **load))  # type: ignore[arg-type]
            turns.append(turn)
            rates = {name: round(figures["per_s"], 1) for name, figures in turn.items()}
            print_progress(f"turn {number + 1}: answers/s {rates}")
    return turns


def summary(turns: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Medians over the turns: each server's figures, and ratios of this server's to the other's in the same turn."""
    found: dict[str, float] = {}
    for field in ("per_s", "p50_ms", "p99_ms"):
        for name in (OTHER, THIS):
            found[f"{name}_{field}"] = round(statistics.median(turn[name][field] for turn in turns), 2)
        ratios = [turn[THIS][field] / turn[OTHER][field] for turn in turns]
        found[f"{field}_ratio"] = round(statistics.median(ratios), 3)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the medians, write JSON. Returns 1 if a request failed, else 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--other", type=Path, required=True, help="the other checkout's folder")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of this checkout's server")
    parser.add_argument("--bundle", type=Path, default=ROOT / "bundles" / "en-de")
    parser.add_argument("--num-turns", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=8.0, help="duration of each server's load in a turn")
    parser.add_argument("--clients", type=int, default=NUM_CLIENTS)
    parser.add_argument("--commit", default="", help="the other checkout's commit, for the result")
    parser.add_argument("--output", type=Path, default=RESULT)
    args = parser.parse_args(arguments)
    run = describe_run("benchmarks.two_checkouts", arguments, python=args.python)
    bundle = args.bundle.absolute()
    subjects = [
        subject(OTHER, str(args.other / ".venv" / "bin" / "python"), bundle),
        subject(THIS, args.python, bundle),
    ]
    turns = measure(subjects, num_turns=args.num_turns, seconds=args.seconds, num_clients=args.clients)
    found = summary(turns)
    print(json.dumps(found, indent=1))
    result = {
        **run,
        "other_commit": args.commit,
        "num_clients": args.clients,
        "summary": found,
        "turns": turns,
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    return int(any(figures["num_failed"] for turn in turns for figures in turn.values()))


if __name__ == "__main__":
    sys.exit(main())
