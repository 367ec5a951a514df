"""The reference search: greedy search equals a beam of 1, and a wide beam equals exhaustive search."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product

import pytest
import torch

from app.decoding.options import DecodingOptions, FinishReason
from app.text.tokenizer import Tokenizer, TokenizerError
from model.config import EOS_ID, preset
from model.evaluate import translate
from model.search import Penalty, beam_search, greedy_search, length_penalty, next_log_probabilities
from model.transformer import Transformer
from tests.decoding.reference_search import reference_search

SOURCE = (5, 4, 2)


def random_model(vocab_size: int, seed: int) -> Transformer:
    torch.manual_seed(seed)
    model = Transformer(preset("tiny", vocab_size)).eval()
    with torch.no_grad():
        model.embedding.weight.mul_(4)  # sharper distributions, so the scores of hypotheses differ clearly
    return model


@pytest.mark.parametrize("seed", range(8))
def test_greedy_is_beam_one(seed: int) -> None:
    model = random_model(30, seed)
    greedy = greedy_search(model, SOURCE, max_target_length=12)
    beam = beam_search(model, SOURCE, beam_size=1, max_target_length=12)
    assert len(beam) == 1
    assert (beam[0].ids, beam[0].is_complete) == (greedy.ids, greedy.is_complete)
    assert beam[0].score == pytest.approx(greedy.score, abs=1e-4)


@pytest.mark.seconds
@pytest.mark.parametrize("formula", ["wu", "power"])
@pytest.mark.parametrize("seed", range(3))
def test_a_beam_as_wide_as_the_tree_finds_the_best_of_all(seed: int, formula: Penalty) -> None:
    vocab_size, longest = 6, 3
    model = random_model(vocab_size, seed)
    found = beam_search(
        model, SOURCE, beam_size=vocab_size**longest, max_target_length=longest, formula=formula
    )
    words = [token for token in range(vocab_size) if token != EOS_ID]
    every = [ids for length in range(1, longest + 1) for ids in product(words, repeat=length)]

    @cache
    def following(ids: tuple[int, ...]) -> list[float]:
        found: list[float] = next_log_probabilities(model, SOURCE, [(1, *ids)])[0].tolist()
        return found

    # At the length limit a hypothesis is complete only if the next token is the end token.
    best = max(score_of(following, ids, formula, is_complete=True) for ids in every)
    complete = [hypothesis for hypothesis in found if hypothesis.is_complete]
    assert complete[0].score == pytest.approx(best, abs=1e-4)
    for hypothesis in found:
        expected = score_of(following, hypothesis.ids, formula, is_complete=hypothesis.is_complete)
        assert hypothesis.score == pytest.approx(expected, abs=1e-4)
        assert hypothesis.is_complete or len(hypothesis.ids) == longest


def score_of(
    following: Callable[[tuple[int, ...]], list[float]],
    ids: tuple[int, ...],
    formula: Penalty,
    *,
    is_complete: bool,
) -> float:
    """The teacher-forced score of a hypothesis, including its end token if it has one.

    following: the log-probability of each token after some tokens.
    """
    scored = (*ids, EOS_ID) if is_complete else ids
    total = sum(following(ids[:position])[token] for position, token in enumerate(scored))
    return total / length_penalty(len(scored), 0.6, formula)


def test_a_hypothesis_at_the_limit_is_scored_without_an_end_token() -> None:
    model = random_model(30, 1)
    with torch.no_grad():
        model.embedding.weight[EOS_ID] = 0
    found = beam_search(model, SOURCE, beam_size=3, max_target_length=4)
    assert [len(hypothesis.ids) for hypothesis in found] == [4, 4, 4]
    assert not any(hypothesis.is_complete for hypothesis in found)
    scores = [hypothesis.score for hypothesis in found]
    assert scores == sorted(scores, reverse=True)
    for hypothesis in found:
        assert hypothesis.score == pytest.approx(hypothesis.log_probability / ((5 + 4) / 6) ** 0.6)


def test_length_penalties_by_hand() -> None:
    assert length_penalty(7, 0.6, "wu") == pytest.approx(2**0.6)
    assert length_penalty(4, 0.5, "power") == pytest.approx(2.0)
    assert length_penalty(9, 0.0, "wu") == length_penalty(9, 0.0, "power") == 1.0


# With seed 50, the token after the length limit is the end token for one hypothesis, and not for another one.
@pytest.mark.parametrize("seed", [*range(12), 50])
def test_beam_search_equals_the_reference_search_over_whole_prefixes(seed: int) -> None:
    beam_size, longest = 2 + seed % 4, 2 + seed % 5
    model = random_model(12, seed)
    with torch.no_grad():
        # With this bonus, end tokens are sometimes among the best candidates and sometimes below them.
        model.embedding.weight[EOS_ID] *= 1.5
    options = DecodingOptions(beam_size=beam_size, num_hypotheses=beam_size, max_target_length=longest)
    expected = reference_search(
        lambda ids: next_log_probabilities(model, SOURCE, [(1, *ids)])[0].tolist(), options, eos_id=EOS_ID
    )
    found = beam_search(model, SOURCE, beam_size=beam_size, max_target_length=longest)
    assert [(one.ids, one.is_complete) for one in found] == [
        (one.ids, one.finish_reason is FinishReason.STOP) for one in expected
    ]
    assert [one.score for one in found] == pytest.approx([one.score for one in expected], abs=1e-4)


@pytest.mark.parametrize("beam_size", [1, 2])
def test_a_text_that_cannot_be_encoded_is_named(tokenizer: Tokenizer, beam_size: int) -> None:
    model = random_model(tokenizer.vocab_size, 1)
    texts = ["Anna", " ".join(chr(0x1F600 + number) for number in range(9))]
    with pytest.raises(TokenizerError, match=r"^text 2: more than 8 runs of unknown characters"):
        translate(model, tokenizer, texts, beam_size=beam_size)
    with pytest.raises(TokenizerError, match="no piece '>>fr<<'") as caught:
        translate(model, tokenizer, texts, beam_size=beam_size, tag=">>fr<<")
    assert not str(caught.value).startswith("text")
