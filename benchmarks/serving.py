"""Measure a served bundle: start time, first request, 1 client and 32 clients, batch consistency, memory.

Starts the server with its default settings, but without the sentence cache and coalescing. Sends it the 500 sentences
of `sentences.tsv` over the loopback. Writes JSON and Markdown tables. The measured starts may use all cores. After that
the server has one core and the client has another. Compared cases alternate within one run. Linux only.

The first answer to a sentence alone is its reference. The exit code is 1 if another int8 answer, alone or in a batch,
differs from the reference in its text or its number of subwords.

    python -m benchmarks.serving --bundle bundles/en-de --output benchmarks/results/serving.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from app.bundle import Bundle, load_bundle
from app.bundle_folders import find_bundles
from app.errors import BundleError, SettingsError
from app.settings import load_settings
from benchmarks.batch_consistency import AnswerLog, compare
from benchmarks.load import Connection, Request, make_request
from benchmarks.machine import describe_run
from benchmarks.passes import SEED, Load, measure_arrivals, measure_httpx, measure_load, median_load
from benchmarks.reference_bundle import NoReferenceError, reference_bundle
from benchmarks.server_process import ServeOptions, ServerProcess
from benchmarks.serving_report import render

SENTENCES = Path(__file__).with_name("sentences.tsv")
RESULT = Path(__file__).with_name("results") / "serving.json"
NUM_CLIENTS = 32
BEAM_SIZES = (4, 1)
NUM_STEADY = 15  # requests after the first one


@dataclass(frozen=True)
class ServingOptions:
    """How much to measure. A pass stops after limit_s seconds. No round begins after budget_s seconds."""

    num_starts: int
    num_rounds: int
    limit_s: float
    budget_s: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add = parser.add_argument
    add("--bundle", type=Path, help="the bundle that is served (default: the bundled model)")
    add("--output", type=Path, default=RESULT, help="JSON file; the tables are written beside it as .md")
    add("--python", default=sys.executable, help="the server's Python (default: this one)")
    add("--num-starts", type=int, default=5, help="measured starts of the server (default: 5)")
    add("--num-rounds", type=int, default=5, help="passes with 1 client and with 32 clients (default: 5)")
    add("--num-sentences", type=int, help="use only the first N sentences, for a test run")
    add("--limit", type=float, default=40.0, metavar="S", help="longest duration of one pass (default: 40)")
    add(
        "--budget",
        type=float,
        default=220.0,
        metavar="S",
        help="start no new round after S seconds (default: 220)",
    )


def read_sentences(path: Path = SENTENCES) -> list[str]:
    """The sentences of a file: the second column of each line."""
    lines = path.read_text("utf-8").split("\n")
    return [line.split("\t")[1] for line in lines if line]


async def measure_start(served: ServeOptions, text: str, pair: tuple[str, str]) -> dict[str, float]:
    """Start the server once, then send it the same sentence several times.

    Each request opens its own connection, and the time includes this. So the first request differs from the others only
    in being the first.
    """
    request = make_request(0, text, pair=pair, beam_size=BEAM_SIZES[0])
    with ServerProcess(served) as server:
        times = []
        for _ in range(1 + NUM_STEADY):
            started_at = time.perf_counter()
            async with Connection(server.port) as connection:
                answer = await connection.post(request)
            times.append((answer.ended_at - started_at) * 1e3)
    steady = statistics.median(times[1:])
    return {
        "ready_s": server.ready_s,
        "first_ms": times[0],
        "steady_median_ms": steady,
        "first_over_steady": times[0] / steady,
    }


def measure_starts(served: ServeOptions, text: str, pair: tuple[str, str], num_starts: int) -> dict[str, Any]:
    """Measure several starts. Returns each of them and the medians."""
    starts = [asyncio.run(measure_start(served, text, pair)) for _ in range(num_starts)]
    medians = {name: statistics.median(start[name] for start in starts) for name in starts[0]}
    return {"sentence": text, "medians": medians, "starts": starts}


def measure_rounds(
    server: ServerProcess,
    requests: dict[int, list[Request]],
    options: ServingOptions,
    log: AnswerLog,
) -> dict[str, Any]:
    """Alternate passes with 1 client and with 32 clients, for each beam size. Adds all answers to `log`.

    Runs at least one round per beam size. No new round begins once the budget is spent.
    """
    rounds: dict[int, list[tuple[Load, Load]]] = {beam_size: [] for beam_size in requests}
    until = time.perf_counter() + options.budget_s
    for number in range(options.num_rounds):
        for beam_size, of_beam in requests.items():
            if number and time.perf_counter() > until:
                break
            one, alone = measure_load(server, of_beam, num_clients=1, limit_s=options.limit_s)
            many, together = measure_load(server, of_beam, num_clients=NUM_CLIENTS, limit_s=options.limit_s)
            rounds[beam_size].append((one, many))
            log.add_alone(alone)
            log.add_batched(f"{NUM_CLIENTS} clients", together)
            _print_progress(
                f"beam {beam_size}: 1 client {one.sentences_per_s:.1f}/s, "
                f"{NUM_CLIENTS} clients {many.sentences_per_s:.1f}/s"
            )
    return {f"beam_{beam_size}": _summary(pairs) for beam_size, pairs in rounds.items()}


def _summary(pairs: Sequence[tuple[Load, Load]]) -> dict[str, Any]:
    """Medians over the rounds, and the rounds."""
    ratios = [many.sentences_per_s / one.sentences_per_s for one, many in pairs]
    return {
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "one_client": median_load([one for one, _ in pairs]),
        "many_clients": median_load([many for _, many in pairs]),
        "rounds": [{"one_client": asdict(one), "many_clients": asdict(many)} for one, many in pairs],
    }


def measure_reference(
    served: ServeOptions, requests: dict[int, list[Request]], limit_s: float
) -> tuple[dict[str, Any], dict[str, float]]:
    """Measure fp32 with one client, then with Poisson arrivals. Returns the comparison and the arrivals' figures."""
    log = AnswerLog()
    with ServerProcess(served) as server:
        rates = []
        for of_beam in requests.values():
            load, answers = measure_load(server, of_beam, num_clients=1, limit_s=limit_s)
            log.add_alone(answers)
            rates.append(load.sentences_per_s)
        arrivals = measure_arrivals(server, requests, log, alone_rates=rates, limit_s=limit_s)
    return compare(log), arrivals


