"""Greedy and beam search, compared with reference searches that share no code with them, or computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from app.decoding.beam import BeamSearch, advance_beams
from app.decoding.greedy import GreedySearch
from app.decoding.options import DecodingOptions, FinishReason, LengthPenalty
from app.decoding.search import Search
from tests.decoding.reference_search import every_translation, reference_search
from tests.decoding.search_driver import BOS, EOS, assert_same, drive, random_language, start


@pytest.mark.parametrize("beam_size", range(1, 17))
@pytest.mark.parametrize("formula", list(LengthPenalty))
def test_a_search_equals_the_reference_search(beam_size: int, formula: LengthPenalty) -> None:
    for seed in range(6):
        language = random_language(seed, vocab_size=40, eos_bonus=seed - 1.0)
        options = DecodingOptions(
            beam_size=beam_size,
            num_hypotheses=beam_size,
            length_penalty=formula,
            alpha=seed * 0.3,
            max_target_length=1 + 2 * seed,
        )
        assert_same(drive([start(options)], [language])[0], reference_search(language, options, eos_id=EOS))


@pytest.mark.parametrize("vocab_size", [2, 3, 4, 7])
def test_a_search_equals_the_reference_search_if_the_beam_exceeds_the_vocabulary(vocab_size: int) -> None:
    for seed in range(20):
        language = random_language(seed, vocab_size=vocab_size)
        options = DecodingOptions(beam_size=2 + seed % 8, num_hypotheses=2, max_target_length=1 + seed % 7)
        assert_same(drive([start(options)], [language])[0], reference_search(language, options, eos_id=EOS))


@pytest.mark.parametrize(("vocab_size", "max_target_length"), [(3, 2), (4, 1)])
def test_a_beam_that_holds_every_prefix_finds_every_translation(
    vocab_size: int, max_target_length: int
) -> None:
    for seed in range(30):
        language = random_language(seed, vocab_size=vocab_size)
        options = DecodingOptions(
            beam_size=16, num_hypotheses=16, alpha=1.0, max_target_length=max_target_length
        )
        exhaustive = every_translation(language, options, eos_id=EOS)
        assert len(exhaustive) in (3, 6)
        assert_same(drive([start(options)], [language])[0], exhaustive)


def test_other_searches_of_any_beam_size_do_not_change_a_search() -> None:
    rng = np.random.default_rng(1)
    options = [
        DecodingOptions(beam_size=size, num_hypotheses=size, max_target_length=int(rng.integers(1, 12)))
        for size in [1, 1, 2, 4, 4, 4, 7, 16]
    ]
    languages = [random_language(seed, vocab_size=30) for seed in range(len(options))]
    together = drive([start(one) for one in options], languages)
    for found, one, language in zip(together, options, languages, strict=True):
        assert found == drive([start(one)], [language])[0]


def test_additional_candidates_do_not_change_a_search() -> None:
    language = random_language(3, vocab_size=40)
    options = DecodingOptions(beam_size=3, num_hypotheses=3, max_target_length=9)
    assert drive([start(options)], [language]) == drive([start(options)], [language], num_candidates=32)


def test_a_beam_of_one_equals_greedy_search() -> None:
    for seed in range(40):
        options = DecodingOptions(beam_size=1, max_target_length=1 + seed % 9)
        language = random_language(seed, vocab_size=12, eos_bonus=0.0)
        beam: Search = BeamSearch(options, bos_id=BOS, eos_id=EOS)
        assert_same(drive([beam], [language])[0], drive([start(options)], [language])[0])


def test_beam_size_decides_the_strategy() -> None:
    assert isinstance(start(DecodingOptions(beam_size=1)), GreedySearch)
    assert isinstance(start(DecodingOptions(beam_size=2)), BeamSearch)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_fresh_search_starts_over(beam_size: int) -> None:
    options = DecodingOptions(beam_size=beam_size, num_hypotheses=beam_size, max_target_length=6)
    language = random_language(5, vocab_size=20)
    search = start(options)
    first = drive([search], [language])[0]
    again = search.fresh()
    assert not again.is_done
    assert again.hypotheses() == []
    assert drive([again], [language])[0] == first


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_target_of_max_target_length_may_still_be_followed_by_the_end_token(beam_size: int) -> None:
    def never(prefix: tuple[int, ...]) -> list[float]:
        return [-math.inf if token == EOS else math.log(1 / 9) for token in range(10)]

    def just_in_time(prefix: tuple[int, ...]) -> list[float]:
        return [
            (0.0 if len(prefix) == 4 else -50.0) if token == EOS else math.log(1 / 9) for token in range(10)
        ]

    options = DecodingOptions(beam_size=beam_size, num_hypotheses=1, max_target_length=4)
    (cut,) = drive([start(options)], [never])[0]
    (whole,) = drive([start(options)], [just_in_time])[0]
    assert (len(cut.ids), cut.finish_reason) == (4, FinishReason.LENGTH)
    assert (len(whole.ids), whole.finish_reason) == (4, FinishReason.STOP)
    assert cut.score == pytest.approx(4 * math.log(1 / 9) / ((5 + 4) / 6) ** 0.6)
    assert whole.score == pytest.approx(4 * math.log(1 / 9) / ((5 + 5) / 6) ** 0.6)


def test_an_end_token_ranked_below_beam_size_is_dropped() -> None:
    """A beam of two with two better continuations drops the end token (section 6.1 of the paper)."""
    search = BeamSearch(DecodingOptions(beam_size=2, max_target_length=5), bos_id=BOS, eos_id=EOS)
    advance_beams(
        [search],
        [[0]],
        log_probabilities=np.array([[-0.5, -1.0, -1.5, -9.0]], np.float32),
        ids=np.array([[5, 6, EOS, 7]]),
    )
    assert search.last_ids == [5, 6]
    advance_beams(
        [search],
        [[0, 1]],
        log_probabilities=np.array([[-0.1, -1.0, -2.0, -3.0], [-0.2, -1.0, -2.0, -3.0]], np.float32),
        ids=np.array([[8, EOS, 9, 4], [8, EOS, 9, 4]]),
    )
    assert search.last_ids == [8, 8]
    assert search.parents == [0, 1]
    assert not search.is_done


def test_sums_are_float64() -> None:
    """A float32 sum of a thousand small scores differs from the float64 sum by more than the tolerance."""
    score = float(np.float32(-0.1))
    options = DecodingOptions(beam_size=2, alpha=0.0, max_target_length=1000)
    search = BeamSearch(options, bos_id=BOS, eos_id=EOS)
    scores = np.array([[score, -20.0, -21.0, -22.0]] * 2, np.float32)
    ids = np.array([[4, 5, 6, 7]] * 2)
    for step in range(1001):
        rows = [list(range(1 if step == 0 else 2))]
        advance_beams([search], rows, log_probabilities=scores, ids=ids)
    assert search.is_done
    assert search.hypotheses()[0].log_probability == pytest.approx(1000 * score, abs=1e-9)


# The search ranks at most FEW_CANDIDATES candidates in lists, and more candidates in arrays. In this and the next test,
# the candidates of one sentence are ranked in lists, and those of the larger number of sentences in arrays.
@pytest.mark.parametrize("num_sentences", [1, 12])
def test_an_impossible_end_token_completes_no_hypothesis(num_sentences: int) -> None:
    options = DecodingOptions(beam_size=4, num_hypotheses=4, max_target_length=5)
    searches = [BeamSearch(options, bos_id=BOS, eos_id=EOS) for _ in range(num_sentences)]
    advance_beams(
        searches,
        [[number] for number in range(num_sentences)],
        log_probabilities=np.array([[-0.5, -1.0, -np.inf, -np.inf, -np.inf]] * num_sentences, np.float32),
        ids=np.array([[5, 6, EOS, 7, 8]] * num_sentences),
    )
    assert [search.last_ids for search in searches] == [[5, 6]] * num_sentences
    advance_beams(
        searches,
        [[2 * number, 2 * number + 1] for number in range(num_sentences)],
        log_probabilities=np.array([[-0.25, -np.inf, -np.inf]] * 2 * num_sentences, np.float32),
        ids=np.array([[EOS, 7, 8]] * 2 * num_sentences),
    )
    for search in searches:
        assert search.is_done
        assert [(one.ids, one.log_probability) for one in search.hypotheses()] == [
            ((5,), -0.75),
            ((6,), -1.25),
        ]


@pytest.mark.parametrize("num_sentences", [1, 20])
def test_of_equal_sums_the_better_hypothesis_comes_first_then_the_better_candidate(
    num_sentences: int,
) -> None:
    options = DecodingOptions(beam_size=2, max_target_length=5)
    searches = [BeamSearch(options, bos_id=BOS, eos_id=EOS) for _ in range(num_sentences)]
    for rows, ids in (([0], [[7, 5, 6]]), ([0, 1], [[9, 4, 3], [8, 4, 3]])):
        advance_beams(
            searches,
            [[row + number * len(rows) for row in rows] for number in range(num_sentences)],
            log_probabilities=np.full((num_sentences * len(rows), 3), -1.0, np.float32),
            ids=np.array(ids * num_sentences),
        )
    for search in searches:
        assert (search.last_ids, search.parents) == ([9, 4], [0, 0])
        assert search.prefixes() == [(7, 9), (7, 4)]
