"""The decoding options as arguments of a command: named as in the HTTP API, with dashes. The server checks them."""

from __future__ import annotations

import argparse
import math
from typing import Any

from transduce.errors import CommandError, ExitCode

WHOLE_NUMBERS = {
    "beam_size": "hypotheses kept alive; 1 is greedy",
    "min_target_length": "fewest subwords of a sentence's translation",
    "max_target_length": "most subwords of a sentence's translation",
    "no_repeat_ngram_size": "no so many subwords in a row stand in a translation twice",
}
NUMBERS = {
    "patience": "beam size times this many complete hypotheses end the search",
    "coverage_penalty": "weight of the source that no attention was paid to",
    "min_target_ratio": "fewest subwords, as a multiple of the source's",
    "max_target_ratio": "most subwords, as a multiple of the source's",
    "repetition_penalty": "factor of the log-probability of what was said before",
}
SAMPLING = {
    "temperature": "draw each subword by its probability; below 1 what is probable becomes more so",
    "top_p": "draw from the fewest that reach this probability together",
}
SAMPLING_WHOLE_NUMBERS = {
    "top_k": "draw from the N most probable",
    "seed": "the same seed draws the same again",
}
# What has more to tell than one text a line.
JSON_ONLY = {
    "num_hypotheses": "translations of each line",
    "num_alternatives": "subwords that could have stood in each place",
}
JSON_ONLY_FLAGS = {
    "token_scores": "each subword's log-probability",
    "alignment": "the part of the line that each subword comes from",
    "attention": "and its weight for every subword of the line; needs --alignment",
}


def add_decoding_arguments(parser: argparse.ArgumentParser) -> None:
    """Add them, and --json, as a group of their own."""
    group = parser.add_argument_group(
        "decoding options", "as in docs/http-api.md; what is not given is the server's default"
    )
    add = group.add_argument
    for name, text in WHOLE_NUMBERS.items():
        add(flag(name), type=positive, metavar="N", help=text)
    for name, text in NUMBERS.items():
        add(flag(name), type=number, metavar="X", help=text)
    add("--early-stop", choices=("first", "bound"), help="when a search ends")
    add(
        "--length-penalty",
        type=length_penalty,
        metavar="[FORMULA:]ALPHA",
        help="exponent, with the formula wu or power before it",
    )
    for name, text in SAMPLING.items():
        add(flag(name), type=number, metavar="X", help=text)
    for name, text in SAMPLING_WHOLE_NUMBERS.items():
        add(flag(name), type=int, metavar="N", help=text)
    add("--loop-guard", action="store_true", help="end what goes round in circles and decode it once more")
    add("--suppress", action="append", metavar="TEXT", help="no translation contains it; may be repeated")
    add("--target-prefix", metavar="TEXT", help="what the translation of each line begins with")
    add("--json", action="store_true", help="write all that the server tells of a line, as one line of JSON")
    for name, text in JSON_ONLY.items():
        add(flag(name), type=positive, metavar="N", help=f"{text}; with --json")
    for name, text in JSON_ONLY_FLAGS.items():
        add(flag(name), action="store_true", help=f"{text}; with --json")


def decoding_options(args: argparse.Namespace) -> dict[str, Any]:
    """Those that were given, as fields of a request.

    Raises:
        CommandError: one was given that only --json can show.
    """
    given = {name: value for name, value in vars(args).items() if value is not None and value is not False}
    json_only = [name for name in (*JSON_ONLY, *JSON_ONLY_FLAGS) if name in given]
    if json_only and not args.json:
        raise CommandError(f"{flag(json_only[0])} needs --json", exit_code=ExitCode.USAGE)
    names = (*WHOLE_NUMBERS, *NUMBERS, "early_stop", "length_penalty", "loop_guard", "suppress", *json_only)
    options = {name: given[name] for name in names if name in given}
    sampling = {name: given[name] for name in (*SAMPLING, *SAMPLING_WHOLE_NUMBERS) if name in given}
    return {**options, "sampling": sampling} if sampling else options


def flag(name: str) -> str:
    """The argument of a field."""
    return "--" + name.replace("_", "-")


def length_penalty(text: str) -> float | dict[str, Any]:
    """ALPHA, or FORMULA:ALPHA.

    Raises:
        argparse.ArgumentTypeError: it is neither.
    """
    formula, separator, alpha = text.rpartition(":")
    return {"formula": formula, "alpha": number(alpha)} if separator else number(alpha)


def number(text: str) -> float:
    """A number.

    Raises:
        argparse.ArgumentTypeError: it is none, or not finite.
    """
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return found


def positive(text: str) -> int:
    """A whole number from 1.

    Raises:
        argparse.ArgumentTypeError: it is not.
    """
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)
