"""Command-line arguments that several training commands share. They name the text and the translation directions."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from model.corpus import Direction, Pair
    from model.lexicon import Entry

DATA_HELP = (
    "FILE.tsv[.gz|.xz] with source and target, or domain, source and target; a folder of such files; "
    "or SOURCE:TARGET, two files"
)


def weights_argument(text: str) -> tuple[str, float]:
    """Parse `NAME=WEIGHT`. Raises ArgumentTypeError."""
    name, separator, weight = text.partition("=")
    try:
        value = float(weight)
    except ValueError:
        value = -1.0
    if not separator or not name or value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=WEIGHT with a weight of at least 0")
    return name, value


def data_arguments(parser: argparse.ArgumentParser, *, is_required: bool = True) -> None:
    """Arguments that select the text to read and the pairs to keep."""
    parser.add_argument("--data", required=is_required, action="append", metavar="FILES", help=DATA_HELP)
    parser.add_argument(
        "--domain",
        type=weights_argument,
        action="append",
        default=[],
        metavar="NAME=WEIGHT",
        help="how often an epoch holds a pair of this domain; 0 leaves it out (default: 1)",
    )


def files_of(specifications: list[str]) -> list[Path]:
    """Return the files that `--data` names, those of a folder by name. Raises CorpusError for an empty folder."""
    from model.corpus import tsv_files

    named = [Path(name) for specification in specifications for name in specification.split(":", 1)]
    return [file for path in named for file in (tsv_files(path) if path.is_dir() else [path])]


def pairs_of(specifications: list[str]) -> Iterator[Pair]:
    """All pairs of all files, in the given order. Raises CorpusError at once if a file does not exist."""
    from model.corpus import CorpusError, read_data

    for path in files_of(specifications):
        if not path.is_file():
            raise CorpusError(f"{path} does not exist")
    return chain.from_iterable(read_data(specification) for specification in specifications)


def direction_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments that select the directions of translation."""
    parser.add_argument(
        "--tag",
        metavar="SUBWORD",
        help="put before each source to name the target language, such as '>>de<<'",
    )
    parser.add_argument(
        "--reverse-tag",
        metavar="SUBWORD",
        help="also train from the second column to the first, with this subword before each source",
    )


def one_way_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments for text that is trained in one direction only."""
    parser.add_argument(
        "--one-way",
        action="append",
        default=[],
        metavar="FILES",
        help="more --data, trained from the first column to the second only, with --tag; such as back-translations",
    )
    parser.add_argument(
        "--one-way-reverse",
        action="append",
        default=[],
        metavar="FILES",
        help="the same with --reverse-tag: the first column is in the language of the second column of --data",
    )


def one_way_directions(directions: Sequence[Direction]) -> tuple[Direction, Direction]:
    """The directions of `--one-way` and of `--one-way-reverse`. Both read a pair from its first column to its second.

    directions: the result of directions_of, with or without lexicons.
    """
    import dataclasses

    return directions[0], dataclasses.replace(directions[-1], is_reversed=False)


def one_way_pairs(
    args: argparse.Namespace, directions: Sequence[Direction]
) -> Iterator[tuple[Pair, Direction]]:
    """The pairs of `--one-way` and `--one-way-reverse`, each with its direction.

    Raises CorpusError for a file that does not exist, and for --one-way-reverse without --reverse-tag.
    """
    from model.corpus import CorpusError

    if args.one_way_reverse and args.reverse_tag is None:
        raise CorpusError("--one-way-reverse needs --reverse-tag")
    forward, backward = one_way_directions(directions)
    return chain(
        ((pair, forward) for pair in pairs_of(args.one_way)),
        ((pair, backward) for pair in pairs_of(args.one_way_reverse)),
    )


def directions_of(args: argparse.Namespace) -> list[Direction]:
    """The directions that the arguments name. The direction of the data's columns comes first."""
    from model.corpus import Direction

    reverse = [] if args.reverse_tag is None else [Direction(args.reverse_tag, is_reversed=True)]
    return [Direction(args.tag), *reverse]


def with_lexicon(directions: Sequence[Direction], entries: Sequence[Entry]) -> list[Direction]:
    """The directions, each with the translations of its source words."""
    import dataclasses

    from model.lexicon import translations

    return [
        dataclasses.replace(one, lexicon=translations(entries, is_reversed=one.is_reversed))
        for one in directions
    ]
