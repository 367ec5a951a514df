"""Splits the decoding of several samples of a sentence into one search for each sample, and joins the results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.decoding.option_changes import OptionChanges
from app.decoding.options import DecodingOptions
from app.decoding.validation import MAX_SEED
from app.engine.sequence import SequenceResult


def num_samples(options: OptionChanges) -> int:
    """Return the number of searches of a sentence: the number of its samples, or 1 without sampling."""
    return 1 if options.sampling is None else options.num_hypotheses


def samples_of(options: DecodingOptions) -> list[DecodingOptions]:
    """Return the options of each search. Sample k, counted from 0, has the seed `seed` + k."""
    sampling = options.sampling
    if sampling is None or options.num_hypotheses == 1:
        return [options]
    seeds = [(sampling.seed + index) % (MAX_SEED + 1) for index in range(options.num_hypotheses)]
    return [replace(options, num_hypotheses=1, sampling=replace(sampling, seed=seed)) for seed in seeds]


def join_samples(results: Sequence[SequenceResult]) -> SequenceResult:
    """Return one result with all samples, in the order of their seeds.

    Each time, and the number of steps, is the maximum of all samples, because these are decoded in parallel.
    """
    if len(results) == 1:
        return results[0]
    return SequenceResult(
        hypotheses=[each for result in results for each in result.hypotheses],
        queue_time_s=max(result.queue_time_s for result in results),
        encode_time_s=max(result.encode_time_s for result in results),
        decode_time_s=max(result.decode_time_s for result in results),
        num_steps=max(result.num_steps for result in results),
        has_looped=any(result.has_looped for result in results),
        is_cached=all(result.is_cached for result in results),
    )
