"""The estimated size of a cached result is close to the memory that it takes."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from app.decoding.options import Alternative, FinishReason, Hypothesis
from app.engine.sequence import SequenceResult
from app.stores.sentence_cache import SentenceCache
from app.translator.result_size import size_of


def hypothesis(num_tokens: int, *, num_alternatives: int = 0, source_length: int = 0) -> Hypothesis:
    tokens = range(num_tokens)
    return Hypothesis(
        ids=tuple(1000 + token for token in tokens),
        log_probability=-1.5 * num_tokens,
        score=-0.5 * num_tokens,
        finish_reason=FinishReason.STOP,
        token_log_probabilities=tuple(-0.1 * token for token in range(num_tokens + 1)),
        alternatives=tuple(
            tuple(Alternative(500 + token + k, -0.3 * k * token) for k in range(num_alternatives))
            for token in tokens
        )
        if num_alternatives
        else (),
        alignment=tuple(tuple(0.01 * token * place for place in range(source_length)) for token in tokens)
        if source_length
        else (),
    )


KINDS: dict[str, Any] = {
    "two tokens": lambda: [hypothesis(2)],
    "a sentence": lambda: [hypothesis(25)],
    "the longest": lambda: [hypothesis(250)],
    "several": lambda: [hypothesis(25) for _ in range(8)],
    "alternatives": lambda: [hypothesis(25, num_alternatives=16)],
    "alignment": lambda: [hypothesis(25, source_length=27)],
}


@pytest.mark.seconds
@pytest.mark.parametrize("kind", KINDS)
def test_the_estimated_size_is_close_to_the_real_one(kind: str) -> None:
    """The real size is at most a quarter above the estimate, and at least two thirds of it."""

    def result_of_kind() -> SequenceResult:
        return SequenceResult(KINDS[kind](), 0.0, 0.0, 0.0, 0, is_cached=True)

    # The entries take two megabytes, so the process's other memory makes no difference.
    count = 2_000_000 // size_of(result_of_kind())

    def entries() -> Iterator[tuple[bytes, SequenceResult]]:
        for number in range(count):
            yield b"%032d" % number, result_of_kind()

    cache: SentenceCache[SequenceResult] = SentenceCache(10**9)
    for thread in threading.enumerate():
        if thread.name == "detector":
            thread.join()  # a thread of another test, whose memory would count
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for key, result in entries():
            cache.put(key, result, size_of(result))
        del key, result
        gc.collect()
        real = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    estimated = cache.stats().num_bytes
    assert cache.stats().num_entries == count
    assert 0.8 * real <= estimated <= 1.5 * real, (estimated / count, real / count)
