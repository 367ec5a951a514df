"""Measure a plain training loop over torch.nn.Transformer: random padded batches and cross-entropy."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.training.encoded import (
    BOS_ID,
    D_FF,
    D_MODEL,
    DROPOUT,
    NUM_DECODER_LAYERS,
    NUM_ENCODER_LAYERS,
    NUM_HEADS,
    PAD_ID,
    Encoded,
    random_batches,
)
from benchmarks.training.measure import run, trainer_arguments


class PlainModel(nn.Module):
    """An embedding, torch.nn.Transformer, and an output projection that shares the embedding's weights."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, D_MODEL, padding_idx=PAD_ID)
        self.transformer = nn.Transformer(
            D_MODEL,
            NUM_HEADS,
            NUM_ENCODER_LAYERS,
            NUM_DECODER_LAYERS,
            D_FF,
            DROPOUT,
            batch_first=True,
            norm_first=True,
        )
        position = torch.arange(512)[:, None]
        frequency = torch.exp(torch.arange(0, D_MODEL, 2) * (-math.log(10000.0) / D_MODEL))
        angles = position * frequency
        self.register_buffer("positions", torch.stack((angles.sin(), angles.cos()), -1).flatten(-2))
        self.dropout = nn.Dropout(DROPOUT)

    def embed(self, ids: Tensor) -> Tensor:
        """Embed ids and add positions: (batch, length) -> (batch, length, D_MODEL)."""
        positions: Tensor = self.positions[: ids.size(1)]  # type: ignore[index]
        embedded: Tensor = self.dropout(self.embedding(ids) * math.sqrt(D_MODEL) + positions)
        return embedded

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits (batch, target_length, vocab_size)."""
        source_padding, target_padding = source == PAD_ID, target == PAD_ID
        causal = torch.ones(target.size(1), target.size(1), dtype=torch.bool).triu(1)
        decoded = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=causal,
            src_key_padding_mask=source_padding,
            tgt_key_padding_mask=target_padding,
            memory_key_padding_mask=source_padding,
        )
        return F.linear(decoded, self.embedding.weight)


def main() -> None:
    """Measure."""
    args = trainer_arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    encoded = Encoded.load(args.data)
    model = PlainModel(encoded.vocab_size)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
    batches = random_batches(encoded)

    def update() -> int:
        source, labels = next(batches)
        target = np.concatenate((np.full((len(labels), 1), BOS_ID), labels[:, :-1]), axis=1)
        with torch.autocast("cpu", torch.bfloat16, enabled=args.precision == "bf16"):
            logits = model(torch.from_numpy(source), torch.from_numpy(target))
        loss = F.cross_entropy(
            logits.float().flatten(0, 1),
            torch.from_numpy(labels).flatten(),
            ignore_index=PAD_ID,
            label_smoothing=0.1,
        )
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return int((labels != PAD_ID).sum())

    run(update, args.seconds)


if __name__ == "__main__":
    main()
