"""`transduce size [URL]`: measures a server, and says how many such servers a load needs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from transduce.api_key import find_api_key
from transduce.arguments import above_zero, server_url
from transduce.errors import CommandError, ExitCode
from transduce.loadtest.output_files import prepare
from transduce.loadtest.plan import Target
from transduce.loadtest.slo import Slo
from transduce.loadtest.workload import MIXES, Workload, built_in
from transduce.sizing.capacity import Capacity, Plan, capacity, num_saturating_clients, plan
from transduce.sizing.costs import Costs, Level
from transduce.sizing.measure import measure

# The built-in workloads whose requests have one sentence each and no options of their own.
SINGLE = tuple(name for name in MIXES if name not in {"arrays", "beams"})


def add_size_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `transduce size`."""
    add = parser.add_argument
    add(
        "url",
        nargs="?",
        type=server_url,
        metavar="URL",
        help="root of the server to measure; no other client may use it meanwhile",
    )
    add(
        "--costs",
        type=Path,
        metavar="FILE",
        help="use the times that an earlier run has saved, instead of URL",
    )
    add("--save", type=Path, metavar="FILE", help="save the measured times")
    add(
        "--seconds",
        type=above_zero,
        default=8.0,
        metavar="S",
        help="seconds of each of the 7 measurements (default: %(default)g)",
    )
    add("--rate", type=above_zero, required=True, metavar="R", help="requests a second of one sentence each")
    add(
        "--slo",
        type=objective,
        default=Slo.parse("p99=500ms"),
        metavar="P",
        help="objective; the default p99=500ms means 99 %% of the answers within 500 ms",
    )
    add("--workload", choices=SINGLE, default="news", help="lengths of the sentences (default: %(default)s)")
    add(
        "--words",
        type=int,
        metavar="N",
        help="simulate sentences of N words; the measurement still sends those of --workload",
    )
    add("--price", type=above_zero, metavar="X", help="price of one server for an hour, in any currency")
    add("--spare", type=int, default=0, metavar="N", help="servers that may fail (default: %(default)s)")
    add("--source", default="en", help="language of the texts (default: %(default)s)")
    add("--target", default="de", help="language to translate into (default: %(default)s)")
    add(
        "--api-key-file", type=Path, metavar="FILE", help="file with the API key (default: TRANSDUCE_API_KEY)"
    )


def objective(text: str) -> Slo:
    """An objective for whole answers. Raises argparse.ArgumentTypeError."""
    try:
        slo = Slo.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if slo.is_first_text:
        raise argparse.ArgumentTypeError(
            f"{text} is an objective for a stream's first text, which is not simulated"
        )
    return slo


def run_size(args: argparse.Namespace) -> int:
    """Measure or read the costs, simulate, and print. Returns 0.

    Raises CommandError, OSError if a file cannot be read or written, and ValueError for an invalid URL.
    """
    if (args.url is None) == (args.costs is None):
        raise CommandError("name either the URL of a server or --costs", exit_code=ExitCode.USAGE)
    if args.save is not None and args.costs is not None:
        raise CommandError(
            "--save is for measured costs, and --costs are measured already", exit_code=ExitCode.USAGE
        )
    if args.spare < 0 or (args.words is not None and args.words < 1):
        raise CommandError("--spare must be at least 0 and --words at least 1", exit_code=ExitCode.USAGE)
    workload = built_in(args.workload)
    if args.costs is not None:
        size(Costs.load(args.costs), workload, args)
        return ExitCode.OK
    key = find_api_key(args.api_key_file)
    target = Target(args.url.rstrip("/"), source=args.source, target=args.target, api_key=key)
    if args.save is not None:
        prepare(args.save)
    costs = measure(target, workload, seconds=args.seconds, on_level=print_level)
    try:
        size(costs, workload, args)
    finally:  # also if the server misses the objective
        if args.save is not None:
            costs.save(args.save)
    return ExitCode.OK


def size(costs: Costs, workload: Workload, args: argparse.Namespace) -> None:
    """Simulate the server and print the result. Raises CommandError if it misses the objective at almost no load."""
    words = [args.words] if args.words else [len(spec.texts[0].split()) for spec in workload.requests]
    found = capacity(costs, words, args.slo)
    characters = sum(words) / len(words) * costs.characters_per_word
    servers = plan(found, rate=args.rate, characters=characters, price=args.price, spare=args.spare)
    print_plan(costs, found, servers, args)


def print_level(level: Level) -> None:
    """Report a measurement on stderr."""
    sys.stderr.write(
        f"{level.num_clients:>3} clients: {level.rate:.1f} answers/s, {level.rows:.1f} rows a step, "
        f"{level.step_s * 1e3:.2f} ms a step\n"
    )


def print_plan(costs: Costs, found: Capacity, servers: Plan, args: argparse.Namespace) -> None:
    """Print the result."""
    share = found.rate / found.saturated
    server = f"one server ({costs.name}, {costs.num_workers} workers)"
    num_clients = num_saturating_clients(costs)
    print(f"{server}: {found.saturated:.1f} answers/s at saturation (simulated with {num_clients} clients)")
    print(f"{args.slo} holds up to {found.rate:.1f} requests/s ({share:.0%} of saturation)")
    spare = f", {args.spare} of which may fail" if args.spare else ""
    print(f"{args.rate:g} requests/s need {servers.num_servers} servers{spare}")
    if servers.price_per_million is not None:
        print(
            f"price: {servers.price_per_hour:.2f} an hour, {servers.price_per_million:.4f} a million characters"
        )
