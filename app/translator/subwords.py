"""What the model is given: parts of segments, as subwords."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.bundle import LanguagePair
from app.errors import InvalidRequest
from app.text.segmentation import Span
from app.text.spans import Offsets, source_offsets
from app.text.tokenizer import Encoded, Tokenizer, TokenizerError
from app.translator.request import TextSpan

# A piece is cut at this many characters a subword before it is tokenised at all: normalising is quadratic in
# runs of combining marks.
MAX_CHARACTERS_PER_TOKEN = 16


@dataclass(frozen=True)
class ScoredSource:
    """A text to score: where it stands, without the white space around it, what stands there, and its subwords."""

    span: Span
    text: str
    encoded: Encoded


class SubwordEncoder:
    """Cuts texts for one model. Immutable, so any thread may use it."""

    def __init__(self, tokenizer: Tokenizer, target_tokenizer: Tokenizer, max_source_length: int) -> None:
        """tokenizer: of the source. max_source_length: subwords of the longest source, its end token counted."""
        self._tokenizer = tokenizer
        self._target_tokenizer = target_tokenizer
        self.max_source_length = max_source_length

    def encode(self, part: str, pair: LanguagePair) -> Encoded | None:
        """The subwords of a part of a text, or None where the model cannot take it at once."""
        if len(part) > self.max_source_length * MAX_CHARACTERS_PER_TOKEN:
            return None
        try:
            encoded = self._tokenizer.encode_tagged(part, pair.source_prefix)
        except TokenizerError:
            return None
        return encoded if len(encoded.ids) <= self.max_source_length else None

    def encode_forced(self, text: str, verbatim_spans: Sequence[str], field: str) -> tuple[int, ...]:
        """A target's subwords, the end token left out. Raises InvalidRequest where no target can be this."""
        try:
            return self._target_tokenizer.encode_target(text, verbatim_spans)[:-1]
        except TokenizerError as error:
            raise InvalidRequest(
                f"{field} has characters that no translation can hold", field=field
            ) from error

    def source_offsets(self, part: str, pair: LanguagePair) -> list[Offsets]:
        """Of the part's subwords in it, as the model was given them, the end token left out."""
        offsets = source_offsets(self._tokenizer, part)
        return offsets if pair.source_prefix is None else [(0, 0), *offsets]

    def source_spans(self, piece: ScoredSource, pair: LanguagePair) -> list[TextSpan]:
        """Of the piece's subwords in its text."""
        start = piece.span.start
        return [TextSpan(*offsets).moved(start) for offsets in self.source_offsets(piece.text, pair)]


def stripped_span(field: str, index: int, text: str) -> Span:
    """The text without white space at its ends. Raises InvalidRequest where nothing is left."""
    start, end = len(text) - len(text.lstrip()), len(text.rstrip())
    if start >= end:
        raise InvalidRequest(f"{field}[{index}] must not be blank", field=f"{field}[{index}]")
    return Span(start, end)
