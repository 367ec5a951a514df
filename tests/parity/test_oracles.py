"""The comparison with other engines: the conversion of weights, and the classification of differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from app.decoding.options import EarlyStop
from benchmarks.oracles import reference
from benchmarks.oracles.answers import Answer, Task, answer_of
from benchmarks.oracles.comparison import compare, kind_of
from benchmarks.oracles.reference import ReferenceScorer, decision_margin
from model.config import BOS_ID, EOS_ID, PAD_ID
from model.search import greedy_search, next_log_probabilities, pad
from model.transformer import Transformer
from tests.export.tiny import VOCAB_SIZE, random_model

MAX_LENGTH = 24


def sources() -> list[tuple[int, ...]]:
    random_numbers = np.random.default_rng(7)
    return [
        (*random_numbers.integers(EOS_ID + 1, VOCAB_SIZE, length).tolist(), EOS_ID)
        for length in (3, 9, 1, 14)
    ]


@pytest.mark.seconds
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_hugging_face_model_gives_the_same_logits(norm: str) -> None:
    """The rows have different lengths, so the padding and the positions matter too."""
    pytest.importorskip("transformers")
    from benchmarks.oracles.transformers_oracle import m2m100, marian

    model = random_model(norm=norm, max_length=MAX_LENGTH)
    theirs: Any = marian(model) if norm == "post" else m2m100(model)
    source = pad(sources())
    target = pad([(BOS_ID, *ids[:-1]) for ids in sources()])
    with torch.no_grad():
        expected = model(source, target)
        found = theirs(
            input_ids=source, attention_mask=(source != PAD_ID).long(), decoder_input_ids=target
        ).logits
    is_real = target != PAD_ID
    torch.testing.assert_close(found[is_real], expected[is_real], atol=2e-5, rtol=0)


def test_a_teacher_forced_score_is_the_sum_over_steps() -> None:
    """Sources and targets of several lengths in one batch."""
    model = random_model(max_length=MAX_LENGTH)
    targets = [(9, 8, 7, 6), (), (5, 5), (11, 30, 12, 4, 4, 4, 90)]
    pairs = list(zip(sources(), targets, strict=True))
    scorer = ReferenceScorer(model)
    assert scorer.scores(pairs[:2]) == scorer.scores(pairs)[:2]
    for (source, target), found in zip(pairs, scorer.scores(pairs), strict=True):
        tokens, total = [BOS_ID], 0.0
        for token in (*target, EOS_ID):
            total += float(next_log_probabilities(model, source, [tokens])[0, token])
            tokens.append(token)
        assert found == pytest.approx(total, abs=1e-4)


def test_the_margin_of_greedy_search_is_the_smallest_gap_between_its_two_best_tokens() -> None:
    model = random_model(max_length=MAX_LENGTH)
    source, ids = sources()[1], [BOS_ID]
    gaps = []
    while len(ids) < 6:
        best = next_log_probabilities(model, source, [ids])[0].topk(2)
        gaps.append(float(best.values[0] - best.values[1]))
        ids.append(int(best.indices[0]))
    assert EOS_ID not in ids
    assert decision_margin(model, source, Task([source], 1, 5)) == pytest.approx(min(gaps), abs=1e-5)


# Steps of an invented beam of 2: the best continuations, best first, and the step's margin. Each continuation has a
# summed log-probability, the number of the live hypothesis that it continues, and a token.
STEPS = {
    "last continued, first dropped": ([(-1.0, 0, 5), (-2.0, 1, 6), (-2.3, 0, 7), (-4.0, 1, 8)], 0.3),
    "end just within the beam": ([(-1.0, 0, 5), (-2.0, 1, EOS_ID), (-2.1, 0, 7), (-4.0, 1, 8)], 0.1),
    "end just below the beam": ([(-1.0, 0, 5), (-2.0, 1, 6), (-2.2, 0, EOS_ID), (-4.0, 1, 8)], 0.2),
}


@pytest.mark.parametrize(("ranked", "gap"), STEPS.values(), ids=STEPS)
def test_the_margin_of_a_step(ranked: list[tuple[float, int, int]], gap: float) -> None:
    assert reference._gap(ranked, beam_size=2) == pytest.approx(gap)


def test_when_a_search_is_done_by_each_stopping_rule() -> None:
    """FIRST needs two finished hypotheses, the beam size. BOUND needs one that is as good as the best live one."""
    first, bound = (Task([], 2, 9, early_stop) for early_stop in EarlyStop)
    assert reference._is_done([-3.0, -4.0], -1.0, first)
    assert not reference._is_done([-3.0], -9.0, first)
    assert reference._is_done([-3.0], -9.0, bound)
    assert not reference._is_done([-3.0, -4.0], -1.0, bound)
    assert not reference._is_done([], -9.0, bound)


def test_kinds_of_differences() -> None:
    """Arguments: both scores, and the margin of the search. A gap or margin below 0.0001 is a tie."""
    assert kind_of(-2.0, -2.00005, 1.0, is_at_limit=False) == "tie"
    assert kind_of(-2.0, -2.5, 0.00005, is_at_limit=False) == "tie in the search"
    assert kind_of(-2.0, -2.5, 0.1, is_at_limit=True) == "length limit"
    assert kind_of(-2.0, -2.5, 0.1, is_at_limit=False) == "unexplained"


def test_answers_end_before_the_end_token() -> None:
    assert answer_of([7, 8, EOS_ID, PAD_ID]) == Answer((7, 8))
    assert answer_of([7, 8, 9], log_probability=-1.0) == Answer((7, 8, 9), -1.0)


def test_a_wrong_answer_is_unexplained() -> None:
    model: Transformer = random_model(max_length=MAX_LENGTH)
    task = Task(sources(), 1, 12)
    right = [Answer(greedy_search(model, source, max_target_length=12).ids[:5]) for source in task.sources]
    wrong = [right[0], Answer((5, *right[1].ids[1:])), *right[2:]]
    found = compare(ReferenceScorer(model), task, right, wrong)
    assert (found.num_sentences, found.num_same) == (4, 3)
    assert [(one.sentence, one.kind) for one in found.differences] == [(1, "unexplained")]
    assert found.score_error is None
