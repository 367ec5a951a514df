"""Sampling: its distribution, top_k and top_p. The same seed gives the same draws in any batch."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from app.decoding.options import DecodingOptions, FinishReason, Hypothesis, Sampling
from app.decoding.sampling import candidate_ids, draw
from tests.decoding.search_driver import drive, found_by, random_language, start

PROBABILITIES = [0.30, 0.22, 0.16, 0.11, 0.08, 0.05, 0.04, 0.02, 0.01, 0.01]
# The id of each rank.
SHUFFLED = [4, 0, 7, 2, 9, 1, 5, 3, 8, 6]
NUM_DRAWS = 5000
# Critical values of the chi-square distribution for the upper 0.1 %, by degrees of freedom.
CRITICAL = {2: 13.82, 3: 16.27, 9: 27.88}


def scores() -> NDArray[np.float32]:
    row = np.empty(10, np.float32)
    row[SHUFFLED] = np.log(PROBABILITIES)
    return row


def draws(sampling: Sampling) -> Counter[int]:
    """The number of draws of each rank."""
    generator = np.random.Generator(np.random.PCG64(sampling.seed))
    row = scores()
    return Counter(SHUFFLED.index(draw(row, sampling, generator)) for _ in range(NUM_DRAWS))


@pytest.mark.parametrize(
    ("sampling", "weights"),
    [
        (Sampling(seed=1), PROBABILITIES),
        (Sampling(seed=2, temperature=2.0), [p**0.5 for p in PROBABILITIES]),
        (Sampling(seed=3, temperature=0.8), [p**1.25 for p in PROBABILITIES]),
        (Sampling(seed=4, top_k=3), PROBABILITIES[:3]),
        (Sampling(seed=5, top_p=0.75), PROBABILITIES[:4]),
        (Sampling(seed=6, top_p=0.67), PROBABILITIES[:3]),
        # The four best have the sum 0.79. Three of them have 0.68, more than 0.8 of that sum.
        (Sampling(seed=7, top_k=4, top_p=0.8), PROBABILITIES[:3]),
        # With a lower temperature, fewer subwords reach top_p.
        (Sampling(seed=9, temperature=0.5, top_p=0.85), [p**2 for p in PROBABILITIES[:3]]),
    ],
)
def test_draws_follow_the_probabilities(sampling: Sampling, weights: list[float]) -> None:
    counts = draws(sampling)
    assert set(counts) == set(range(len(weights)))
    expected = [NUM_DRAWS * weight / sum(weights) for weight in weights]
    distance = sum((counts[rank] - count) ** 2 / count for rank, count in enumerate(expected))
    assert distance < CRITICAL[len(weights) - 1]


def test_impossible_subwords_are_never_drawn() -> None:
    row = np.full(6, -np.inf, np.float32)
    row[[2, 5]] = np.log([0.5, 0.5])
    generator = np.random.Generator(np.random.PCG64(0))
    for sampling in (Sampling(), Sampling(top_k=4), Sampling(top_p=0.99), Sampling(temperature=0.01)):
        assert {draw(row, sampling, generator) for _ in range(200)} == {2, 5}


@pytest.mark.parametrize("value", [0.0, 1.0 - 2**-53])
def test_the_extreme_random_numbers_draw_the_first_and_the_last_possible_subword(value: float) -> None:
    class FixedGenerator(np.random.Generator):
        def random(self, *_: object, **__: object) -> float:  # type: ignore[override]
            return value

    impossible = np.full(1, -np.inf, np.float32)
    row = np.concatenate([impossible, scores(), impossible])
    assert draw(row, Sampling(), FixedGenerator(np.random.PCG64(0))) == (10 if value else 1)


def options(seed: int) -> DecodingOptions:
    return DecodingOptions(beam_size=1, max_target_length=12, sampling=Sampling(temperature=1.3, seed=seed))


def test_a_seed_draws_the_same_alone_and_in_a_batch() -> None:
    languages = [random_language(seed, vocab_size=30, eos_bonus=-1.0) for seed in range(6)]
    alone = [found_by(options(seed), language) for seed, language in enumerate(languages)]
    searches = [start(options(seed)) for seed in range(6)]
    neighbours = [start(DecodingOptions(beam_size=size, max_target_length=9)) for size in (1, 4)]
    together = drive(
        [*neighbours, *searches[::-1]],
        [languages[0], languages[1], *languages[::-1]],
    )
    assert together[2:][::-1] == alone


def test_another_seed_draws_other_subwords_and_a_fresh_search_draws_the_same() -> None:
    language = random_language(1, vocab_size=30, eos_bonus=-1.0)
    found: list[Hypothesis] = [found_by(options(seed), language)[0] for seed in range(10)]
    assert len({one.ids for one in found}) == 10
    search = start(options(3))
    drive([search], [language])
    assert drive([search.fresh()], [language])[0] == [found[3]]


def test_the_scores_of_a_sample_are_the_models_log_probabilities() -> None:
    language = random_language(2, vocab_size=30, eos_bonus=-1.0)
    (found,) = found_by(options(5), language)
    for position, (token, score) in enumerate(zip(found.ids, found.token_log_probabilities, strict=False)):
        assert score == language(found.ids[:position])[token]


def test_constraints_apply_to_draws() -> None:
    language = random_language(3, vocab_size=8)
    for seed in range(30):
        constrained = DecodingOptions(
            beam_size=1,
            sampling=Sampling(seed=seed),
            suppress_sequences=((4,),),
            min_target_length=3,
            no_repeat_ngram_size=2,
            target_prefix=(4, 5),
            max_target_length=10,
        )
        (found,) = found_by(constrained, language)
        assert found.ids[:2] == (4, 5)
        assert 4 not in found.ids[2:]
        assert len(found.ids) >= 3
        pairs = list(zip(found.ids, found.ids[1:], strict=False))
        assert len(pairs) == len(set(pairs))


def test_a_sample_ends_if_its_constraints_forbid_every_subword() -> None:
    forbidden = tuple((token,) for token in range(8) if token != 5)
    constrained = DecodingOptions(
        beam_size=1,
        max_target_length=10,
        sampling=Sampling(),
        suppress_sequences=forbidden,
        no_repeat_ngram_size=1,
    )
    (found,) = found_by(constrained, random_language(3, vocab_size=8))
    assert (found.ids, found.finish_reason) == ((5,), FinishReason.CONSTRAINT)


@pytest.mark.parametrize("truncation", [{"top_k": 1}, {"top_p": 0.001}])
def test_drawing_from_one_candidate_equals_greedy_search(truncation: dict[str, Any]) -> None:
    language = random_language(4, vocab_size=30)
    narrow = DecodingOptions(
        beam_size=1, max_target_length=9, sampling=Sampling(temperature=2.0, **truncation)
    )
    greedy = DecodingOptions(beam_size=1, max_target_length=9)
    assert found_by(narrow, language) == found_by(greedy, language)


@pytest.mark.parametrize(
    ("sampling", "ids"),
    [
        (Sampling(top_k=3), [1, 3, 5]),  # two of the three equal scores
        (Sampling(top_k=4), [1, 3, 5, 6]),
        (Sampling(top_p=0.75), [1, 3, 5, 6]),
        (Sampling(top_p=0.55), [1, 3, 5]),
        (Sampling(top_k=2, top_p=0.65), [1, 3]),
        (Sampling(top_k=2, top_p=0.5), [1]),
        (Sampling(top_k=7), [0, 1, 2, 3, 4, 5, 6]),
    ],
)
def test_top_k_and_top_p_keep_the_smaller_ids_of_equal_weights(sampling: Sampling, ids: list[int]) -> None:
    weights = np.array([0.1, 0.3, 0.0, 0.2, 0.05, 0.2, 0.2, 0.0], np.float32)
    assert candidate_ids(weights, sampling).tolist() == ids