def measure(args: argparse.Namespace, bundle: Bundle) -> dict[str, Any]:
    """Measure everything. Returns the content of the JSON file."""
    options = ServingOptions(args.num_starts, args.num_rounds, args.limit, args.budget)
    pair = (bundle.manifest.language_pairs[0].source, bundle.manifest.language_pairs[0].target)
    texts = read_sentences()[: args.num_sentences]
    random.Random(SEED).shuffle(texts)
    requests = {
        beam_size: [
            make_request(number, text, pair=pair, beam_size=beam_size) for number, text in enumerate(texts)
        ]
        for beam_size in BEAM_SIZES
    }
    usual = sorted(texts, key=len)[len(texts) // 2]
    result: dict[str, Any] = {"num_sentences": len(texts)}
    result["start"] = measure_starts(ServeOptions(args.python, bundle.path), usual, pair, options.num_starts)
    _print_progress(f"ready after {result['start']['medians']['ready_s']:.2f} s")
    server_core, client_core = cores_to_pin()
    if client_core is not None:
        os.sched_setaffinity(0, client_core)
    result["pinned"] = server_core is not None
    log = AnswerLog()
    with ServerProcess(ServeOptions(args.python, bundle.path, cores=server_core)) as server:
        result["model"] = json.loads(server.get("/v1/models"))["models"][0]
        memory = {"after_start_mb": server.peak_memory_mb()}
        result["load"] = measure_rounds(server, requests, options, log)
        result["httpx"] = {
            f"beam_{beam_size}": measure_httpx(
                server, of_beam, num_clients=NUM_CLIENTS, limit_s=options.limit_s
            )
            for beam_size, of_beam in requests.items()
        }
        rates = [result["load"][f"beam_{size}"]["one_client"]["sentences_per_s"] for size in requests]
        arrivals = measure_arrivals(server, requests, log, alone_rates=rates, limit_s=options.limit_s)
        result["memory"] = {**memory, "after_load_mb": server.peak_memory_mb()}
    precision = result["model"]["precision"]
    result["batch_consistency"] = {precision: {"answers": compare(log), "arrivals": arrivals}}
    _print_progress(f"{precision} alone and in batches: {result['batch_consistency'][precision]['answers']}")
    with tempfile.TemporaryDirectory() as folder:
        try:
            reference = reference_bundle(bundle, Path(folder))
            served = ServeOptions(args.python, reference, precision="fp32", cores=server_core)
            answers, arrivals = measure_reference(served, requests, options.limit_s)
            result["batch_consistency"]["fp32"] = {"answers": answers, "arrivals": arrivals}
        except NoReferenceError as error:
            result["batch_consistency"]["fp32"] = {"skipped": str(error)}
    return result


def cores_to_pin() -> tuple[frozenset[int] | None, frozenset[int] | None]:
    """One core for the server and one for this process. None for both on a machine with one core."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        return None, None
    return frozenset(cores[:1]), frozenset(cores[1:2])


def _print_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write JSON and Markdown, and print the tables. Returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    args = parser.parse_args(arguments)
    try:
        bundle = load_bundle(args.bundle or find_bundles(load_settings())[0])
    except (BundleError, SettingsError) as error:
        parser.exit(2, "".join(f"{problem}\n" for problem in error.problems))
    started_at = time.perf_counter()
    result = {
        **describe_run("benchmarks.serving", arguments, python=args.python),
        **measure(args, bundle),
        "seconds": round(time.perf_counter() - started_at, 1),
    }
    table = render(result)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(rounded(result), indent=1, ensure_ascii=False) + "\n", "utf-8")
    args.output.with_suffix(".md").write_text(table, "utf-8")
    print(table)
    int8 = result["batch_consistency"].get("int8")
    return 1 if int8 and any(each["num_different"] for each in int8["answers"].values()) else 0


def rounded(value: Any) -> Any:
    """The value with floats rounded to four significant digits."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list) else value


if __name__ == "__main__":
    sys.exit(main())
