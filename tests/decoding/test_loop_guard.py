"""The detection of loops, and the options of the second attempt."""

from __future__ import annotations

import pytest

from app.decoding.loop_guard import (
    MIN_CYCLE,
    guarded,
    is_looping,
    last_cycle,
    leaves_out_repetition,
    longest_cycle,
)
from app.decoding.options import DecodingOptions, Sampling
from app.decoding.search import guarded_search
from tests.decoding.reference_search import NextScores, reference_search
from tests.decoding.search_driver import EOS, assert_same, drive, found_by, random_language, start

VARIED = list(range(10, 40))


@pytest.mark.parametrize(
    ("ids", "last", "longest"),
    [
        ([], 0, 0),
        ([5], 0, 0),
        ([5, 5], 0, 2),
        ([5, 5, 5], 3, 3),
        ([4, 6, 5, 6, 5, 6, 5], 6, 6),
        ([5, 6, 5, 6, 5, 6, 7], 0, 6),
        ([5, 6, 5, 6, 5], 0, 5),
        ([*VARIED[:20] * 3], 60, 60),
        ([*VARIED[:21] * 3], 0, 0),
        (VARIED, 0, 0),
    ],
)
def test_cycles(ids: list[int], last: int, longest: int) -> None:
    assert last_cycle(ids) == last
    assert longest_cycle(ids) == longest


@pytest.mark.parametrize(
    ("ids", "source", "expected"),
    [
        ([8, 9, 8, 9, 8], VARIED, False),  # "1, 1, 1"
        ([8] * 15, VARIED, False),
        ([8] * 16, VARIED, True),  # MIN_LENGTH subwords
        ([*VARIED, *[8, 9] * 8], VARIED, True),
        ([*VARIED, *[8, 9] * 8, 7], VARIED, False),  # the cycle has ended
        (VARIED[:18] * 2, VARIED, False),  # a phrase that occurs twice
        (VARIED[:18] * 3, VARIED, True),
        ([8, 9] * 20, [8, 9] * 20, False),  # the source has the same cycle
        ([8, 9] * 47, [8, 9] * 20, False),
        ([8, 9] * 48, [8, 9] * 20, True),  # MIN_LENGTH subwords, and twice as many as the source
    ],
)
def test_is_looping(ids: list[int], source: list[int], expected: bool) -> None:
    assert is_looping(ids, source) is expected


@pytest.mark.parametrize(
    ("source", "num_tokens", "expected"),
    [
        ([8] * MIN_CYCLE, MIN_CYCLE // 2 - 1, True),
        ([8] * MIN_CYCLE, MIN_CYCLE // 2, False),  # half of the cycle
        ([8] * (MIN_CYCLE - 1), 1, False),
        ([*VARIED, *[8] * MIN_CYCLE], MIN_CYCLE // 2 - 1, True),
        ([*VARIED, *[8] * MIN_CYCLE], MIN_CYCLE // 2, False),
        ([*VARIED, *[8] * (MIN_CYCLE - 1)], 1, False),  # the source is long enough, and its cycle is not
    ],
)
def test_a_target_leaves_out_a_long_cycle_if_it_is_shorter_than_half_of_it(
    source: list[int], num_tokens: int, expected: bool
) -> None:
    assert leaves_out_repetition(source, VARIED[:num_tokens]) is expected


@pytest.mark.parametrize(("ngram_size", "size"), [(0, 3), (2, 2), (3, 3), (20, 3)])
def test_the_second_attempt_forbids_repeated_trigrams_and_has_no_guard(ngram_size: int, size: int) -> None:
    options = guarded(DecodingOptions(no_repeat_ngram_size=ngram_size, loop_guard=True))
    assert (options.no_repeat_ngram_size, options.loop_guard) == (size, False)


def looping(period: int) -> NextScores:
    """A language model that repeats a phrase of `period` subwords. All other tokens are about equally improbable."""

    def next_scores(prefix: tuple[int, ...]) -> list[float]:
        scores = [-9.0 - token / 100 for token in range(40)]
        scores[10 + len(prefix) % period] = -0.01
        scores[EOS] = -9.3
        return scores

    return next_scores


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("period", [1, 2, 5, 12])
def test_a_looping_search_ends_early_without_a_hypothesis(beam_size: int, period: int) -> None:
    options = DecodingOptions(beam_size=beam_size, loop_guard=True, max_target_length=50)
    search = start(options)
    lengths: list[int] = []
    language = looping(period)

    def counted(prefix: tuple[int, ...]) -> list[float]:
        lengths.append(len(prefix))
        return list(language(prefix))

    assert drive([search], [counted])[0] == []
    assert search.is_done
    assert search.has_looped
    # A loop has at least 16 subwords (MIN_LENGTH) and 3 periods (MIN_REPEATS). It is looked for every 8 subwords.
    assert max(lengths) < max(16, 3 * period) + 8
    second = guarded_search(search)
    (found,) = drive([second], [language])
    assert not second.has_looped
    assert_same(found, reference_search(language, guarded(options), eos_id=EOS))
    trigrams = list(zip(found[0].ids, found[0].ids[1:], found[0].ids[2:], strict=False))
    assert len(trigrams) == len(set(trigrams))


@pytest.mark.parametrize("beam_size", [1, 4])
def test_the_guard_does_not_change_a_search_without_a_loop(beam_size: int) -> None:
    for seed in range(10):
        language = random_language(seed, vocab_size=30, eos_bonus=-2.0)
        plain = DecodingOptions(beam_size=beam_size, max_target_length=60)
        guard = DecodingOptions(beam_size=beam_size, max_target_length=60, loop_guard=True)
        assert found_by(guard, language) == found_by(plain, language)


def test_without_the_guard_a_loop_runs_to_max_target_length() -> None:
    (found,) = found_by(DecodingOptions(beam_size=1, max_target_length=50), looping(2))
    assert len(found.ids) == 50


def test_the_guard_also_checks_sampling() -> None:
    options = DecodingOptions(beam_size=1, loop_guard=True, max_target_length=60, sampling=Sampling(top_k=1))
    search = start(options)
    drive([search], [looping(3)])
    assert search.has_looped
    assert guarded_search(search).options.sampling == options.sampling
