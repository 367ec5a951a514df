"""Several samples of a sentence: one search each, with seeds of their own, told as one sentence's hypotheses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.decoding.options import DecodingOptions
from app.decoding.validation import MAX_SEED
from app.engine.sequence import SequenceResult


def num_samples(options: DecodingOptions | None) -> int:
    """How many searches a sentence takes: one, or as many as are to be drawn."""
    return 1 if options is None or options.sampling is None else options.num_hypotheses


def samples_of(options: DecodingOptions) -> list[DecodingOptions]:
    """The options of each search. The k-th sample, counted from 0, is what `seed` + k draws by itself."""
    sampling = options.sampling
    if sampling is None or options.num_hypotheses == 1:
        return [options]
    seeds = [(sampling.seed + index) % (MAX_SEED + 1) for index in range(options.num_hypotheses)]
    return [replace(options, num_hypotheses=1, sampling=replace(sampling, seed=seed)) for seed in seeds]


def join_samples(results: Sequence[SequenceResult]) -> SequenceResult:
    """The samples of one sentence, in the order of their seeds. Times: of the slowest, since they ran side by side."""
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
