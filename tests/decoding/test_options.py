"""Decoding options. Most options are tested against reference searches that share no code with `app.decoding`.

Sampling, the loop guard and length ratios have tests in other files.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.decoding.beam import BeamSearch
from app.decoding.greedy import GreedySearch
from app.decoding.guided import GuidedSearch
from app.decoding.options import DecodingOptions, EarlyStop, FinishReason, LengthPenalty, Sampling
from tests.decoding.reference_search import every_translation, reference_search
from tests.decoding.search_driver import (
    EOS,
    SOURCE,
    assert_same,
    drive,
    found_by,
    random_attention,
    random_language,
    start,
)

# A beam wider than every tree that the tests search exhaustively. It drops no prefix.
WIDE = 400


def random_options(rng: random.Random, *, vocab_size: int, longest: int, beam_size: int) -> DecodingOptions:
    """Draw options that change the found hypothesis or its score. Each draw sets some of them."""
    words = [token for token in range(vocab_size) if token != EOS]
    runs = [
        tuple(rng.choice([*words, *words, EOS]) for _ in range(rng.randint(1, 3)))
        for _ in range(rng.randint(0, 2))
    ]
    longest = rng.randint(1, longest)
    return DecodingOptions(
        beam_size=beam_size,
        num_hypotheses=rng.randint(1, min(4, beam_size)),
        length_penalty=rng.choice(list(LengthPenalty)),
        alpha=rng.choice([0.0, 0.6, 1.0]),
        max_target_length=longest,
        min_target_length=rng.choice([0, 0, rng.randint(0, longest)]),
        suppress_sequences=tuple(runs),
        no_repeat_ngram_size=rng.choice([0, 0, 1, 2, 3]),
        repetition_penalty=rng.choice([1.0, 0.5, 1.7]),
        target_prefix=tuple(rng.choice(words) for _ in range(rng.choice([0, 0, rng.randint(0, longest)]))),
        coverage_penalty=rng.choice([0.0, 0.4]),
    )


@pytest.mark.parametrize("early_stop", list(EarlyStop))
@pytest.mark.parametrize("seed", range(40))
def test_a_beam_as_wide_as_the_tree_finds_the_best_translation(seed: int, early_stop: EarlyStop) -> None:
    rng = random.Random(seed)
    language, attention = random_language(seed, vocab_size=4), random_attention(seed)
    options = random_options(rng, vocab_size=4, longest=4, beam_size=WIDE)
    options = replace(options, early_stop=early_stop)
    exhaustive = every_translation(language, options, eos_id=EOS, attention=attention)
    found = found_by(options, language, attention)
    if exhaustive:
        assert_same(found, exhaustive[: options.num_hypotheses])
    else:
        assert {one.finish_reason for one in found} == {FinishReason.CONSTRAINT}


@pytest.mark.parametrize("seed", range(60))
def test_a_search_with_random_options_equals_the_reference_search(seed: int) -> None:
    rng = random.Random(seed)
    beam_size = rng.choice([1, 1, 2, 4, 7])
    language, attention = (
        random_language(seed, vocab_size=12, eos_bonus=rng.choice([-1, 2])),
        random_attention(seed),
    )
    options = random_options(rng, vocab_size=12, longest=9, beam_size=beam_size)
    if beam_size > 1:
        early_stop = rng.choice(list(EarlyStop))
        patience = rng.choice([1.0, 1.0, 2.0, 2.3]) if early_stop is EarlyStop.FIRST else 1.0
        options = replace(options, early_stop=early_stop, patience=patience)
    expected = reference_search(language, options, eos_id=EOS, attention=attention)
    assert_same(found_by(options, language, attention), expected)


@pytest.mark.parametrize("beam_size", [2, 3, 5])
@pytest.mark.parametrize("patience", [0.4, 0.9, 1.5, 3.0])
def test_patience_sets_how_many_hypotheses_must_be_complete(beam_size: int, patience: float) -> None:
    for seed in range(12):
        language = random_language(seed, vocab_size=20, eos_bonus=2.0)
        options = DecodingOptions(beam_size=beam_size, patience=patience, max_target_length=14)
        found = found_by(options, language)
        assert_same(found, reference_search(language, options, eos_id=EOS))
        if patience > 1.0:
            hasty = found_by(replace(options, patience=1.0), language)
            assert found[0].score >= hasty[0].score


def test_a_rounding_error_of_patience_adds_no_hypothesis_to_complete() -> None:
    assert DecodingOptions(beam_size=10, patience=0.1 + 0.2).num_to_complete == 3


def test_early_stop_bound_is_never_worse_than_first_and_sometimes_better() -> None:
    num_better = 0
    for seed in range(40):
        language = random_language(seed, vocab_size=20, eos_bonus=1.0)
        first = DecodingOptions(
            beam_size=3, length_penalty=LengthPenalty.POWER, alpha=1.0, max_target_length=12
        )
        best = found_by(replace(first, early_stop=EarlyStop.BOUND), language)[0].score
        hasty = found_by(first, language)[0].score
        assert best >= hasty
        num_better += best > hasty
    assert num_better


def test_early_stop_bound_ends_the_search_when_no_continuation_can_be_better() -> None:
    """Without a length penalty, sums only fall. So the search ends once no live sum is above the sum of the best
    complete hypothesis.
    """
    language = random_language(3, vocab_size=10, eos_bonus=3.0)
    options = DecodingOptions(beam_size=4, early_stop=EarlyStop.BOUND, alpha=0.0, max_target_length=60)
    lengths: list[int] = []

    def counted(prefix: tuple[int, ...]) -> list[float]:
        lengths.append(len(prefix))
        return list(language(prefix))

    found = found_by(options, counted)
    assert_same(found, reference_search(language, options, eos_id=EOS))
    assert max(lengths) < 30


NEUTRAL: dict[str, dict[str, Any]] = {
    "a run that never occurs": {"suppress_sequences": ((39, 39, 39, 39),)},
    "an n-gram longer than any target": {"no_repeat_ngram_size": 12},
    "details": {"num_alternatives": 5, "alignment": True},
    "both": {"suppress_sequences": ((39, 39, 39, 39),), "num_alternatives": 2},
}


@pytest.mark.parametrize("changes", NEUTRAL.values(), ids=NEUTRAL)
@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_guided_search_with_options_without_effect_equals_the_plain_one(
    beam_size: int, changes: dict[str, Any]
) -> None:
    """The results are equal bit for bit, also with many equal scores. Of equal scores, the smaller id comes first."""

    def coarse(seed: int) -> Any:
        fine = random_language(seed, vocab_size=40)
        return lambda prefix: (np.round(np.array(fine(prefix)) * 2) / 2).tolist()

    for seed in range(20):
        plain = DecodingOptions(beam_size=beam_size, num_hypotheses=beam_size, max_target_length=10)
        guided = replace(plain, **changes)
        assert isinstance(start(guided), GuidedSearch)
        attention = random_attention(seed)
        for language in (random_language(seed, vocab_size=40), coarse(seed)):
            found = found_by(guided, language, attention)
            bare = [replace(one, alternatives=(), alignment=()) for one in found]
            assert bare == found_by(plain, language)


@pytest.mark.parametrize("seed", range(8))
def test_searches_of_all_kinds_in_a_batch_give_the_same_results_as_alone(seed: int) -> None:
    rng = random.Random(seed)
    attention = random_attention(seed)
    options = [
        random_options(rng, vocab_size=15, longest=8, beam_size=rng.choice([1, 1, 2, 5])) for _ in range(10)
    ]
    options += [
        DecodingOptions(beam_size=1, max_target_length=8),
        DecodingOptions(beam_size=4, max_target_length=8),
        DecodingOptions(beam_size=1, max_target_length=8, sampling=Sampling(seed=seed)),
        DecodingOptions(beam_size=1, max_target_length=8, forced_target=(5, 6, 7)),
        DecodingOptions(beam_size=3, max_target_length=8, num_alternatives=7, alignment=True),
    ]
    languages = [random_language(100 + index, vocab_size=15) for index in range(len(options))]
    together = drive([start(one) for one in options], languages, attention=attention)
    for found, one, language in zip(together, options, languages, strict=True):
        assert found == found_by(one, language, attention)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_default_options_give_a_plain_search(beam_size: int) -> None:
    default = DecodingOptions(beam_size=beam_size)
    assert not isinstance(start(default), GuidedSearch)
    for field in ("wants_distributions", "wants_alignment"):
        assert getattr(start(default), field) is False


def test_a_target_prefix_needs_distributions_only_for_its_own_steps() -> None:
    search = start(DecodingOptions(beam_size=2, target_prefix=(5, 6), max_target_length=9))
    requests = []
    language = random_language(0, vocab_size=9)

    def watched(prefix: tuple[int, ...]) -> list[float]:
        requests.append((len(prefix), search.wants_distributions))
        return list(language(prefix))

    drive([search], [watched])
    assert {length for length, wants in requests if wants} == {0, 1}
    assert max(length for length, _ in requests) > 2


@pytest.mark.parametrize("beam_size", [1, 4])
def test_min_target_length_needs_distributions_until_it_is_reached(beam_size: int) -> None:
    search = start(DecodingOptions(beam_size=beam_size, min_target_length=3, max_target_length=9))
    language = random_language(1, vocab_size=9, eos_bonus=3.0)
    requests = []

    def watched(prefix: tuple[int, ...]) -> list[float]:
        requests.append((len(prefix), search.wants_distributions))
        return list(language(prefix))

    (found,) = drive([search], [watched])
    assert {length for length, wants in requests if wants} == {0, 1, 2}
    assert min(len(one.ids) for one in found) >= 3


@pytest.mark.parametrize("beam_size", [1, 3])
def test_hypotheses_end_if_every_token_is_forbidden(beam_size: int) -> None:
    every_token = tuple((token,) for token in range(6))
    options = DecodingOptions(
        beam_size=beam_size,
        suppress_sequences=every_token,
        target_prefix=(3, 4),
        max_target_length=5,
        length_penalty=LengthPenalty.POWER,
    )
    (cut,) = found_by(options, random_language(2, vocab_size=6))
    assert (cut.ids, cut.finish_reason) == ((3, 4), FinishReason.CONSTRAINT)
    assert len(cut.token_log_probabilities) == 2
    (nothing,) = found_by(replace(options, target_prefix=()), random_language(2, vocab_size=6))
    assert (nothing.ids, nothing.log_probability, nothing.score) == ((), 0.0, 0.0)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_constraints_do_not_apply_to_the_target_prefix(beam_size: int) -> None:
    options = DecodingOptions(
        beam_size=beam_size,
        target_prefix=(5, 5, 5, 5),
        suppress_sequences=((5,),),
        no_repeat_ngram_size=2,
        repetition_penalty=2.0,
        max_target_length=9,
    )
    language = random_language(4, vocab_size=9)
    (best,) = found_by(options, language)
    assert best.ids[:4] == (5, 5, 5, 5)
    assert 5 not in best.ids[4:]
    forced = [language((5,) * length)[5] for length in range(4)]
    assert best.token_log_probabilities[:4] == pytest.approx(forced)


def test_a_forced_target_has_the_log_probability_of_each_token_and_the_end_token() -> None:
    language = random_language(6, vocab_size=30, eos_bonus=-5.0)
    for target in [(), (4,), (9, 9, 9, 9), tuple(range(2, 30))]:
        options = DecodingOptions(
            beam_size=1, forced_target=target, alpha=0.6, max_target_length=max(1, len(target))
        )
        (found,) = found_by(options, language)
        scores = [language(target[:at])[token] for at, token in enumerate((*target, EOS))]
        assert found.ids == target
        assert found.finish_reason is FinishReason.STOP
        assert list(found.token_log_probabilities) == scores
        assert found.log_probability == pytest.approx(sum(scores))
        assert found.score == pytest.approx(sum(scores) / ((5 + len(scores)) / 6) ** 0.6)


def test_scoring_a_found_hypothesis_gives_its_scores() -> None:
    for seed in range(10):
        language, attention = random_language(seed, vocab_size=20), random_attention(seed)
        options = DecodingOptions(
            beam_size=4, num_hypotheses=4, coverage_penalty=0.3, alignment=True, max_target_length=9
        )
        for one in found_by(options, language, attention):
            if one.finish_reason is FinishReason.STOP:
                forced = replace(options, beam_size=1, num_hypotheses=1, forced_target=one.ids)
                (scored,) = found_by(forced, language, attention)
                assert_same([scored], [one])
                assert scored.alignment == one.alignment


def test_greedy_equals_a_beam_of_one_with_random_options() -> None:
    """Both searches do the same arithmetic except for the beam's sums."""
    for seed in range(40):
        rng = random.Random(seed)
        options = random_options(rng, vocab_size=10, longest=9, beam_size=1)
        language, attention = random_language(seed, vocab_size=10), random_attention(seed)
        plain = BeamSearch(options, bos_id=0, eos_id=EOS, source_ids=SOURCE)
        (beam,) = drive([GuidedSearch(plain)], [language], attention=attention)
        assert_same(beam, found_by(options, language, attention))


