"""Compare Transduce with CTranslate2, Marian, Hugging Face and LibreTranslate over HTTP, with the same weights.

All servers run on one machine. An interrupted run continues: a part that the result file has from this commit is not
measured again, even with other options, and CTranslate2's settings are not searched again. A quick run has a result
file of its own. Linux only. Needs PyTorch, CTranslate2 and transformers. LibreTranslate is installed in a separate
environment. `benchmarks/marian/build.sh` builds Marian.

    python -m benchmarks.http --quick
    python -m benchmarks.http --part latency --part goodput
"""

from __future__ import annotations

import argparse
import json
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
from app.bundle_folders import find_bundles
from app.errors import BundleError, SettingsError
from app.settings import load_settings
from benchmarks.http.context import FULL, QUICK, Context, print_progress
from benchmarks.http.libretranslate_setup import REQUIREMENT
from benchmarks.http.models import choices_as_json, read_choices
from benchmarks.http.parts import PARTS
from benchmarks.http.report import render
from benchmarks.machine import commit, describe_run
from benchmarks.server_process import compile_sources
from benchmarks.serving import rounded

RESULT = Path(__file__).resolve().parents[1] / "results" / "http.json"
QUICK_RESULT = Path(__file__).resolve().parents[2] / "build" / "http_quick.json"
# The price of this machine, in any currency. The costs scale with it.
PRICE_PER_HOUR = 0.10
PEER_PACKAGES = ("ctranslate2", "torch", "transformers")
LIBRETRANSLATE_VERSION = dict([REQUIREMENT.split("==")])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add = parser.add_argument
    add(
        "--quick",
        action="store_true",
        help="a test run of two or three minutes, whose figures are not to be quoted",
    )
    add(
        "--part",
        action="append",
        choices=list(PARTS),
        help="measure this part; may be repeated (default: all)",
    )
    add("--again", action="store_true", help="also measure parts that the result file has")
    add("--bundle", type=Path, help="bundle with the trained weights (default: the bundled model)")
    add("--data", type=Path, metavar="FILE.tsv.xz", help="sentence pairs, for BLEU and chrF under load")
    add("--python", default=sys.executable, help="the Transduce server's Python (default: this one)")
    add(
        "--output",
        type=Path,
        help="JSON file; the tables are written beside it as .md (default: benchmarks/results/http.json, or "
        "build/http_quick.json with --quick)",
    )
    add("--no-libretranslate", action="store_true", help="do not install and measure LibreTranslate")
    add(
        "--marian-programs",
        type=Path,
        metavar="FOLDER",
        help="Marian's programs (default: Marian is not measured)",
    )
    add(
        "--price-per-hour",
        type=float,
        default=PRICE_PER_HOUR,
        help=f"assumed price of this machine, for the cost table (default: {PRICE_PER_HOUR:.2f})",
    )


def measure_part(
    measure: Callable[[Context], dict[str, Any]], context: Context, arguments: Sequence[str] | None
) -> dict[str, Any]:
    """Measure one part. Returns its result with the machine and the versions. arguments: the command's."""
    started_at = time.perf_counter()
    run = describe_run("benchmarks.http", arguments, python=context.python)
    found = measure(context)
    return {
        **run,
        "versions": {
            **run["versions"],
            **{name: metadata.version(name) for name in PEER_PACKAGES},
            **(LIBRETRANSLATE_VERSION if context.with_libretranslate else {}),
        },
        "effort": asdict(context.effort),
        "price_per_hour": context.price_per_hour,
        # CTranslate2's fastest settings, found by this part or an earlier one.
        "choices": choices_as_json(context.choices),
        "seconds": time.perf_counter() - started_at,
        **found,
    }


def read_parts(path: Path) -> dict[str, Any]:
    """The parts of the result file. Empty if the file does not exist."""
    parts: dict[str, Any] = json.loads(path.read_text("utf-8"))["parts"] if path.exists() else {}
    return parts


def is_measured(part: dict[str, Any] | None, args: argparse.Namespace) -> bool:
    """Whether the result has the part from this commit with the same effort."""
    if part is None or part["effort"]["is_quick"] != args.quick:
        return False
    # `+` marks modified files. The result file itself is one of them during a run, so the mark is ignored.
    return str(part["commit"]).rstrip("+") == commit().rstrip("+")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write JSON and Markdown after every part, and print the tables. Returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    args = parser.parse_args(arguments)
    output = args.output or (QUICK_RESULT if args.quick else RESULT)
    try:
        bundle = load_bundle(args.bundle or find_bundles(load_settings())[0])
    except (BundleError, SettingsError) as error:
        parser.exit(2, "".join(f"{problem}\n" for problem in error.problems))
    compile_sources(args.python)
    # SIGTERM raises SystemExit, so that the servers are stopped before this process ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    parts = read_parts(output)
    with tempfile.TemporaryDirectory() as folder:
        context = context_of(args, bundle, Path(folder))
        for part in parts.values():
            if is_measured(part, args):
                # CTranslate2's fastest settings, which the search of an earlier part found.
                context.choices.update(read_choices(part["choices"]))
        for name in args.part or PARTS:
            if is_measured(parts.get(name), args) and not args.again:
                print_progress(f"{name}: in the result file already; --again measures it again")
                continue
            print_progress(f"{name} ...")
            parts[name] = rounded(measure_part(PARTS[name], context, arguments))
            print_progress(f"{name}: {parts[name]['seconds']:.0f} s")
            parts = {part: parts[part] for part in PARTS if part in parts}
            write({"parts": parts}, output)
    print(render({"parts": parts}))
    return 0


def context_of(args: argparse.Namespace, bundle: Bundle, folder: Path) -> Context:
    """The state that the parts share, from the options."""
    return Context(
        bundle=bundle,
        folder=folder,
        effort=QUICK if args.quick else FULL,
        python=args.python,
        data=args.data,
        with_libretranslate=not args.no_libretranslate,
        marian_programs=args.marian_programs and args.marian_programs.resolve(),
        price_per_hour=args.price_per_hour,
    )


def write(result: dict[str, Any], path: Path) -> None:
    """Write JSON, and Markdown beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", "utf-8")
    path.with_suffix(".md").write_text(render(result), "utf-8")


if __name__ == "__main__":
    sys.exit(main())
