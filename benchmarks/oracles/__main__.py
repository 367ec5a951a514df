"""Compare the engine with CTranslate2 and Hugging Face's models on the same weights and sentences.

Two models run in fp32. One is a bundle's model, which is pre-norm. The other is a small post-norm model, as Hugging
Face's Marian models are. It is trained on an artificial language within a minute. Both run with beam sizes of 1, 4 and
8, without a length penalty. A beam search runs with both of Transduce's early-stop rules. PyTorch scores every answer
that differs. The exit code is 1 if fewer than 99 % of the answers are equal in a comparison, if a difference is
unexplained, or if a score is not the teacher-forced score.

    python -m benchmarks.oracles --data newstest2013.tsv.xz tatoeba2020.tsv.xz --json benchmarks/results/oracles.json
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from benchmarks.machine import describe_run

BUNDLE = Path("bundles/en-de")
PEERS = ("ctranslate2", "transformers", "torch")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add = parser.add_argument
    add("--data", nargs="+", required=True, help="parallel text: TSV files, plain, .gz or .xz")
    add("--bundle", type=Path, default=BUNDLE, help=f"bundle with weights and tokenizer (default: {BUNDLE})")
    add(
        "--num-sentences",
        type=int,
        default=1000,
        help="sentences, drawn from all of the data (default: 1000)",
    )
    add("--max-target-length", type=int, default=120, help="length limit in subwords (default: 120)")
    add("--toy-steps", type=int, default=800, help="training updates of the post-norm model (default: 800)")
    add("--num-threads", type=int, default=2, help="threads of each engine (default: 2)")
    add("--json", type=Path, help="write the result to this file, and the table beside it as .md")


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
        parser.error(f"not installed: {', '.join(missing)}. The extra `bench` installs them.")
    from benchmarks.oracles.measure import measure
    from benchmarks.oracles.report import has_passed, table

    command_line = sys.argv[1:] if arguments is None else list(arguments)
    # The recorded command has data files without their folder, which differs between machines.
    shown = [Path(word).name if word in args.data else word for word in command_line]
    run = describe_run("benchmarks.oracles", shown)
    found = measure(args)
    result = {
        **run,
        "versions": run["versions"] | {name: metadata.version(name) for name in PEERS},
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
