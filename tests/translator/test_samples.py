"""The searches of several samples of a sentence, and their joint result."""

from __future__ import annotations

import time

import pytest

from app.decoding.option_changes import OptionChanges
from app.decoding.options import DecodingOptions, Sampling
from app.decoding.validation import MAX_SEED
from app.engine.sequence import SequenceResult
from app.errors import DeadlineExceeded
from app.text.tokenizer import Tokenizer
from app.translator.samples import join_samples, samples_of
from tests.api.server_process import ROOT
from tests.translator.scripted import ScriptedTranslator


def test_the_seed_after_the_greatest_one_is_zero() -> None:
    options = DecodingOptions(beam_size=1, num_hypotheses=3, sampling=Sampling(seed=MAX_SEED - 1))
    seeds = [each.sampling.seed for each in samples_of(options) if each.sampling is not None]
    assert seeds == [MAX_SEED - 1, MAX_SEED, 0]


@pytest.mark.parametrize("others", [True, False])
def test_a_sentence_is_cached_if_all_of_its_samples_are(others: bool) -> None:
    results = [
        SequenceResult([], 0.0, 0.0, 0.0, num_steps=2, is_cached=is_cached) for is_cached in (True, others)
    ]
    assert join_samples(results).is_cached is others


def test_samples_without_a_seed_that_arrive_after_the_deadline_are_an_error() -> None:
    script = ScriptedTranslator(Tokenizer(ROOT / "bundles" / "en-de" / "source.spm"), str)
    options = OptionChanges.of(beam_size=1, sampling=Sampling(is_seeded=False))
    with pytest.raises(DeadlineExceeded):
        script("Anna draws.", options=options, deadline=time.monotonic())
    assert script.sources == ["Anna draws."]
