"""The subcommand `shortlist`, which adds a shortlist to a bundle. The libraries are imported only when it runs."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from model.data_arguments import add_data_arguments, number_or_nan, pairs_of, positive

if TYPE_CHECKING:
    from app.bundle import Manifest

# Defaults of --best and --frequent. If larger, a decoder step takes longer. If smaller, translations get worse.
NUM_BEST, NUM_FREQUENT = 200, 100
# Pairs of the sample. If larger, the command takes longer. `export.shortlist.MAX_COMBINATIONS` limits the memory.
MAX_PAIRS = 200_000
# Default of --min-log-probability, in nats. If larger, more sentences are decoded twice. If smaller, more bad
# translations are kept.
MIN_LOG_PROBABILITY = -1.0


def add_shortlist_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `transduce shortlist`."""
    add = parser.add_argument
    add(
        "bundle",
        type=Path,
        metavar="BUNDLE",
        help="the bundle, which is replaced unless there is an --output",
    )
    add_data_arguments(parser)
    add("--output", type=Path, metavar="DIR", help="write the bundle with its shortlist here")
    add(
        "--source",
        metavar="LANGUAGE",
        help="language of the sources of --data (default: the source of the bundle's first pair)",
    )
    add(
        "--target",
        metavar="LANGUAGE",
        help="language of the targets of --data (default: the target of the bundle's first pair)",
    )
    add(
        "--one-way",
        action="store_true",
        help="learn only the direction from --source to --target, and not the reverse direction",
    )
    add(
        "--best",
        type=positive,
        default=NUM_BEST,
        metavar="N",
        help="likely target subwords of each source subword (default: %(default)s)",
    )
    add(
        "--frequent",
        type=positive,
        default=NUM_FREQUENT,
        metavar="N",
        help="frequent target subwords that every shortlist has (default: %(default)s)",
    )
    add(
        "--max-pairs",
        type=positive,
        default=MAX_PAIRS,
        metavar="N",
        help="size of the sample of the pairs; fewer are used if they would take more than about 4 GB of memory "
        "(default: %(default)s)",
    )
    add(
        "--min-log-probability",
        type=_log_probability,
        metavar="X",
        help="decode a sentence again with the whole vocabulary if the mean log-probability of its subwords is below "
        "X. X is for all directions of the bundle. If X has an exponent, put '=' before it: "
        f"--min-log-probability=-5e-1 (default: X of the bundle's shortlists, or {MIN_LOG_PROBABILITY})",
    )


def _log_probability(text: str) -> float:
    """Parse a finite number of at most 0. Raises ArgumentTypeError."""
    number = number_or_nan(text)
    if not -math.inf < number <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at most 0")
    return number


def run_shortlist(args: argparse.Namespace) -> int:
    """Learn shortlists from sentence pairs, write the bundle with them, and return 0.

    The bundle's tables of other directions are kept.
    """
    from app.bundle import load_bundle
    from app.bundle_tokenizers import source_tokenizer
    from app.shortlist_file import ShortlistTable
    from app.text.tokenizer import Tokenizer
    from export.bundle_shortlist import check_copy, tables_of, write_with_shortlist
    from export.shortlist import MAX_SUBWORDS, ShortlistSizes, encode_pairs, learn_table
    from model.cli import weighted
    from model.corpus import CorpusError, sample_pairs

    bundle, output = load_bundle(args.bundle), args.output or args.bundle
    check_copy(bundle, output)
    directions = _directions(args, bundle.manifest)
    pairs = sample_pairs(weighted(pairs_of(args.data), dict(args.domain)), args.max_pairs)
    paths = bundle.file("source.spm"), bundle.file("target.spm")
    tokenizers = source_tokenizer(bundle), Tokenizer(paths[1])
    learned: dict[int, ShortlistTable] = {}
    for index, is_reversed in directions.items():
        encoded = encode_pairs(pairs, *tokenizers, is_reversed=is_reversed)
        if not encoded.sentences:
            raise CorpusError("no pair has a usable length on both sides")
        pair = bundle.manifest.language_pairs[index]
        print(
            f"{pair.source}-{pair.target}: {len(encoded.sentences):,} pairs used, {encoded.num_skipped:,} skipped "
            f"(a side is empty, longer than {MAX_SUBWORDS} subwords or cannot be encoded), "
            f"{encoded.num_left_out:,} left out to limit memory",
            file=sys.stderr,
        )
        sizes = ShortlistSizes(args.best, args.frequent)
        learned[index] = learn_table(encoded.sentences, source=paths[0], target=paths[1], sizes=sizes)
    least = args.min_log_probability
    if least is None:
        before = bundle.manifest.shortlist
        least = MIN_LOG_PROBABILITY if before is None else before.min_log_probability
    write_with_shortlist(bundle, output, {**tables_of(bundle), **learned}, least)
    for index, table in learned.items():
        pair, mean = bundle.manifest.language_pairs[index], len(table.ids) / table.vocab_size
        print(
            f"{output}: {pair.source}-{pair.target}: {len(table.always)} subwords in each shortlist, and "
            f"{mean:.1f} more on average for each source subword",
            file=sys.stderr,
        )
    if bundle.manifest.scores:
        print(
            f"{output}: its model card has the scores without this shortlist: `transduce verify --data` measures both",
            file=sys.stderr,
        )
    return 0


def _directions(args: argparse.Namespace, manifest: Manifest) -> dict[int, bool]:
    """The index of each direction of the manifest to learn, and whether the pairs are reversed for it."""
    from export.output_folder import ExportError

    first = manifest.language_pairs[0]
    source, target = args.source or first.source, args.target or first.target
    wanted = {(source, target): False} if args.one_way else {(target, source): True, (source, target): False}
    found = {
        index: wanted[pair.source, pair.target]
        for index, pair in enumerate(manifest.language_pairs)
        if (pair.source, pair.target) in wanted
    }
    if not found:
        between = f"from {source} to {target}" if args.one_way else f"between {source} and {target}"
        raise ExportError(f"the bundle does not translate {between}")
    return found
