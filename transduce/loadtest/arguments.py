"""The arguments of `transduce loadtest` and the plan that they make."""

from __future__ import annotations

import argparse
import dataclasses
import os
import random
from pathlib import Path
from typing import Any

import orjson

from transduce.errors import CommandError, ExitCode
from transduce.loadtest.arrivals import DEFAULT_BURSTINESS, KINDS, Arrivals, ClosedLoop, Phase
from transduce.loadtest.dialects import DIALECTS, RequestSpec
from transduce.loadtest.document import DEFAULT_MIN_OK
from transduce.loadtest.plan import DEFAULT_MAX_LAG_S, DEFAULT_TIMEOUT_S, DEFAULT_WARM_UP_S, RunPlan, Target
from transduce.loadtest.slo import Slo
from transduce.loadtest.workload import (
    MIXES,
    Workload,
    built_in,
    from_texts,
    read_lines,
    with_distinct_opening,
)

DEFAULT_DURATION_S = 30.0
DEFAULT_RATE = 10.0
# Of a seed that is drawn: short enough to be typed.
MAX_DRAWN_SEED = 1_000_000
KEY_VARIABLE = "TRANSDUCE_API_KEY"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add them all."""
    add = parser.add_argument
    add("url", metavar="URL", help="root of the server, such as http://127.0.0.1:8000; or the word compare")
    add("files", nargs="*", type=Path, default=[], metavar="FILE", help="after compare: result files")
    _add_load(parser.add_argument_group("load", "when requests are sent"))
    _add_workload(parser.add_argument_group("workload", "what is sent, and how"))
    _add_judgement(parser.add_argument_group("judgement and reports"))


def _add_load(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--rate", type=_above_zero, metavar="R", help=f"requests/s on schedule (default: {DEFAULT_RATE:g})")
    add(
        "--phases", type=_phases, metavar="R:S,...", help="rates and their seconds, such as 10:60,40:30,10:60"
    )
    add("--clients", type=_whole, metavar="N", help="instead: N clients that each wait for their answer")
    add("--sweep", action="store_true", help="instead: look for the highest rate that keeps every --slo")
    add("--arrivals", choices=KINDS, default="poisson", help="how requests are spread (default: poisson)")
    add(
        "--burstiness",
        type=_above_zero,
        default=DEFAULT_BURSTINESS,
        metavar="X",
        help="of bursty arrivals; 1 is Poisson, less comes in bursts (default: %(default)g)",
    )
    add(
        "--duration",
        type=_above_zero,
        default=DEFAULT_DURATION_S,
        metavar="S",
        help="seconds of one run (default: %(default)g)",
    )
    add(
        "--warm-up",
        type=_not_negative,
        default=DEFAULT_WARM_UP_S,
        metavar="S",
        help="seconds before it that do not count (default: %(default)g)",
    )
    add("--runs", type=_whole, default=1, metavar="N", help="runs, each with its own seed (default: 1)")
    add(
        "--seed",
        type=int,
        help="of times and texts (default: another one every time, which the report tells)",
    )
    add(
        "--timeout",
        type=_above_zero,
        default=DEFAULT_TIMEOUT_S,
        metavar="S",
        help="longest wait for an answer (default: %(default)g)",
    )
    add("--connections", type=_whole, metavar="N", help="no more at a time; requests wait for a free one")


def _add_workload(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    mixes = "; ".join(f"{name}: {summary}" for name, (summary, _) in MIXES.items()).replace("%", "%%")
    add("--workload", choices=tuple(MIXES), default="news", help=f"{mixes} (default: news)")
    add("--file", type=Path, metavar="FILE", help="instead: the lines of a UTF-8 file, one a request")
    add("--references", type=Path, metavar="FILE", help="with --file: their translations, to compare with")
    add("--distinct", action="store_true", help="with --file: put distinct words before every line")
    add("--repeated", action="store_true", help="without --file: the same texts again and again")
    add(
        "--rest",
        type=_whole,
        metavar="N",
        help="ask N texts at rest first, and compare what comes under load",
    )
    add("--disconnects", type=float, default=0.0, metavar="SHARE", help="of requests given up, 0 to 1")
    add("--dialect", choices=tuple(DIALECTS), default="native", help="the API (default: native)")
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
        "--api-key-file", type=Path, metavar="FILE", help=f"file that holds the API key (else {KEY_VARIABLE})"
    )


def _add_judgement(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--slo",
        action="append",
        default=[],
        type=_slo,
        metavar="pNN=TIME",
        help="such as p99=500ms: 99 %% of all requests are answered within 500 ms; may be repeated",
    )
    add(
        "--min-ok",
        type=_share,
        default=DEFAULT_MIN_OK,
        metavar="SHARE",
        help="share of requests that must be answered, 0 to 1; fewer: FAILED (default: %(default)g)",
    )
    add(
        "--min-rate",
        type=_above_zero,
        metavar="R",
        help="answers/s, or the rate of a sweep, that must be reached",
    )
    add("--precision", type=_above_zero, default=0.05, metavar="X", help="of a sweep (default: %(default)g)")
    add(
        "--server-pid",
        type=_whole,
        metavar="PID",
        help="of a server on this machine: tells its CPU and memory",
    )
    add("--pin", action="store_true", help="with --server-pid: the server on one core, the tester on another")
    add(
        "--max-lag",
        type=_above_zero,
        default=DEFAULT_MAX_LAG_S * 1e3,
        metavar="MS",
        help="p99 by which the tester may be late before a run is not valid (default: %(default)g)",
    )
    add("--label", default="", help="what the run is called in reports")
    add("--json", type=Path, metavar="FILE", help="write the result file")
    add("--html", type=Path, metavar="FILE", help="write the report as one page")


def make_plan(args: argparse.Namespace) -> RunPlan:
    """What the arguments ask for.

    Raises:
        CommandError: they contradict one another, or a value cannot be.
        OSError, ValueError: a file cannot be read.
    """
    ways = [name for name in ("rate", "phases", "clients") if getattr(args, name) is not None]
    if len(ways) > 1 or (args.sweep and set(ways) - {"rate"}):
        raise CommandError(
            "--phases, --clients and --rate or --sweep exclude one another", exit_code=ExitCode.USAGE
        )
    if args.sweep and not args.slo:
        raise CommandError("--sweep needs an --slo, such as p99=500ms", exit_code=ExitCode.USAGE)
    if args.pin and args.server_pid is None:
        raise CommandError("--pin needs --server-pid", exit_code=ExitCode.USAGE)
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
    """The open loop unless clients are spec for."""
    if args.clients is not None:
        return ClosedLoop(args.clients, args.duration)
    phases = args.phases or (Phase(args.rate or DEFAULT_RATE, args.duration),)
    return Arrivals(phases, args.arrivals, args.burstiness)


def make_workload(args: argparse.Namespace, seed: int) -> Workload:
    """A file's lines or a built-in mix, with the options of every request. Raises OSError, ValueError."""
    if args.file is None:
        if args.references is not None:
            raise ValueError("--references needs --file")
        workload = built_in(args.workload, seed=seed, is_distinct=not (args.repeated or args.rest))
    else:
        references = read_lines(args.references) if args.references else None
        texts = read_lines(args.file)
        if references is not None and len(references) != len(texts):
            raise ValueError(f"{len(texts)} texts have {len(references)} references")
        workload = from_texts(texts, name=args.file.name, references=references)
        workload = dataclasses.replace(
            workload, make_distinct=with_distinct_opening if args.distinct else None
        )
    options: dict[str, Any] = dict(args.option)
    spec = tuple(
        RequestSpec(one.texts, one.is_array, {**one.options, **options}) for one in workload.requests
    )
    return dataclasses.replace(workload, requests=spec, disconnect_share=args.disconnects)


def find_api_key(path: Path | None) -> str | None:
    """From the file, else from the environment. Raises OSError, ValueError."""
    key = path.read_text("utf-8").strip() if path else os.environ.get(KEY_VARIABLE, "").strip()
    if not key.isprintable() or not key.isascii():
        raise ValueError("an API key is one line of ASCII")
    return key or None


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
        return name, value  # a bare word is a string


def _phases(text: str) -> tuple[Phase, ...]:
    try:
        pairs = [part.split(":") for part in text.split(",")]
        return tuple(Phase(_above_zero(rate), _above_zero(duration)) for rate, duration in pairs)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not like 10:60,40:30") from error


def _above_zero(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not above 0")
    return value


def _not_negative(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is negative")
    return value


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not from 0 to 1")
    return value


def _whole(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return value
