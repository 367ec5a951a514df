"""Builds the tokens of a response: characters, positions, alternatives and attention of each subword."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from app.decoding.options import Hypothesis
from app.text.segmentation import Offsets
from app.text.tokenizer import Tokenizer
from app.translator.request import Alternative, TextSpan, Token

# Decimal digits of `weights`; `attention` is not rounded. More make responses longer; fewer make weights less exact.
NUM_DIGITS = 4


class SourceColumns(NamedTuple):
    """The position of a part's source subwords among those of its segment, as columns of the attention weights.

    start: the first column of the part. width: the number of columns of the whole segment.
    """

    start: int
    width: int


class TokenBuilder:
    """Builds the tokens of the hypotheses of one source."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        verbatim_spans: Sequence[str],
        source: Sequence[TextSpan],
        columns: SourceColumns | None = None,
    ) -> None:
        """tokenizer: of the target vocabulary. verbatim_spans: of the source, as they look in the translation.

        source: the spans of the source's subwords in the caller's text, end token and tag included; empty without
            alignment.
        columns: None if no weights are returned.
        """
        self._tokenizer = tokenizer
        self._verbatim_spans = verbatim_spans
        self._source = source
        self._columns = columns
        self._has_characters = np.array([span.end > span.start for span in source], bool)

    def build(self, hypothesis: Hypothesis, text: str, offsets: Sequence[Offsets]) -> tuple[Token, ...]:
        """Return one token for each subword of the hypothesis, with its end token last if it has one.

        text: the segment's translation, or the translation to score. offsets: in `text`, one pair for each subword,
        and an empty pair for the end of the hypothesis, even if it has no end token.
        """
        tokens = []
        for index, log_probability in enumerate(hypothesis.token_log_probabilities):
            is_end = index == len(hypothesis.ids)
            span = TextSpan(*offsets[index])
            alternatives = hypothesis.alternatives[index] if hypothesis.alternatives else ()
            source, attention = (None, None) if is_end else self._most_attended(hypothesis, index)
            token = Token(
                text=None if is_end else text[span.start : span.end],
                target=span,
                log_probability=log_probability,
                alternatives=tuple(
                    Alternative(self._text(each.id), each.log_probability) for each in alternatives
                ),
                source=source,
                attention=attention,
                weights=() if is_end else self._weights(hypothesis, index),
            )
            tokens.append(token)
        return tuple(tokens)

    def _text(self, identity: int) -> str | None:
        """Return the text of a single subword; None for the end token."""
        if identity == self._tokenizer.eos_id:
            return None
        return self._tokenizer.text_of(identity, self._verbatim_spans)

    def _most_attended(self, hypothesis: Hypothesis, index: int) -> tuple[TextSpan | None, float | None]:
        """Return the source subword with characters that has the largest weight, and that weight."""
        if not hypothesis.alignment or not self._has_characters.any():
            return None, None
        weights = np.array(hypothesis.alignment[index][: len(self._source)])
        best = int(np.where(self._has_characters, weights, -1.0).argmax())
        return self._source[best], float(weights[best])

    def _weights(self, hypothesis: Hypothesis, index: int) -> tuple[float, ...]:
        """Return one weight for each source subword of the segment; 0 for a subword of another part."""
        if self._columns is None or not hypothesis.alignment:
            return ()
        row = np.zeros(self._columns.width)
        weights = hypothesis.alignment[index]
        row[self._columns.start : self._columns.start + len(weights)] = weights
        return tuple(row.round(NUM_DIGITS).tolist())
