"""Command-line arguments that several commands share: training data, translation directions, whole numbers."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from model.corpus import Direction, Pair
    from model.lexicon import Entry

DATA_HELP = (
    "FILE.tsv[.gz|.xz], a folder of such files, or two parallel files SOURCE:TARGET; "
    "the columns of a TSV file are source and target, or domain, source and target"
)


def domain_weight(text: str) -> tuple[str, float]:
    """Parse `NAME=WEIGHT` into a domain and its weight, finite and at least 0. Raises ArgumentTypeError."""
    domain, separator, number = text.partition("=")
    weight = number_or_nan(number)
    if not separator or not domain or not 0 <= weight < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=WEIGHT with a finite weight of at least 0")
    return domain, weight


def positive(text: str) -> int:
    """Parse a whole number of at least 1. Raises ArgumentTypeError."""
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def not_negative(text: str) -> int:
    """Parse a whole number of at least 0. Raises ArgumentTypeError."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def number_from(least: float) -> Callable[[str], float]:
    """A parser of finite numbers of at least `least`, which raises ArgumentTypeError for other texts."""

    def parse(text: str) -> float:
        found = number_or_nan(text)
        if not least <= found < math.inf:
            raise argparse.ArgumentTypeError(f"{text!r} is not a finite number of at least {least:g}")
        return found

    return parse


def share(text: str) -> float:
    """Parse a number from 0 to 1. Raises ArgumentTypeError."""
    found = number_or_nan(text)
    if not 0 <= found <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 1")
    return found


def number_or_nan(text: str) -> float:
    """The number, or NaN if the text is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def add_data_arguments(parser: argparse.ArgumentParser, *, is_required: bool = True) -> None:
    """Add `--data` and `--domain`: the files with sentence pairs, and the weight of each domain.

    is_required: whether the command fails without `--data`.
    """
    parser.add_argument("--data", required=is_required, action="append", metavar="FILES", help=DATA_HELP)
    parser.add_argument(
        "--domain",
        type=domain_weight,
        action="append",
        default=[],
        metavar="NAME=WEIGHT",
        help="how often each pair of this domain is used (in training: per epoch); 0 leaves it out (default: 1)",
    )


def files_of(specifications: list[str]) -> list[Path]:
    """The files that `--data` names. The TSV files of a folder are sorted by name.

    Raises CorpusError for a folder without TSV files.
    """
    from model.corpus import tsv_files

    named = [Path(name) for specification in specifications for name in specification.split(":", 1)]
    return [file for path in named for file in (tsv_files(path) if path.is_dir() else [path])]


def pairs_of(specifications: list[str]) -> Iterator[Pair]:
    """The sentence pairs of all files that `--data` names, in the order of `specifications`.

    Raises CorpusError before the first pair is read: if `check_file` refuses a file, or if a folder has no TSV file.
    """
    from model.corpus import check_file, read_data

    for path in files_of(specifications):
        check_file(path)
    return chain.from_iterable(read_data(specification) for specification in specifications)


def add_direction_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--tag` and `--reverse-tag`, which select the directions of translation."""
    parser.add_argument(
        "--tag",
        metavar="SUBWORD",
        help="subword before each source; it names the target language, such as '>>de<<'",
    )
    parser.add_argument(
        "--reverse-tag",
        metavar="SUBWORD",
        help="also use the direction from the targets of the data to its sources, with this subword before each source",
    )


def add_one_way_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--one-way` and `--one-way-reverse`: sentence pairs that the model learns in one direction only."""
    parser.add_argument(
        "--one-way",
        action="append",
        default=[],
        metavar="FILES",
        help="more pairs, such as back-translations, in the format of --data; the model learns them only "
        "from source to target, with --tag before the source",
    )
    parser.add_argument(
        "--one-way-reverse",
        action="append",
        default=[],
        metavar="FILES",
        help="as --one-way, with --reverse-tag before the source; its sources are in the language of the targets of "
        "--data",
    )


def one_way_directions(directions: Sequence[Direction]) -> tuple[Direction, Direction]:
    """The direction of `--one-way` and the direction of `--one-way-reverse`.

    `is_reversed` is False in both, because the model reads the source of a pair in the files of both options.
    directions: the result of directions_of or of with_lexicon.
    """
    import dataclasses

    return directions[0], dataclasses.replace(directions[-1], is_reversed=False)


def one_way_pairs(
    args: argparse.Namespace, directions: Sequence[Direction]
) -> Iterator[tuple[Pair, Direction]]:
    """The sentence pairs of `--one-way` and then of `--one-way-reverse`, each with its direction.

    Raises CorpusError as `pairs_of`, and for --one-way-reverse without --reverse-tag.
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
    """The directions that `--tag` and `--reverse-tag` select. The one from source to target comes first."""
    from model.corpus import Direction

    reverse = [] if args.reverse_tag is None else [Direction(args.reverse_tag, is_reversed=True)]
    return [Direction(args.tag), *reverse]


def with_lexicon(directions: Sequence[Direction], entries: Sequence[Entry]) -> list[Direction]:
    """Copies of the directions. Each has a lexicon from its source words to their translations."""
    import dataclasses

    from model.lexicon import translations

    return [
        dataclasses.replace(direction, lexicon=translations(entries, is_reversed=direction.is_reversed))
        for direction in directions
    ]
