"""The engine's limits, their check against the model's limits, and the check of one sentence's options."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from app.decoding.options import DecodingOptions
from app.decoding.validation import Bounds, bounded_by_source, check_options, check_range
from app.errors import InvalidRequest, SettingsError
from app.runtime.interface import Limits


@dataclass(frozen=True)
class EngineLimits:
    """Limits of the engine, each a setting; none is unlimited.

    max_pending_sentences, max_pending_tokens: sentences and source subwords (end tokens included)
        accepted and not yet answered. Padding, which only a GPU's encoder computes, does not count.
    max_encode_tokens: source subwords encoded in one step, at least the model's max_source_length.
        Larger: running rows wait longer for the encoder.
    stall_limit_s: seconds; a step that takes longer is a stall, and the engine is unhealthy.
    max_consecutive_failures: consecutive failed forwards after which a worker ends. A forward counts if every sentence
        in it fails. It does not count if its sentences are divided and tried again. If all sentences that a step
        encodes fail, each of them counts as a failed forward.
    """

    max_pending_sentences: int = 2048
    max_pending_tokens: int = 65536
    max_encode_tokens: int = 512
    stall_limit_s: float = 10.0
    max_consecutive_failures: int = 8


def check_limits(settings: EngineLimits, limits: Limits) -> None:
    """Raise SettingsError with every limit that is 0 or less, is infinite, or is too small for the model."""
    problems = [
        f"{name} must be finite and more than 0, and is {value}"
        for name, value in vars(settings).items()
        if not (value > 0 and math.isfinite(value))
    ]
    if settings.max_encode_tokens < limits.max_source_length:
        problems.append(
            f"max_encode_tokens ({settings.max_encode_tokens}) is less than the model's max_source_length "
            f"({limits.max_source_length}): the longest sentence could never start; raise max_encode_tokens"
        )
    if settings.max_pending_tokens < limits.max_source_length:
        problems.append(
            f"max_pending_tokens ({settings.max_pending_tokens}) is less than the model's max_source_length "
            f"({limits.max_source_length}); raise max_pending_tokens"
        )
    if problems:
        raise SettingsError(problems)


@functools.lru_cache(maxsize=8)
def option_bounds(limits: Limits) -> Bounds:
    """Return the bounds of decoding options for a model with these limits."""
    return Bounds(
        vocab_size=limits.vocab_size,
        eos_id=limits.eos_id,
        max_target_length=limits.max_target_length - 1,
        max_beam_size=limits.num_rows,
        has_alignment=limits.has_alignment,
    )


def checked_options(source_ids: Sequence[int], options: DecodingOptions, limits: Limits) -> DecodingOptions:
    """Return the options of one sentence with ratios turned into lengths.

    Raises InvalidRequest with the field, if the sentence or an option does not fit the model, or two options conflict.
    """
    check_range("source", len(source_ids), (1, limits.max_source_length), unit=" subwords")
    check_range("source", min(source_ids), (0, limits.vocab_size - 1), unit=" (an id)")
    check_range("source", max(source_ids), (0, limits.vocab_size - 1), unit=" (an id)")
    _check_start(options, limits)
    if options.shortlist is not None:
        check_range("shortlist", options.shortlist, (0, limits.num_shortlists - 1), unit=" (a table)")
    check_options(options, option_bounds(limits))
    return bounded_by_source(options, len(source_ids) - source_ids.count(limits.eos_id))


def _check_start(options: DecodingOptions, limits: Limits) -> None:
    """Raise InvalidRequest for a start_id that is out of range, or missing, or set although the model has its own.

    A model with a prefill_id needs a start_id. Any other model has its own start token.
    """
    if options.start_id is not None:
        check_range("start_id", options.start_id, (0, limits.vocab_size - 1), unit=" (an id)")
    if (options.start_id is None) != (limits.prefill_id is None):
        needs = "has its own start token" if limits.prefill_id is None else "needs a start_id"
        raise InvalidRequest(f"start_id is {options.start_id}, and the model {needs}", field="start_id")
