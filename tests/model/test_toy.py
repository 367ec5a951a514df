"""A complete training run on a task with known answers: copy or reverse a sequence."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from model import checkpoint
from model.batches import Batches
from model.config import BOS_ID, EOS_ID, ModelConfig
from model.corpus import Corpus
from model.evaluate import greedy_batch
from model.options import TrainingOptions
from model.trainer import Trainer
from model.transformer import Transformer

pytestmark = pytest.mark.training

COPY, REVERSE, FIRST = 4, 5, 6
VOCAB_SIZE = FIRST + 10


def examples(count: int, seed: int) -> list[tuple[list[int], list[int]]]:
    """Sources and their targets. A source is COPY or REVERSE and 1-3 symbols. No source occurs twice."""
    random_numbers = random.Random(seed)
    made: dict[tuple[int, ...], list[int]] = {}
    while len(made) < count:
        symbols = random_numbers.choices(range(FIRST, VOCAB_SIZE), k=random_numbers.randint(1, 3))
        task = random_numbers.choice((COPY, REVERSE))
        made[task, *symbols] = symbols if task == COPY else symbols[::-1]
    return [(list(source), target) for source, target in made.items()]


def corpus_of(pairs: list[tuple[list[int], list[int]]]) -> Corpus:
    sentences = [np.array([*ids, EOS_ID], np.int32) for pair in pairs for ids in pair]
    starts = np.concatenate([[0], np.cumsum([len(ids) for ids in sentences])])
    return Corpus(np.concatenate(sentences), starts, np.zeros(len(pairs), np.int16), ("toy",), Counter())


@pytest.mark.slow
def test_copy_and_reverse_are_learnt(tmp_path: Path, tokenizer_path: Path) -> None:
    everything = examples(2_000, seed=1)
    train, test = everything[:-200], everything[-200:]
    torch.manual_seed(1)
    config = ModelConfig(
        VOCAB_SIZE, d_model=48, num_heads=4, d_ff=96, num_encoder_layers=2, num_decoder_layers=2, dropout=0.0
    )
    options = TrainingOptions(
        max_steps=300,
        evaluate_every=300,
        save_every=25,
        warmup_steps=100,
        learning_rate_factor=0.5,
        label_smoothing=0.0,
        precision="fp32",
    )
    batches = Batches(corpus_of(train), max_tokens=400, seed=1)
    trainer = Trainer(Transformer(config), batches, run=tmp_path, tokenizer=tokenizer_path, options=options)
    trainer.train(Batches(corpus_of(test), max_tokens=2000, seed=0))
    model = trainer.model.eval()
    model.load_state_dict(checkpoint.average(checkpoint.step_folders(tmp_path)[-6:]))
    found = greedy_batch(model, [[*source, EOS_ID] for source, _ in test], max_target_length=10)
    num_right = sum(ids == target for ids, (_, target) in zip(found, test, strict=True))
    assert BOS_ID not in {token for ids in found for token in ids}
    assert num_right / len(test) > 0.99
