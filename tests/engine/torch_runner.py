"""A runner over the reference model, without a cache. Each row stores its sentence and its prefix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from app.runtime.interface import Int32s, Limits, StepInput, StepOutput
from model.config import BOS_ID, EOS_ID
from model.search import search_log_probabilities
from model.transformer import Transformer


class TorchRunner:
    """A Runner that decodes the whole prefix of every row in each step."""

    def __init__(self, model: Transformer, *, num_rows: int) -> None:
        config = model.config
        self.model = model
        self.limits = Limits(
            num_rows=num_rows,
            max_source_length=config.max_length,
            max_target_length=config.max_length,
            vocab_size=config.vocab_size,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
        )
        self.sources: list[list[int]] = [[] for _ in range(num_rows)]
        self.prefixes: list[list[int]] = [[] for _ in range(num_rows)]

    def encode(self, sources: Sequence[Int32s], rows: Sequence[int]) -> None:
        for source, row in zip(sources, rows, strict=True):
            self.sources[row] = source.tolist()
            self.prefixes[row] = []

    def decode(self, step: StepInput) -> StepOutput:
        scores = []
        for row, token in enumerate(step.ids.tolist()):
            position = step.positions[row]
            assert position in (0, len(self.prefixes[row]))  # 0: a first step, or an unused row
            self.prefixes[row] = [*self.prefixes[row][:position], token]
            scores.append(search_log_probabilities(self.model, self.sources[row], [self.prefixes[row]])[0])
        best = torch.stack(scores).topk(step.num_candidates)
        return StepOutput(best.values.numpy(), best.indices.numpy())

    def share_cores(self, num_sharing: int) -> None:
        """Nothing to share."""

    def copy_rows(self, sources: Int32s, targets: Int32s, lengths: Int32s) -> None:
        for row, sentence in zip(targets.tolist(), [self.sources[row] for row in sources], strict=True):
            self.sources[row] = sentence
        self.reorder(sources, targets, lengths, np.zeros_like(lengths))

    def reorder(self, sources: Int32s, targets: Int32s, lengths: Int32s, shared: Int32s) -> None:
        moved = [self.prefixes[row][:length] for row, length in zip(sources, lengths, strict=True)]
        for row, prefix in zip(targets.tolist(), moved, strict=True):
            self.prefixes[row] = prefix


def random_source(rng: np.random.Generator, vocab_size: int, longest: int) -> list[int]:
    return [*rng.integers(4, vocab_size, rng.integers(1, longest)).tolist(), EOS_ID]
