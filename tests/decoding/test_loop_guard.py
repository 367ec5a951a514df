"""What is a loop and what is a list, and the second attempt."""

from __future__ import annotations

import pytest

from app.decoding.loop_guard import guarded, is_looping, last_cycle, longest_cycle
from app.decoding.options import DecodingOptions, Sampling
from app.decoding.search import guarded_search
from tests.decoding.plain_search import NextScores, plain_search
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
        ([8] * 16, VARIED, True),
        ([*VARIED, *[8, 9] * 8], VARIED, True),
        ([*VARIED, *[8, 9] * 8, 7], VARIED, False),  # it has found out
        (VARIED[:18] * 2, VARIED, False),  # a refrain, sung twice
        (VARIED[:18] * 3, VARIED, True),
        ([8, 9] * 20, [8, 9] * 20, False),  # forty in the source too
        ([8, 9] * 47, [8, 9] * 20, False),
        ([8, 9] * 48, [8, 9] * 20, True),
    ],
)
def test_what_is_a_loop(ids: list[int], source: list[int], expected: bool) -> None:
    assert is_looping(ids, source) is expected


@pytest.mark.parametrize(("asked", "size"), [(0, 3), (2, 2), (3, 3), (20, 3)])
def test_the_second_attempt_repeats_no_trigram_and_is_not_guarded_again(asked: int, size: int) -> None:
    options = guarded(DecodingOptions(no_repeat_ngram_size=asked, loop_guard=True))
    assert (options.no_repeat_ngram_size, options.loop_guard) == (size, False)


def looping(period: int) -> NextScores:
    """A language that says a phrase again and again, and ends as readily as it says anything else."""

    def next_scores(prefix: tuple[int, ...]) -> list[float]:
        scores = [-9.0 - token / 100 for token in range(40)]
        scores[10 + len(prefix) % period] = -0.01
        scores[EOS] = -9.3
        return scores

    return next_scores


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("period", [1, 2, 5, 12])
def test_a_search_that_loops_ends_early_without_an_answer(beam_size: int, period: int) -> None:
    options = DecodingOptions(beam_size=beam_size, loop_guard=True, max_target_length=50)
    search = start(options)
    asked: list[int] = []
    language = looping(period)

    def counted(prefix: tuple[int, ...]) -> list[float]:
        asked.append(len(prefix))
        return list(language(prefix))

    assert drive([search], [counted])[0] == []
    assert search.is_done
    assert search.has_looped
    assert max(asked) < max(16, 3 * period) + 8
    second = guarded_search(search)
    (found,) = drive([second], [language])
    assert not second.has_looped
    assert_same(found, plain_search(language, guarded(options), eos_id=EOS))
    trigrams = list(zip(found[0].ids, found[0].ids[1:], found[0].ids[2:], strict=False))
    assert len(trigrams) == len(set(trigrams))


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_guard_that_finds_nothing_changes_nothing(beam_size: int) -> None:
    for seed in range(10):
        language = random_language(seed, vocab_size=30, eos_bonus=-2.0)
        plain = DecodingOptions(beam_size=beam_size, max_target_length=60)
        guard = DecodingOptions(beam_size=beam_size, max_target_length=60, loop_guard=True)
        assert found_by(guard, language) == found_by(plain, language)


def test_without_the_guard_a_loop_goes_on_to_the_limit() -> None:
    (found,) = found_by(DecodingOptions(beam_size=1, max_target_length=50), looping(2))
    assert len(found.ids) == 50


def test_what_is_drawn_is_guarded_too() -> None:
    options = DecodingOptions(beam_size=1, loop_guard=True, max_target_length=60, sampling=Sampling(top_k=1))
    search = start(options)
    drive([search], [looping(3)])
    assert search.has_looped
    assert guarded_search(search).options.sampling == options.sampling
