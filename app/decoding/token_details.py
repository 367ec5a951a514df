"""What the steps told of a sentence's hypotheses beside their scores: alternatives, and attention to the source.

Kept by what a hypothesis had said when the step was made, whatever became of it: the search branches, its notes
do not. Only sentences that asked keep any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from app.decoding.options import Alternative, DecodingOptions, Hypothesis

# A source token that got no attention at all: its logarithm is taken of this.
MIN_COVERAGE = 1e-10


class TokenDetails:
    """One sentence's details. source_length: columns of the attention that are its own, the end token's too."""

    def __init__(self, options: DecodingOptions, source_length: int) -> None:
        self._num_alternatives = options.num_alternatives
        self._wants_alignment = options.alignment
        self._source_length = source_length
        self._alternatives: dict[tuple[int, ...], tuple[Alternative, ...]] = {}
        self._attention: dict[tuple[int, ...], NDArray[np.float32]] = {}

    def add(
        self,
        prefixes: Sequence[tuple[int, ...]],
        *,
        ids: NDArray[np.int64],
        log_probabilities: NDArray[np.float32],
        alignment: NDArray[np.float32] | None,
    ) -> None:
        """Note a step of each live hypothesis.

        prefixes: what it had said. ids, log_probabilities: (live, num_candidates), the model's own, at least
        num_alternatives wide where the vocabulary is. alignment: (live, capacity), None where nobody asked for it.
        """
        if k := self._num_alternatives:
            columns = zip(prefixes, ids[:, :k].tolist(), log_probabilities[:, :k].tolist(), strict=True)
            for prefix, tokens, scores in columns:
                self._alternatives[prefix] = tuple(map(Alternative, tokens, scores))
        if alignment is not None:
            self.add_attention(prefixes, alignment[:, : self._source_length].copy())

    def add_attention(self, prefixes: Sequence[tuple[int, ...]], attention: NDArray[np.float32]) -> None:
        """Note a step's attention to the source alone, (live, source_length), which is kept."""
        self._attention.update(zip(prefixes, attention, strict=True))

    def coverage(self, ids: tuple[int, ...], num_tokens: int) -> float:
        """Sum over the source of log(min(attention paid to it by all tokens, 1)): at most 0 (equation 14).

        num_tokens: of the hypothesis, its end token counted where it has one.
        """
        if not num_tokens or not self._attention:
            return 0.0
        paid = np.sum(
            [self._attention[ids[:length]] for length in range(num_tokens)], axis=0, dtype=np.float64
        )
        return float(np.log(np.clip(paid, MIN_COVERAGE, 1.0)).sum())

    def attach_to(self, hypothesis: Hypothesis) -> Hypothesis:
        """The hypothesis with what was asked for, for each of its tokens."""
        prefixes = [hypothesis.ids[:length] for length in range(len(hypothesis.token_log_probabilities))]
        if self._num_alternatives:
            alternatives = tuple(self._alternatives[prefix] for prefix in prefixes)
            hypothesis = replace(hypothesis, alternatives=alternatives)
        if self._wants_alignment:
            alignment = tuple(tuple(self._attention[prefix].tolist()) for prefix in prefixes)
            hypothesis = replace(hypothesis, alignment=alignment)
        return hypothesis
