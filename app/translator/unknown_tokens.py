"""Finds the verbatim span of the source that each unknown token of a translation stands for.

An imported model without placeholder symbols in its vocabulary has one token for everything that the vocabulary lacks.
The model reads this unknown token in the place of every placeholder symbol. In the output, an unknown token has the id
of the first placeholder symbol. The attention shows which span each unknown token is a copy of.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from app.decoding.options import Hypothesis
from app.engine.sequence import SequenceResult
from app.text.tokenizer import PLACEHOLDER_SYMBOLS, Encoded, Tokenizer


class UnknownTokens:
    """The unknown tokens of one model. Immutable, so any thread may use it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """tokenizer: of the model's vocabulary, or of its target vocabulary if it has two."""
        self._symbol_ids = tuple(map(tokenizer.id_of, PLACEHOLDER_SYMBOLS))
        self._all = frozenset((*self._symbol_ids, tokenizer.unk_id))

    def as_written(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        """Return a target as the model can write it: each symbol and unknown token becomes the first symbol."""
        if self._all.isdisjoint(ids):
            return ids
        return tuple(self._symbol_ids[0] if each in self._all else each for each in ids)

    def matched(self, result: SequenceResult, source: Encoded) -> SequenceResult:
        """Return the result with the symbol of one span of the source for each unknown token.

        Without attention, the spans have the order of the source.
        """
        if len(source.verbatim_spans) < 2:
            return result
        return replace(result, hypotheses=[self._matched(each, source) for each in result.hypotheses])

    def _matched(self, hypothesis: Hypothesis, source: Encoded) -> Hypothesis:
        written = [index for index, each in enumerate(hypothesis.ids) if each == self._symbol_ids[0]]
        if not written:
            return hypothesis
        num_spans = len(source.verbatim_spans)
        weights = np.zeros((len(written), num_spans))
        if hypothesis.alignment:
            columns = [source.ids.index(each) for each in self._symbol_ids[:num_spans]]
            weights = np.array([hypothesis.alignment[index] for index in written])[:, columns]
        ids = list(hypothesis.ids)
        for index, span in zip(written, _best_spans(weights), strict=True):
            # A token for which no span is left gets a symbol without a span, which the tokenizer drops. If all symbols
            # have spans, this token gets the last symbol, and the tokenizer keeps the first of equal symbols.
            ids[index] = self._symbol_ids[min(num_spans, len(self._symbol_ids) - 1) if span is None else span]
        return replace(hypothesis, ids=tuple(ids))


def _best_spans(weights: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> list[int | None]:
    """Return a span for each token, the pairs with the largest weights first; None if no span is left.

    weights (num_tokens, num_spans): each token's attention to each span.
    """
    spans: list[int | None] = [None] * len(weights)
    remaining = weights.copy()
    for _ in range(min(weights.shape)):
        token, span = divmod(int(remaining.argmax()), remaining.shape[1])
        spans[token] = span
        remaining[token, :] = remaining[:, span] = -np.inf
    return spans
