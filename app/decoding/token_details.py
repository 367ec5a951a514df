"""Details of each token beside its score: alternatives, and attention to the source.

The key of a token's details is the prefix before the token, so hypotheses with a common prefix share them. Only
sentences whose options need details have any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from app.decoding.options import Alternative, DecodingOptions, Hypothesis

# Lower bound of a source token's attention before the logarithm is taken, because log(0) is infinite.
MIN_COVERAGE = 1e-10


class TokenDetails:
    """The details of one sentence."""

    def __init__(self, options: DecodingOptions, source_length: int) -> None:
        """source_length: attention columns that belong to the source, including its end token's column."""
        self._num_alternatives = options.num_alternatives
        self._has_alignment = options.alignment
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
        """Record a step of each live hypothesis.

        prefixes: subwords of each hypothesis before the step. ids, log_probabilities: (live, num_candidates), the
        model's most probable tokens; num_candidates is at least min(num_alternatives, vocab_size). alignment: attention
        to the source, (live, capacity), of which the first source_length columns are used; None if the options ask for
        neither the alignment nor a coverage penalty.
        """
        if k := self._num_alternatives:
            rows = zip(prefixes, ids[:, :k].tolist(), log_probabilities[:, :k].tolist(), strict=True)
            for prefix, tokens, scores in rows:
                self._alternatives[prefix] = tuple(map(Alternative, tokens, scores))
        if alignment is not None:
            self.add_attention(prefixes, alignment[:, : self._source_length].copy())

    def add_attention(self, prefixes: Sequence[tuple[int, ...]], attention: NDArray[np.float32]) -> None:
        """Record a step's attention to the source, (live, source_length), without a copy."""
        self._attention.update(zip(prefixes, attention, strict=True))

    def coverage(self, ids: tuple[int, ...], num_tokens: int) -> float:
        """The coverage, the factor of `coverage_penalty`: the sum over source tokens of log(attention to the token).

        The attention to a source token is summed over the target tokens, and limited to the range from MIN_COVERAGE to
        1. So the coverage is at most 0. Without attention the coverage is 0. Equation 14 of Wu et al. 2016, "Google's
        Neural Machine Translation System". ids: the hypothesis. num_tokens: its tokens, including the end token if
        there is one.
        """
        if not num_tokens or not self._attention:
            return 0.0
        sums = np.sum(
            [self._attention[ids[:length]] for length in range(num_tokens)], axis=0, dtype=np.float64
        )
        return float(np.log(np.clip(sums, MIN_COVERAGE, 1.0)).sum())

    def attach_to(self, hypothesis: Hypothesis) -> Hypothesis:
        """The hypothesis with the requested details of each of its tokens."""
        prefixes = [hypothesis.ids[:length] for length in range(len(hypothesis.token_log_probabilities))]
        if self._num_alternatives:
            alternatives = tuple(self._alternatives[prefix] for prefix in prefixes)
            hypothesis = replace(hypothesis, alternatives=alternatives)
        if self._has_alignment:
            alignment = tuple(tuple(self._attention[prefix].tolist()) for prefix in prefixes)
            hypothesis = replace(hypothesis, alignment=alignment)
        return hypothesis
