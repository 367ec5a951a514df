"""Subwords of a hypothesis as a caller sees them: characters, places, alternatives, where they come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from app.decoding.options import Hypothesis
from app.text.spans import Offsets
from app.text.tokenizer import Tokenizer
from app.translator.request import Alternative, TextSpan, Token

# Of a weight: a float32's further ones would only lengthen the answer.
NUM_DIGITS = 4


class SourceColumns(NamedTuple):
    """Where a part's source subwords stand among its segment's: the first, and how many the segment has."""

    start: int
    width: int


class TokenBuilder:
    """Tells the tokens of one source's hypotheses."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        verbatim_spans: Sequence[str],
        source: Sequence[TextSpan],
        columns: SourceColumns | None = None,
    ) -> None:
        """tokenizer: of the target. carried: the source's runs, as they look in the translation.

        source: places of the source's subwords in the caller's text, in the order that the model was given them, the
        end token last; empty where no alignment is told. columns: None where no weights are told.
        """
        self._tokenizer = tokenizer
        self._carried = verbatim_spans
        self._source = source
        self._columns = columns
        self._has_characters = np.array([span.end > span.start for span in source], bool)

    def build(self, hypothesis: Hypothesis, text: str, offsets: Sequence[Offsets]) -> tuple[Token, ...]:
        """One token for each of the hypothesis', its end token last where it has one.

        text: the translation. offsets: where each of its ids stands there, and behind them the end.
        """
        told = []
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
            told.append(token)
        return tuple(told)

    def _text(self, identity: int) -> str | None:
        """What a subword would say by itself; None for the end token."""
        return (
            None if identity == self._tokenizer.eos_id else self._tokenizer.text_of(identity, self._carried)
        )

    def _most_attended(self, hypothesis: Hypothesis, index: int) -> tuple[TextSpan | None, float | None]:
        """The source subword with the largest weight of those that have characters."""
        if not hypothesis.alignment or not self._has_characters.any():
            return None, None
        weights = np.array(hypothesis.alignment[index][: len(self._source)])
        best = int(np.where(self._has_characters, weights, -1.0).argmax())
        return self._source[best], float(weights[best])

    def _weights(self, hypothesis: Hypothesis, index: int) -> tuple[float, ...]:
        """One for each source subword of the segment; 0 for those of its other parts."""
        if self._columns is None or not hypothesis.alignment:
            return ()
        row = np.zeros(self._columns.width)
        own = hypothesis.alignment[index]
        row[self._columns.start : self._columns.start + len(own)] = own
        return tuple(row.round(NUM_DIGITS).tolist())
