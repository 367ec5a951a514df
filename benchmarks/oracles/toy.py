"""Trains a small post-norm model on an artificial language.

Hugging Face's class of Marian models computes only post-norm, as in the paper, and the bundled model is pre-norm. So
the comparison with this class needs another model.

A source word has two possible translations, some words become two words, and neighbours sometimes swap. So a search has
several probable continuations at every step.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
import torch.nn.functional as F

from benchmarks.oracles.answers import Ids
from model.config import BOS_ID, EOS_ID, PAD_ID, preset
from model.schedule import learning_rate
from model.search import pad
from model.transformer import Transformer

FIRST_WORD, NUM_WORDS = 10, 40
VOCAB_SIZE = FIRST_WORD + 3 * NUM_WORDS  # source words, then their first and their second translations
LENGTHS = (3, 16)  # the minimum and the maximum number of words of a source
BATCH_SIZE = 48
# The probability that a word takes its second form. The probability that two neighbours swap. Every DOUBLE-th word of
# the vocabulary becomes two words.
SECOND_FORM, SWAP, DOUBLE = 0.3, 0.2, 5


def sentences(seed: int) -> Iterator[tuple[Ids, Ids]]:
    """Endless random sentence pairs. Each side has the end token last."""
    random_numbers = random.Random(seed)
    while True:
        words = [random_numbers.randrange(NUM_WORDS) for _ in range(random_numbers.randint(*LENGTHS))]
        order = list(range(len(words)))
        for place in range(0, len(order) - 1, 2):
            if random_numbers.random() < SWAP:
                order[place], order[place + 1] = order[place + 1], order[place]
        target: list[int] = []
        for place in order:
            form = 1 + (random_numbers.random() < SECOND_FORM)
            target.append(FIRST_WORD + form * NUM_WORDS + words[place])
            if words[place] % DOUBLE == 0:
                target.append(FIRST_WORD + NUM_WORDS + (words[place] + 1) % NUM_WORDS)
        yield (*(FIRST_WORD + word for word in words), EOS_ID), (*target, EOS_ID)


def train_toy(num_steps: int) -> Transformer:
    """A model of the tiny preset, trained from seed 1."""
    torch.manual_seed(1)
    model = Transformer(preset("tiny", VOCAB_SIZE, norm="post", dropout=0.0))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9)
    stream = sentences(seed=1)
    for step in range(1, num_steps + 1):
        pairs = [next(stream) for _ in range(BATCH_SIZE)]
        logits = model(
            pad([source for source, _ in pairs]), pad([(BOS_ID, *target[:-1]) for _, target in pairs])
        )
        labels = pad([target for _, target in pairs])
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=PAD_ID)
        rate = learning_rate(
            step, d_model=model.config.d_model, warmup_steps=max(1, num_steps // 4), factor=0.5
        )
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model.eval()


def toy_sources(count: int) -> list[Ids]:
    """Distinct source sentences. Hardly any of them occur in the training data."""
    stream = sentences(seed=2)
    found: dict[Ids, None] = {}
    while len(found) < count:
        found[next(stream)[0]] = None
    return list(found)
