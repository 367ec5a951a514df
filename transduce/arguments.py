"""The decoding options as command-line arguments, named as in the HTTP API with dashes.

The server checks most ranges.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable
from typing import Any

from transduce.client.wire import is_server_url
from transduce.errors import CommandError, ExitCode

WHOLE_NUMBERS = {
    "beam_size": "beam size; 1 is greedy search",
    "min_target_length": "minimum length of a sentence's translation, in subwords",
    "max_target_length": "maximum length of a sentence's translation, in subwords",
    "no_repeat_ngram_size": "no sequence of N subwords occurs twice in a translation",
}
NUMBERS = {
    "patience": "the search ends when beam size times X hypotheses are complete",
    "coverage_penalty": "weight of the penalty for source subwords with little attention",
    "min_target_ratio": "minimum length as a multiple of the source's subwords",
    "max_target_ratio": "maximum length as a multiple of the source's subwords",
    "repetition_penalty": "factor of the log-probability of subwords that the translation already has",
}
SAMPLING = {
    "temperature": "sample tokens; a value below 1 favours the more probable ones",
    "top_p": "sample from the smallest set of tokens with this total probability",
}
SAMPLING_WHOLE_NUMBERS = {
    "top_k": "sample from the N most probable tokens",
    "seed": "sample tokens with this seed; the same seed gives the same result",
}
# Options that 0 turns off.
OFF_AT_ZERO = frozenset({"min_target_length", "no_repeat_ngram_size", "num_alternatives"})
# Options whose results only --json shows.
JSON_ONLY = {
    "num_hypotheses": "number of translations of each line",
    "num_alternatives": "number of alternative tokens at each position",
}
JSON_ONLY_FLAGS = {
    "token_scores": "each subword's log-probability",
    "alignment": "the part of the line that each subword is aligned with",
    "attention": "each subword's attention weights on the line's subwords; needs --alignment",
}


def add_decoding_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the decoding options and --json as an argument group."""
    group = parser.add_argument_group(
        "decoding options", "as in docs/http-api.md; an omitted option has the server's default"
    )
    add = group.add_argument
    for name, text in WHOLE_NUMBERS.items():
        add(flag(name), type=_type_of(name), metavar="N", help=text)
    for name, text in NUMBERS.items():
        add(flag(name), type=number, metavar="X", help=text)
    add("--early-stop", choices=("first", "bound"), help="stopping rule of beam search")
    add(
        "--length-penalty",
        type=length_penalty,
        metavar="[FORMULA:]ALPHA",
        help="exponent of the length penalty, optionally after its formula (wu or power)",
    )
    for name, text in SAMPLING.items():
        add(flag(name), type=number, metavar="X", help=text)
    for name, text in SAMPLING_WHOLE_NUMBERS.items():
        add(flag(name), type=int, metavar="N", help=text)
    add(
        "--loop-guard",
        action="store_true",
        help="stop a translation that repeats itself, and decode it again without repetitions",
    )
    add(
        "--suppress",
        action="append",
        metavar="TEXT",
        help="text that no translation may contain; may be repeated",
    )
    add("--target-prefix", metavar="TEXT", help="text that the translation of each line begins with")
    add(
        "--json", action="store_true", help="write the server's full result for each line as one line of JSON"
    )
    for name, text in JSON_ONLY.items():
        add(flag(name), type=_type_of(name), metavar="N", help=f"{text}; with --json")
    for name, text in JSON_ONLY_FLAGS.items():
        add(flag(name), action="store_true", help=f"{text}; with --json")


def decoding_options(args: argparse.Namespace) -> dict[str, Any]:
    """The options on the command line, except --target-prefix, as fields of a request.

    Raises:
        CommandError: an option needs --json.
    """
    chosen = {name: value for name, value in vars(args).items() if value is not None and value is not False}
    json_only = [name for name in (*JSON_ONLY, *JSON_ONLY_FLAGS) if name in chosen]
    if json_only and not args.json:
        raise CommandError(f"{flag(json_only[0])} needs --json", exit_code=ExitCode.USAGE)
    names = (*WHOLE_NUMBERS, *NUMBERS, "early_stop", "length_penalty", "loop_guard", "suppress", *json_only)
    options = {name: chosen[name] for name in names if name in chosen}
    sampling = {name: chosen[name] for name in (*SAMPLING, *SAMPLING_WHOLE_NUMBERS) if name in chosen}
    return {**options, "sampling": sampling} if sampling else options


def flag(name: str) -> str:
    """The command-line argument of a request field."""
    return "--" + name.replace("_", "-")


def length_penalty(text: str) -> float | dict[str, Any]:
    """Parse ALPHA or FORMULA:ALPHA.

    Raises:
        argparse.ArgumentTypeError: ALPHA is not a finite number. The server checks FORMULA.
    """
    formula, separator, alpha = text.rpartition(":")
    return {"formula": formula, "alpha": number(alpha)} if separator else number(alpha)


def number(text: str) -> float:
    """Parse a finite number.

    Raises:
        argparse.ArgumentTypeError: the text is not a number, or not finite.
    """
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number")
    return found


def default_url() -> str:
    """The URL of the server: TRANSDUCE_URL, or this machine's port 8000 if it is unset or empty."""
    return os.environ.get("TRANSDUCE_URL") or "http://127.0.0.1:8000"


def server_url(text: str) -> str:
    """Parse the URL of a server.

    Raises:
        argparse.ArgumentTypeError: the text is not such a URL.
    """
    if not is_server_url(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form http://host:port")
    return text


def above_zero(text: str) -> float:
    """Parse a finite number above 0.

    Raises:
        argparse.ArgumentTypeError: the text is not such a number.
    """
    value = number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not above 0")
    return value


def not_negative(text: str) -> float:
    """Parse a finite number of at least 0.

    Raises:
        argparse.ArgumentTypeError: the text is not such a number.
    """
    value = number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is negative")
    return value


def from_zero(text: str) -> int:
    """Parse a whole number of at least 0.

    Raises:
        argparse.ArgumentTypeError: the text is not such a number.
    """
    return _whole_number(text, 0)


def positive(text: str) -> int:
    """Parse a whole number of at least 1.

    Raises:
        argparse.ArgumentTypeError: the text is not such a number.
    """
    return _whole_number(text, 1)


def _type_of(name: str) -> Callable[[str], int]:
    return from_zero if name in OFF_AT_ZERO else positive


def _whole_number(text: str, least: int) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= least):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
    return int(text)
