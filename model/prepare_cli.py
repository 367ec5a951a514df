"""The subcommand prepare, which prepares parallel text for training."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from model.data_arguments import add_data_arguments, number_from, pairs_of, positive, share

if TYPE_CHECKING:
    from model.corpus import Pair
    from model.pair_filter import Rules
    from model.prepare_report import Report
    from model.progress import Progress

REPORT = "report.json"
# Reasons that can be switched off, as `model.pair_filter.Reason` names them.
KEEP_CHOICES = (
    "broken",
    "copy",
    "duplicate",
    "language",
    "length",
    "near-copy",
    "near-duplicate",
    "ratio",
    "script",
)
PROGRESS_EVERY = 1000


def add_prepare_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `transduce prepare`."""
    add_data_arguments(parser)
    add = parser.add_argument
    add("--source", required=True, metavar="LANG", help="language of the sources, such as en")
    add("--target", required=True, metavar="LANG", help="language of the targets, such as de")
    add(
        "--output", required=True, type=Path, metavar="DIR", help="a new folder for the shards and the report"
    )
    add(
        "--exclude",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="drop pairs with a sentence of this test set, even if case, punctuation, symbols or spaces differ; "
        "may be repeated",
    )
    add(
        "--max-characters",
        type=positive,
        default=600,
        metavar="N",
        help="maximum characters of either side (default: %(default)s)",
    )
    add(
        "--max-ratio",
        type=number_from(0),
        default=2.5,
        metavar="X",
        help="maximum characters of a side: X times the other side's, plus 15 (default: %(default)s)",
    )
    add(
        "--max-copied",
        type=share,
        default=0.75,
        metavar="X",
        help="largest share of the target's words that are also in the source, 0-1 (default: %(default)s)",
    )
    add("--check-numbers", action="store_true", help="drop pairs whose sides have different digits")
    add(
        "--keep",
        action="append",
        default=[],
        choices=KEEP_CHOICES,
        metavar="REASON",
        help=f"do not drop for this reason: {', '.join(KEEP_CHOICES)}; may be repeated",
    )
    add("--seed", type=int, default=1, help="seed of the sampling by domain (default: %(default)s)")
    add(
        "--shard-pairs",
        type=positive,
        default=250_000,
        metavar="N",
        help="maximum pairs in a file (default: %(default)s)",
    )
    add(
        "--compression", choices=("gz", "xz"), default="gz", help="xz: smaller, slower (default: %(default)s)"
    )


def run_prepare(args: argparse.Namespace) -> int:
    """Write shards and a report.

    Raises CorpusError if the text cannot be read, --domain names a domain that no pair has, no pair is left, or the
    output is not a new or empty folder. Raises OSError if the output cannot be written.
    """
    from model.prepare import Preparation, excluded_hashes, prepare
    from model.prepare_report import Report
    from model.progress import Progress
    from model.shards import ShardWriter

    report = Report()
    writer = ShardWriter(args.output, pairs_per_shard=args.shard_pairs, compression=args.compression)
    preparation = Preparation(_rules(args), dict(args.domain), excluded_hashes(args.exclude), args.seed)
    with writer:
        with Progress("prepare", unit="pairs") as progress:
            writer.write(prepare(_counted(pairs_of(args.data), progress, report), preparation, report))
            progress.advance(0, f"{report.num_dropped:,} dropped")
        content = {"options": _options(args), "shards": writer.shard_names, **report.to_json()}
        writer.write_file(REPORT, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    for note in report.notes:
        print(note, file=sys.stderr)
    print(f"{report.table()}\n\n{args.output}: {len(writer.shard_names)} files and {REPORT}", file=sys.stderr)
    return 0


def _rules(args: argparse.Namespace) -> Rules:
    """The rules that the arguments name."""
    from model.pair_filter import Reason, Rules

    return Rules(
        source=args.source,
        target=args.target,
        max_characters=args.max_characters,
        max_ratio=args.max_ratio,
        max_copied=args.max_copied,
        checks_numbers=args.check_numbers,
        ignored=frozenset(map(Reason, args.keep)),
    )


def _counted(pairs: Iterable[Pair], progress: Progress, report: Report) -> Iterator[Pair]:
    """Yield the pairs; update the progress every PROGRESS_EVERY pairs."""
    number = 0
    for number, pair in enumerate(pairs, 1):
        yield pair
        if number % PROGRESS_EVERY == 0:
            progress.advance(PROGRESS_EVERY, f"{report.num_dropped:,} dropped")
    progress.advance(number % PROGRESS_EVERY)


def _options(args: argparse.Namespace) -> dict[str, object]:
    """The options that the output depends on, for the report."""
    names = (
        "data domain source target exclude max_characters max_ratio max_copied check_numbers keep seed shard_pairs "
        "compression"
    )
    options = {name: getattr(args, name) for name in names.split()}
    return {**options, "domain": dict(args.domain), "exclude": list(map(str, args.exclude))}
