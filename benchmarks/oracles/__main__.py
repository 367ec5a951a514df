"""Compares the engine with CTranslate2 and Hugging Face's models on the same weights and sentences.

Two models in fp32 are compared: a bundle's, which is pre-norm, and a small one of a made-up language, which is trained
within a minute and is post-norm, as Marian models are. Each runs with beams of 1, 4 and 8, no length penalty, and both
of our rules for the end of a beam. PyTorch judges every answer that differs. The exit code is 1 if fewer than 99 % are
the same, a difference is unexplained, or a score is not the teacher-forced one.

    python -m benchmarks.oracles --data newstest2013.tsv.xz tatoeba2020.tsv.xz --json benchmarks/results/oracles.json
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shlex
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from benchmarks.machine import commit, describe_machine, versions

BUNDLE = Path("bundles/en-de")
PEERS = ("ctranslate2", "transformers", "torch")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add = parser.add_argument
    add("--data", nargs="+", required=True, help="parallel text: TSV files, plain, .gz or .xz")
    add("--bundle", type=Path, default=BUNDLE, help=f"its weights and its tokenizer (default: {BUNDLE})")
    add("--num-sentences", type=int, default=1000, help="drawn from all of the data (default: 1000)")
    add("--max-target-length", type=int, default=120, help="in subwords (default: 120)")
    add("--toy-steps", type=int, default=800, help="updates of the post-norm model (default: 800)")
    add("--num-threads", type=int, default=2, help="of each engine (default: 2)")
    add("--json", type=Path, help="write the result there")


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print a table, write JSON; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.oracles",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    args = parser.parse_args(arguments)
    if missing := [name for name in PEERS if importlib.util.find_spec(name) is None]:
        parser.error(f"this Python has no {', '.join(missing)}: the extra `bench` brings them")
    from benchmarks.oracles.measure import measure
    from benchmarks.oracles.report import has_passed, table

    found = measure(args)
    given = sys.argv[1:] if arguments is None else list(arguments)
    result = {
        # Data is named without its folder, which differs between machines.
        "command": shlex.join(
            [
                "python",
                "-m",
                "benchmarks.oracles",
                *(Path(word).name if word in args.data else word for word in given),
            ]
        ),
        "commit": commit(),
        "machine": describe_machine(),
        "versions": versions(sys.executable) | {name: metadata.version(name) for name in PEERS},
        **found,
    }
    print(table(found["comparisons"]))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
        args.json.with_suffix(".md").write_text(
            f"# Oracles\n\n```\n{result['command']}\n```\n\n{table(found['comparisons'])}\n", "utf-8"
        )
    return 0 if has_passed(result) else 1


if __name__ == "__main__":
    sys.exit(main())
