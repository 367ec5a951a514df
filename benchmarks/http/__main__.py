"""Compares our server with CTranslate2, Hugging Face and LibreTranslate over HTTP: same machine, same weights.

Parts that the result file already has from this commit are not measured again, so that an interrupted run goes on; nor
are the best settings of a peer searched again.
Linux only; PyTorch and CTranslate2 are needed; LibreTranslate is installed in an environment of its own.

    python -m benchmarks.http --quick
    python -m benchmarks.http --part latency --part goodput
"""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from app.bundle import Bundle, load_bundle
from app.errors import BundleError, SettingsError
from app.settings import find_bundle, load_settings
from benchmarks.http.context import FULL, QUICK, Context, say
from benchmarks.http.libretranslate_setup import REQUIREMENT
from benchmarks.http.models import choices_as_json, read_choices
from benchmarks.http.parts import PARTS
from benchmarks.http.report import render
from benchmarks.machine import commit, describe_machine, versions
from benchmarks.server_process import compile_sources
from benchmarks.serving import rounded

RESULT = Path(__file__).resolve().parents[1] / "results" / "http.json"
# In any currency: the figures scale with it.
PRICE_PER_HOUR = 0.10
PEERS = ("ctranslate2", "torch", "transformers")
LIBRETRANSLATE = dict([REQUIREMENT.split("==")])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add = parser.add_argument
    add(
        "--quick",
        action="store_true",
        help="two or three minutes: to see that everything works, not to quote",
    )
    add("--part", action="append", choices=list(PARTS), help="only this one; may be repeated (default: all)")
    add("--again", action="store_true", help="measure parts that the result file has, too")
    add("--bundle", type=Path, help="the trained weights (default: the bundled model)")
    add("--data", type=Path, metavar="FILE.tsv.xz", help="sentence pairs, for BLEU and chrF under load")
    add("--python", default=sys.executable, help="our server's Python (default: this one)")
    add("--output", type=Path, default=RESULT, help="JSON; the tables go beside it as .md")
    add("--no-libretranslate", action="store_true", help="leave LibreTranslate out and install nothing")
    add(
        "--price-per-hour",
        type=float,
        default=PRICE_PER_HOUR,
        help=f"of this machine, an assumption for the worked example (default: {PRICE_PER_HOUR:.2f})",
    )


def measure_part(
    measure: Callable[[Context], dict[str, Any]], context: Context, command: str
) -> dict[str, Any]:
    """One part's result, with the machine and versions."""
    started_at = time.perf_counter()
    before = {"commit": commit(), "machine": describe_machine()}
    found = measure(context)
    return {
        "command": command,
        **before,
        "versions": {
            **versions(context.python),
            **{name: metadata.version(name) for name in PEERS},
            **LIBRETRANSLATE,
        },
        "effort": asdict(context.effort),
        "price_per_hour": context.price_per_hour,
        "choices": choices_as_json(context.choices),
        "seconds": time.perf_counter() - started_at,
        **found,
    }


def read_parts(path: Path) -> dict[str, Any]:
    """The earlier result; empty without a result file."""
    parts: dict[str, Any] = json.loads(path.read_text("utf-8"))["parts"] if path.exists() else {}
    return parts


def is_measured(part: dict[str, Any] | None, args: argparse.Namespace) -> bool:
    """Whether the result has the part from this commit with the same effort."""
    if part is None or part["effort"]["is_quick"] != args.quick:
        return False
    # The result file may differ from the commit without effect.
    return str(part["commit"]).rstrip("+") == commit().rstrip("+")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write JSON and Markdown after every part, print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    args = parser.parse_args(arguments)
    try:
        bundle = load_bundle(args.bundle or find_bundle(load_settings()))
    except (BundleError, SettingsError) as error:
        parser.exit(2, "".join(f"{problem}\n" for problem in error.problems))
    compile_sources(args.python)
    given = sys.argv[1:] if arguments is None else arguments
    command = shlex.join(["python", "-m", "benchmarks.http", *given])
    # A signal raises an exception, so that the servers end with this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    parts = read_parts(args.output)
    with tempfile.TemporaryDirectory() as folder:
        context = context_of(args, bundle, Path(folder))
        for part in parts.values():
            if is_measured(part, args):
                context.choices.update(read_choices(part["choices"]))
        for name in args.part or PARTS:
            if is_measured(parts.get(name), args) and not args.again:
                say(f"{name}: measured before; --again measures it again")
                continue
            say(f"{name} ...")
            parts[name] = rounded(measure_part(PARTS[name], context, command))
            say(f"{name}: {parts[name]['seconds']:.0f} s")
            parts = {part: parts[part] for part in PARTS if part in parts}
            write({"parts": parts}, args.output)
    print(render({"parts": parts}))
    return 0


def context_of(args: argparse.Namespace, bundle: Bundle, folder: Path) -> Context:
    """Create what the parts share."""
    return Context(
        bundle=bundle,
        folder=folder,
        effort=QUICK if args.quick else FULL,
        python=args.python,
        data=args.data,
        with_libretranslate=not args.no_libretranslate,
        price_per_hour=args.price_per_hour,
    )


def write(result: dict[str, Any], path: Path) -> None:
    """Write JSON, and Markdown beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", "utf-8")
    path.with_suffix(".md").write_text(render(result), "utf-8")


if __name__ == "__main__":
    sys.exit(main())
