"""The engine finds the same subwords and scores as the reference search of the paper's model."""

from __future__ import annotations

from typing import TypedDict

import numpy as np
import pytest
import torch

from app.decoding.options import DecodingOptions, FinishReason, LengthPenalty
from app.engine.limits import EngineLimits
from model.config import EOS_ID, ModelConfig
from model.search import Penalty, beam_search, greedy_search
from model.transformer import Transformer
from tests.engine.core_driver import CoreDriver, hypotheses_of
from tests.engine.torch_runner import TorchRunner, random_source

CONFIG = ModelConfig(
    vocab_size=50, d_model=16, num_heads=2, d_ff=32, num_encoder_layers=1, num_decoder_layers=1, dropout=0.0
)


class Settings(TypedDict):
    max_target_length: int
    alpha: float
    formula: Penalty


@pytest.fixture(scope="module")
def model() -> Transformer:
    torch.manual_seed(1)
    model = Transformer(CONFIG).eval()
    with torch.no_grad():
        model.embedding.weight.mul_(2.0)  # sharper distributions than at initialisation, so ties are rare
        model.embedding.weight[EOS_ID].mul_(3.0)  # and some sentences end
    return model


@pytest.mark.seconds
@pytest.mark.parametrize("formula", ["wu", "power"])
def test_the_engine_equals_the_reference_search(model: Transformer, formula: Penalty) -> None:
    rng = np.random.default_rng(11)
    driver = CoreDriver(TorchRunner(model, num_rows=20), EngineLimits(max_encode_tokens=256))
    jobs = []
    for number in range(20):
        beam_size = [1, 1, 2, 4, 4, 8][number % 6]
        source, options = (
            random_source(rng, CONFIG.vocab_size, 12),
            DecodingOptions(
                beam_size=beam_size,
                num_hypotheses=beam_size,
                length_penalty=LengthPenalty(formula),
                alpha=[0.0, 0.6, 1.0][number % 3],
                max_target_length=int(rng.integers(1, 12)),
            ),
        )
        jobs.append((driver.submit(source, options), source, options))
        driver.step()
    driver.run()
    reasons = set()
    for sequence, source, options in jobs:
        settings = Settings(max_target_length=options.max_target_length, alpha=options.alpha, formula=formula)
        if options.beam_size == 1:
            reference = [greedy_search(model, source, **settings)]
        else:
            reference = beam_search(model, source, beam_size=options.beam_size, **settings)
        found = hypotheses_of(sequence)
        assert [(one.ids, one.finish_reason is FinishReason.STOP) for one in found] == [
            (one.ids, one.is_complete) for one in reference
        ]
        np.testing.assert_allclose([one.score for one in found], [one.score for one in reference], atol=1e-5)
        reasons |= {one.finish_reason for one in found}
    assert reasons == {FinishReason.STOP, FinishReason.LENGTH}
