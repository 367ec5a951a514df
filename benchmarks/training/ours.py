"""Measure Transduce's trainer, with its own loss, its own dropout, and batches of sentences of similar lengths."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from benchmarks.training.encoded import Encoded
from benchmarks.training.measure import run, trainer_arguments
from model.batches import Batches, Position
from model.config import preset
from model.corpus import Corpus
from model.options import TrainingOptions
from model.trainer import Trainer, Window, set_num_threads
from model.transformer import Transformer

BATCH_TOKENS = 4096


def main() -> None:
    """Measure."""
    args = trainer_arguments()
    set_num_threads(args.threads)
    torch.manual_seed(1)
    encoded = Encoded.load(args.data)
    num_pairs = len(encoded.starts) // 2
    corpus = Corpus(encoded.ids, encoded.starts, np.zeros(num_pairs, np.int16), ("data",))
    batches = Batches(corpus, max_tokens=BATCH_TOKENS, seed=1)
    trainer = Trainer(
        Transformer(preset("small", encoded.vocab_size, norm="pre")),
        batches,
        run=Path("unused"),
        tokenizer=Path("unused"),
        options=TrainingOptions(precision=args.precision),
    )
    stream = batches.since(Position())

    def update() -> int:
        window = Window()
        trainer.update(stream, window)
        return window.num_tokens

    run(update, args.seconds)


if __name__ == "__main__":
    main()