def test_alternatives_are_the_models_best_at_each_position() -> None:
    language = random_language(8, vocab_size=25)
    for beam_size in (1, 4):
        options = DecodingOptions(
            beam_size=beam_size,
            num_hypotheses=beam_size,
            num_alternatives=6,
            suppress_sequences=((7,),),
            max_target_length=8,
        )
        for one in found_by(options, language):
            assert len(one.alternatives) == len(one.token_log_probabilities)
            for position, alternatives in enumerate(one.alternatives):
                scores = language(one.ids[:position])
                best = sorted(range(25), key=lambda token: (-scores[token], token))[:6]
                assert [found.id for found in alternatives] == best
                assert [found.log_probability for found in alternatives] == [scores[token] for token in best]


def test_alignment_is_each_tokens_attention_to_the_source() -> None:
    language, attention = random_language(9, vocab_size=25), random_attention(9)
    for beam_size in (1, 4):
        options = DecodingOptions(
            beam_size=beam_size, num_hypotheses=beam_size, alignment=True, max_target_length=8
        )
        for one in found_by(options, language, attention):
            expected = [
                tuple(attention(one.ids[:position])) for position in range(len(one.token_log_probabilities))
            ]
            assert list(one.alignment) == expected


@pytest.mark.parametrize("options", [DecodingOptions(beam_size=1), DecodingOptions(beam_size=3)])
def test_no_details_are_recorded_unless_requested(options: DecodingOptions) -> None:
    (one,) = found_by(replace(options, max_target_length=5), random_language(1, vocab_size=9))
    assert (one.alternatives, one.alignment) == ((), ())
    assert isinstance(start(options), GreedySearch) is (options.beam_size == 1)
