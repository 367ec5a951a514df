"""What the model is given: the sentences of a text, in as many pieces as it needs, as subwords."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from app.bundle import LanguagePair
from app.errors import InvalidRequest, SourceTooLong
from app.text.segmentation import Span, fitting_spans, sentence_spans
from app.text.spans import source_offsets
from app.text.tokenizer import Encoded, Tokenizer, TokenizerError
from app.translator.request import TextSpan

# A piece is cut at this many characters a subword before it is tokenised at all: normalising is quadratic in
# runs of combining marks.
MAX_CHARACTERS_PER_TOKEN = 16


@dataclass(frozen=True)
class SourcePiece:
    """One thing to translate: where it stands in its text, what stands there, and its subwords."""

    span: Span
    text: str
    encoded: Encoded


class Cutter:
    """Cuts texts for one model. Immutable, so any thread may use it."""

    def __init__(self, tokenizer: Tokenizer, max_source_length: int) -> None:
        """max_source_length: subwords of the longest source, its end token counted."""
        self._tokenizer = tokenizer
        self._max_source_length = max_source_length

    def encode(self, part: str, pair: LanguagePair) -> Encoded | None:
        """The subwords of a part of a text, or None where the model cannot take it at once."""
        if len(part) > self._max_source_length * MAX_CHARACTERS_PER_TOKEN:
            return None
        try:
            encoded = self._tokenizer.encode(part)
        except TokenizerError:
            return None
        if pair.source_prefix is not None:
            prefix = self._tokenizer.id_of(pair.source_prefix)
            encoded = Encoded(ids=(prefix, *encoded.ids), carried=encoded.carried)
        return encoded if len(encoded.ids) <= self._max_source_length else None

    def pieces(self, text: str, pair: LanguagePair) -> Iterator[SourcePiece]:
        """A text's sentences, each in as many pieces as the model needs. Raises SourceTooLong."""
        for sentence in sentence_spans(text, pair.source):
            yield from self._pieces_of(text, sentence, pair)

    def _pieces_of(self, text: str, sentence: Span, pair: LanguagePair) -> Iterator[SourcePiece]:
        encoded: dict[str, Encoded] = {}

        def fits(part: str) -> bool:
            tokens = self.encode(part, pair)
            if tokens is not None:
                encoded[part] = tokens
            return tokens is not None

        for span in fitting_spans(text, sentence, fits):
            part = span.of(text)
            tokens = encoded.get(part) or self.encode(part, pair)
            if tokens is None:
                raise SourceTooLong("a single character is longer than the model takes", field="text")
            yield SourcePiece(span, part, tokens)

    def places(self, piece: SourcePiece, pair: LanguagePair) -> list[TextSpan]:
        """Of the piece's subwords in its text, as the model was given them, the end token left out."""
        start = piece.span.start
        spans = [TextSpan(*offsets).moved(start) for offsets in source_offsets(self._tokenizer, piece.text)]
        return spans if pair.source_prefix is None else [TextSpan(start, start), *spans]


def stripped(field: str, index: int, text: str) -> Span:
    """The text without white space at its ends. Raises InvalidRequest where nothing is left."""
    start, end = len(text) - len(text.lstrip()), len(text.rstrip())
    if start >= end:
        raise InvalidRequest(f"{field}[{index}] must not be blank", field=f"{field}[{index}]")
    return Span(start, end)
