"""Checks decoding options before anything is allocated. Errors name the fields that are wrong or contradict."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import NoReturn

from app.decoding.options import MAX_ALTERNATIVES, MAX_BEAM_SIZE, DecodingOptions, EarlyStop
from app.errors import InvalidRequest

MAX_ALPHA = 10.0
MAX_PENALTY = 10.0
MAX_RATIO = 100.0
MAX_SEED = 2**63 - 1
# The maximum number of tokens of all suppressed runs together. If larger, steps are slower, because each step compares
# every run with the end of each hypothesis.
MAX_SUPPRESSED_TOKENS = 1024

# Options that have no meaning with forced_target.
SEARCH_FIELDS = (
    "sampling",
    "target_prefix",
    "min_target_length",
    "min_target_ratio",
    "max_target_ratio",
    "suppress_sequences",
    "no_repeat_ngram_size",
    "repetition_penalty",
    "loop_guard",
)
# The default of each option. For SEARCH_FIELDS, patience and early_stop it is the value that turns the option off.
OFF = {field.name: field.default for field in fields(DecodingOptions)}


@dataclass(frozen=True)
class Bounds:
    """The limits that a model and its runner set for options.

    max_target_length: the maximum number of subwords of a target. max_beam_size: the number of cache rows; beam_size is
    at most min(MAX_BEAM_SIZE, max_beam_size).
    has_alignment: whether the model returns attention to the source.
    """

    vocab_size: int
    eos_id: int
    max_target_length: int
    max_beam_size: int = MAX_BEAM_SIZE
    has_alignment: bool = False


@functools.lru_cache(maxsize=64)
def check_options(options: DecodingOptions, bounds: Bounds) -> None:
    """Raise InvalidRequest for a value out of range or for two values that contradict each other.

    The error names the fields. `bounded_by_source` checks the options that depend on the source's length.
    """
    _check_ranges(options, bounds)
    _check_ids(options, bounds)
    _check_search(options)
    _check_lengths(options)
    if options.forced_target is not None:
        _check_forced(options)
    if not bounds.has_alignment and (options.coverage_penalty or options.alignment):
        field = "coverage_penalty" if options.coverage_penalty else "alignment"
        _refuse(field, "needs a model that returns attention, and this model does not")


def bounded_by_source(options: DecodingOptions, source_length: int) -> DecodingOptions:
    """The options with length ratios converted to lengths. Unchanged if they have no ratios.

    options: checked by `check_options`. source_length: subwords with the tag, without the end token. Raises
    InvalidRequest if the minimum length or the target_prefix is longer than the maximum.
    """
    if not options.min_target_ratio and options.max_target_ratio is None:
        return options
    shortest = options.min_target_length
    if options.min_target_ratio:
        shortest = max(shortest, math.ceil(options.min_target_ratio * source_length - 1e-9))
    longest = options.max_target_length
    if options.max_target_ratio is not None:
        longest = min(longest, max(1, math.floor(options.max_target_ratio * source_length + 1e-9)))
    bounded = replace(
        options,
        min_target_length=shortest,
        max_target_length=longest,
        min_target_ratio=0.0,
        max_target_ratio=None,
    )
    minimum = "min_target_length" if shortest == options.min_target_length else "min_target_ratio"
    maximum = "max_target_length" if longest == options.max_target_length else "max_target_ratio"
    _check_lengths(bounded, minimum=minimum, maximum=maximum)
    return bounded


def check_range(field: str, value: float, allowed: tuple[float, float], *, unit: str = "") -> None:
    """Raise InvalidRequest if the value is outside [low, high] or NaN."""
    low, high = allowed
    if not low <= value <= high:
        raise InvalidRequest(f"{field} must be {low} to {high}{unit}, and is {value}", field=field)


def _check_ranges(options: DecodingOptions, bounds: Bounds) -> None:
    longest = bounds.max_target_length
    check_range("beam_size", options.beam_size, (1, min(MAX_BEAM_SIZE, bounds.max_beam_size)))
    check_range("max_target_length", options.max_target_length, (1, longest), unit=" subwords")
    check_range("min_target_length", options.min_target_length, (0, longest), unit=" subwords")
    check_range("min_target_ratio", options.min_target_ratio, (0.0, MAX_RATIO))
    if options.max_target_ratio is not None:
        check_range("max_target_ratio", options.max_target_ratio, (0.01, MAX_RATIO))
    check_range("alpha", options.alpha, (0.0, MAX_ALPHA))
    check_range("coverage_penalty", options.coverage_penalty, (0.0, MAX_PENALTY))
    check_range("repetition_penalty", options.repetition_penalty, (0.1, MAX_PENALTY))
    check_range("no_repeat_ngram_size", options.no_repeat_ngram_size, (0, longest), unit=" subwords")
    check_range("patience", options.patience, (0.01, 10.0))
    check_range("num_alternatives", options.num_alternatives, (0, MAX_ALTERNATIVES))
    if options.sampling is not None:
        check_range("temperature", options.sampling.temperature, (0.01, 100.0))
        check_range("top_k", options.sampling.top_k, (0, bounds.vocab_size))
        check_range("top_p", options.sampling.top_p, (0.001, 1.0))
        check_range("seed", options.sampling.seed, (0, MAX_SEED))


def _check_ids(options: DecodingOptions, bounds: Bounds) -> None:
    """Check that ids are in the vocabulary, forced ids have no end token, and suppressed runs are not empty.

    Also checks the number of the suppressed runs' tokens.
    """
    num_suppressed = sum(len(run) for run in options.suppress_sequences)
    check_range("suppress_sequences", num_suppressed, (0, MAX_SUPPRESSED_TOKENS), unit=" tokens in all")
    for run in options.suppress_sequences:
        if not run:
            _refuse("suppress_sequences", "must not contain an empty sequence")
        _check_known("suppress_sequences", run, bounds)
    for field, ids in (
        ("target_prefix", options.target_prefix),
        ("forced_target", options.forced_target or ()),
    ):
        _check_known(field, ids, bounds)
        if bounds.eos_id in ids:
            _refuse(field, f"must not contain the end token ({bounds.eos_id})")


def _check_known(field: str, ids: Iterable[int], bounds: Bounds) -> None:
    for token in ids:
        check_range(field, token, (0, bounds.vocab_size - 1), unit=" (an id)")


def _check_search(options: DecodingOptions) -> None:
    """Check the number of hypotheses and the options of the strategy against each other."""
    if options.sampling is not None and options.beam_size != 1:
        _refuse("sampling", f"needs beam_size 1, and beam_size is {options.beam_size}")
    if options.sampling is not None:
        check_range("num_hypotheses", options.num_hypotheses, (1, MAX_BEAM_SIZE))
    elif not 1 <= options.num_hypotheses <= options.beam_size:
        text = f"must be 1 to beam_size ({options.beam_size}), and is {options.num_hypotheses}"
        _refuse("num_hypotheses", text)
    if options.beam_size == 1 and options.patience != OFF["patience"]:
        _refuse("patience", "must be 1 if beam_size is 1")
    if options.beam_size == 1 and options.early_stop is not EarlyStop.FIRST:
        _refuse("early_stop", 'must be "first" if beam_size is 1')
    if options.early_stop is not EarlyStop.FIRST and options.patience != OFF["patience"]:
        _refuse("patience", f'must be 1 if early_stop is "{options.early_stop}", and is {options.patience}')
    if options.sampling is None and options.num_hypotheses > options.num_to_complete:
        factors = f"beam_size {options.beam_size} times patience {options.patience}"
        text = f"must be at most {options.num_to_complete} ({factors}), and is {options.num_hypotheses}"
        _refuse("num_hypotheses", text)


def _check_lengths(
    options: DecodingOptions, *, minimum: str = "min_target_length", maximum: str = "max_target_length"
) -> None:
    """Check lengths against each other and against forced ids. minimum, maximum: the fields that set the lengths."""
    shortest, longest = options.min_target_length, options.max_target_length
    if shortest > longest:
        _refuse(minimum, f"requires at least {shortest} subwords, and {maximum} allows {longest}")
    for field, ids in (
        ("target_prefix", options.target_prefix),
        ("forced_target", options.forced_target or ()),
    ):
        if len(ids) > longest:
            _refuse(field, f"has {len(ids)} subwords, and {maximum} allows {longest}")


def _check_forced(options: DecodingOptions) -> None:
    if options.beam_size != 1:
        _refuse("forced_target", f"needs beam_size 1, and beam_size is {options.beam_size}")
    for field in SEARCH_FIELDS:
        if getattr(options, field) != OFF[field]:
            _refuse("forced_target", f"leaves nothing to search for, and {field} is set")


def _refuse(field: str, text: str) -> NoReturn:
    raise InvalidRequest(f"{field} {text}", field=field)
