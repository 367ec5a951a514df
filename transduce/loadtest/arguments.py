"""The arguments of `transduce loadtest`, and the run plan they define."""

from __future__ import annotations

import argparse
import dataclasses
import random
from pathlib import Path
from typing import Any

import orjson

from transduce.api_key import find_api_key
from transduce.arguments import above_zero, not_negative, number, positive
from transduce.errors import CommandError, ExitCode
from transduce.loadtest.arrivals import (
    DEFAULT_BURSTINESS,
    KINDS,
    MAX_BURSTINESS,
    MIN_BURSTINESS,
    Arrivals,
    ClosedLoop,
    Phase,
)
from transduce.loadtest.dialects import DIALECTS, RequestSpec
from transduce.loadtest.document import DEFAULT_MIN_OK
from transduce.loadtest.plan import DEFAULT_MAX_LAG_S, DEFAULT_TIMEOUT_S, DEFAULT_WARM_UP_S, RunPlan, Target
from transduce.loadtest.slo import Slo
from transduce.loadtest.workload import (
    DISCONNECT_WITHIN_S,
    MIXES,
    Workload,
    built_in,
    from_texts,
    read_lines,
    read_pairs,
    with_distinct_opening,
)

DEFAULT_DURATION_S = 30.0
DEFAULT_RATE = 10.0
DEFAULT_WORKLOAD = "news"
# Dialects whose requests can choose the beam. The others ignore the field.
WITH_BEAMS = ("native", "stream")
# A random seed is below this number, so that it is short enough to type.
MAX_DRAWN_SEED = 1_000_000
# Largest absolute value of a seed. The seeds of further runs are larger, and the result file holds 64-bit integers.
MAX_SEED = 2**53


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add all arguments of the load tester."""
    add = parser.add_argument
    add("url", metavar="URL", help="root of the server, such as http://127.0.0.1:8000; or the word `compare`")
    add("files", nargs="*", type=Path, default=[], metavar="FILE", help="result files, after `compare`")
    _add_load(parser.add_argument_group("load", "when requests are sent"))
    _add_workload(parser.add_argument_group("workload", "which requests are sent"))
    _add_judgement(parser.add_argument_group("objectives and reports"))


def _add_load(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--rate",
        type=above_zero,
        metavar="R",
        help=f"requests/s on a schedule (default: {DEFAULT_RATE:g}); with --sweep, the first rate (default: 0.8 of the "
        "saturation)",
    )
    add(
        "--phases",
        type=_phases,
        metavar="R:S,...",
        help="successive rates and their seconds, such as 10:60,40:30,10:60",
    )
    add(
        "--clients",
        type=positive,
        metavar="N",
        help="instead of a schedule: N clients that each wait for their response",
    )
    add("--sweep", action="store_true", help="instead of a run: find the highest rate that meets every --slo")
    add(
        "--arrivals",
        choices=KINDS,
        default="poisson",
        help="distribution of the arrival times (default: poisson)",
    )
    add(
        "--burstiness",
        type=_burstiness,
        metavar="X",
        help=f"with --arrivals bursty: 1 is Poisson, smaller is burstier (default: {DEFAULT_BURSTINESS:g})",
    )
    add(
        "--duration",
        type=above_zero,
        default=DEFAULT_DURATION_S,
        metavar="S",
        help="seconds of one run, without --phases (default: %(default)g)",
    )
    add(
        "--warm-up",
        type=not_negative,
        default=DEFAULT_WARM_UP_S,
        metavar="S",
        help="seconds of load before the run that do not count (default: %(default)g)",
    )
    add(
        "--runs",
        type=positive,
        metavar="N",
        help="without --sweep: number of runs, each with its own seed (default: 1)",
    )
    add(
        "--seed",
        type=_seed,
        help="seed of times and texts (default: a random one, which the report shows)",
    )
    add(
        "--timeout",
        type=above_zero,
        default=DEFAULT_TIMEOUT_S,
        metavar="S",
        help="seconds to wait for a response (default: %(default)g)",
    )
    add(
        "--connections",
        type=positive,
        metavar="N",
        help="maximum number of open connections; further requests wait for a free one (default: no limit)",
    )


def _add_workload(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    mixes = "; ".join(f"{name}: {summary}" for name, (summary, _) in MIXES.items()).replace("%", "%%")
    add("--workload", choices=tuple(MIXES), help=f"{mixes} (default: {DEFAULT_WORKLOAD})")
    add(
        "--file",
        type=Path,
        metavar="FILE",
        help="instead of a built-in workload: the lines of a UTF-8 file, one per request",
    )
    add(
        "--references",
        type=Path,
        metavar="FILE",
        help="with --file, without --distinct: reference translations, one per line, to compare with",
    )
    add(
        "--distinct",
        action="store_true",
        help="with --file: make every text distinct by words put before the line",
    )
    add(
        "--repeated",
        action="store_true",
        help="without --file: repeat the same texts instead of distinct ones; --rest does so, too",
    )
    add(
        "--rest",
        type=positive,
        metavar="N",
        help="first send N requests to the idle server, and compare the translations under load with these answers",
    )
    add(
        "--disconnects",
        type=number,
        default=0.0,
        metavar="SHARE",
        help="share of requests, 0 to 1, that the tester gives up after a random time of at most "
        f"{DISCONNECT_WITHIN_S:g} s, if they are not answered by then",
    )
    add("--dialect", choices=tuple(DIALECTS), default="native", help="API of the server (default: native)")
    add("--source", default="en", help="language of the texts (default: en)")
    add("--target", default="de", help="language to translate into (default: de)")
    add(
        "--option",
        action="append",
        default=[],
        type=_option,
        metavar="NAME=JSON",
        help="a further field of every request, such as beam_size=4; may be repeated",
    )
    add(
        "--api-key-file",
        type=Path,
        metavar="FILE",
        help="file with the API key (default: the key in TRANSDUCE_API_KEY)",
    )


def _add_judgement(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--slo",
        action="append",
        default=[],
        type=_slo,
        metavar="pNN=TIME",
        help="objective such as p99=500ms: 99 %% of all requests are answered within 500 ms; may be repeated",
    )
    add(
        "--min-ok",
        type=_share,
        default=DEFAULT_MIN_OK,
        metavar="SHARE",
        help="share of requests, 0 to 1, that must be answered; with fewer, the run has FAILED (default: %(default)g); "
        "with --sweep, one answer is enough",
    )
    add(
        "--min-rate",
        type=above_zero,
        metavar="R",
        help="required answers/s; with --sweep, the required highest rate in requests/s",
    )
    add(
        "--precision",
        type=above_zero,
        default=0.05,
        metavar="X",
        help="relative precision of a sweep's rate (default: %(default)g)",
    )
    add(
        "--server-pid",
        type=positive,
        metavar="PID",
        help="process of a server on this machine, to report its CPU time and memory, workers included",
    )
    add(
        "--pin",
        action="store_true",
        help="with --server-pid: pin the server and its workers to one core and the tester to another",
    )
    add(
        "--max-lag",
        type=above_zero,
        default=DEFAULT_MAX_LAG_S * 1e3,
        metavar="MS",
        help="lag of the tester (p99) in ms that is always allowed (default: %(default)g)",
    )
    add("--label", default="", help="name of the run in reports")
    add("--json", type=Path, metavar="FILE", help="write the result file")
    add("--html", type=Path, metavar="FILE", help="write an HTML report")


def make_plan(args: argparse.Namespace) -> RunPlan:
    """The run plan of the arguments.

    Raises:
        CommandError: arguments contradict each other, a value or the API key is invalid, or a file holds no valid text.
        OSError: a file cannot be read.
    """
    ways = [name for name in ("rate", "phases", "clients") if getattr(args, name) is not None]
    if len(ways) > 1 or (args.sweep and set(ways) - {"rate"}):
        raise CommandError(
            "--phases, --clients and --rate exclude each other, and --sweep goes with --rate only",
            exit_code=ExitCode.USAGE,
        )
    if args.sweep and args.runs is not None:
        raise CommandError("--runs and --sweep exclude each other", exit_code=ExitCode.USAGE)
    if args.sweep and not args.slo:
        raise CommandError("--sweep needs an --slo, such as --slo p99=500ms", exit_code=ExitCode.USAGE)
    if args.rest is not None and args.references is not None:
        raise CommandError("--rest and --references exclude each other", exit_code=ExitCode.USAGE)
    if args.pin and args.server_pid is None:
        raise CommandError("--pin needs --server-pid", exit_code=ExitCode.USAGE)
    if args.burstiness is not None and args.arrivals != "bursty":
        raise CommandError("--burstiness needs --arrivals bursty", exit_code=ExitCode.USAGE)
    if any(slo.is_first_text for slo in args.slo) and not DIALECTS[args.dialect].first_text:
        raise CommandError("an --slo for the first text needs --dialect stream", exit_code=ExitCode.USAGE)
    if args.json is not None and args.html is not None and args.json.absolute() == args.html.absolute():
        raise CommandError("--json and --html name the same file", exit_code=ExitCode.USAGE)
    seed = random.SystemRandom().randrange(MAX_DRAWN_SEED) if args.seed is None else args.seed
    try:
        return RunPlan(
            target=Target(
                args.url, DIALECTS[args.dialect], args.source, args.target, find_api_key(args.api_key_file)
            ),
            workload=make_workload(args, seed),
            load=make_load(args),
            warm_up_s=args.warm_up,
            seed=seed,
            timeout_s=args.timeout,
            max_connections=args.connections,
            slos=tuple(args.slo),
            max_lag_s=args.max_lag / 1e3,
        )
    except ValueError as error:
        raise CommandError(str(error), exit_code=ExitCode.USAGE) from error


def make_load(args: argparse.Namespace) -> Arrivals | ClosedLoop:
    """A closed loop with --clients, else arrivals on a schedule."""
    if args.clients is not None:
        return ClosedLoop(args.clients, args.duration)
    phases = args.phases or (Phase(args.rate or DEFAULT_RATE, args.duration),)
    return Arrivals(phases, args.arrivals, args.burstiness or DEFAULT_BURSTINESS)


def make_workload(args: argparse.Namespace, seed: int) -> Workload:
    """The workload: a file's lines or a built-in mix, with the options added to every request.

    Raises OSError, ValueError.
    """
    if args.workload == "beams" and args.dialect not in WITH_BEAMS:
        raise ValueError("--workload beams needs --dialect native or stream")
    if args.file is None:
        if args.references is not None:
            raise ValueError("--references needs --file")
        if args.distinct:
            raise ValueError("--distinct needs --file")
        workload = built_in(
            args.workload or DEFAULT_WORKLOAD, seed=seed, is_distinct=not (args.repeated or args.rest)
        )
    else:
        for name in ("workload", "repeated"):
            if getattr(args, name):
                raise ValueError(f"--file and --{name} exclude each other")
        references = None
        if args.references is None:
            texts = read_lines(args.file)
        else:
            texts, references = map(list, zip(*read_pairs(args.file, args.references), strict=True))
        workload = from_texts(texts, name=args.file.name, references=references)
        workload = dataclasses.replace(
            workload, make_distinct=with_distinct_opening if args.distinct else None
        )
    options: dict[str, Any] = dict(args.option)
    requests = tuple(
        RequestSpec(one.texts, one.is_array, {**one.options, **options}) for one in workload.requests
    )
    return dataclasses.replace(workload, requests=requests, disconnect_share=args.disconnects)


def _slo(text: str) -> Slo:
    try:
        return Slo.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _option(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=JSON")
    try:
        return name, orjson.loads(value)
    except orjson.JSONDecodeError:
        return name, value  # a value that is not JSON is a string


def _seed(text: str) -> int:
    try:
        found = int(text)
    except ValueError:
        found = MAX_SEED + 1
    if abs(found) > MAX_SEED:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from -{MAX_SEED} to {MAX_SEED}")
    return found


def _burstiness(text: str) -> float:
    found = number(text)
    if not MIN_BURSTINESS <= found <= MAX_BURSTINESS:
        raise argparse.ArgumentTypeError(f"{text} is not {MIN_BURSTINESS} to {MAX_BURSTINESS}")
    return found


def _phases(text: str) -> tuple[Phase, ...]:
    try:
        pairs = [part.split(":") for part in text.split(",")]
        return tuple(Phase(above_zero(rate), above_zero(duration)) for rate, duration in pairs)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not like 10:60,40:30") from error


def _share(text: str) -> float:
    value = number(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not from 0 to 1")
    return value
