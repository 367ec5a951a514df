"""Encodes forced targets, texts to score, and parts of segments as subwords of one model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.engine.sequence import SequenceResult
from app.errors import InvalidRequest
from app.language_pairs import LanguagePair
from app.text.segmentation import Offsets, Span
from app.text.spans import source_offsets
from app.text.tokenizer import Encoded, Tokenizer, TokenizerError
from app.translator.request import TextSpan
from app.translator.unknown_tokens import UnknownTokens

# A part counts as too long, and is not tokenised, if it has more than this many characters for each subword of the
# longest source. The reason is that Unicode normalisation takes quadratic time for runs of combining marks. If smaller,
# parts with long subwords are split needlessly.
MAX_CHARACTERS_PER_TOKEN = 16


@dataclass(frozen=True)
class ScoredSource:
    """A text to score, without surrounding white space.

    span: its position in the request's text. text: its characters. encoded: its subwords.
    """

    span: Span
    text: str
    encoded: Encoded


class SubwordEncoder:
    """Encodes texts for one model. Immutable, so any thread may use it."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        max_source_length: int,
        unknown_tokens: UnknownTokens | None = None,
    ) -> None:
        """tokenizer: of the source vocabulary. max_source_length: subwords of the longest source, end token included.

        unknown_tokens: None for a model that can write each placeholder symbol, not only the unknown token.
        """
        self._unknown_tokens = unknown_tokens
        self._tokenizer = tokenizer
        self._target_tokenizer = target_tokenizer
        self.max_source_length = max_source_length

    @property
    def ends_source(self) -> bool:
        """Whether sources have an end token."""
        return self._tokenizer.ends_source

    def is_word(self, word: str) -> bool:
        """Whether the vocabulary has this word as one subword, in lower case or with a capital."""
        return self._tokenizer.has_word(word.lower()) or self._tokenizer.has_word(word.capitalize())

    def encode(self, part: str, pair: LanguagePair) -> Encoded | None:
        """Return the subwords of a part of a text, or None if it is too long or cannot be tokenised."""
        if len(part) > self.max_source_length * MAX_CHARACTERS_PER_TOKEN:
            return None
        try:
            encoded = self._tokenizer.encode_tagged(part, pair.source_prefix)
        except TokenizerError:
            return None
        return encoded if len(encoded.ids) <= self.max_source_length else None

    def start_id(self, pair: LanguagePair) -> int | None:
        """Return the id of the pair's `target_start`; None without one. Raises TokenizerError if it is unknown."""
        return None if pair.target_start is None else self._target_tokenizer.id_of(pair.target_start)

    def encode_forced(self, text: str, verbatim_spans: Sequence[str], field: str) -> tuple[int, ...]:
        """Return the subwords of a target without end token.

        Raises InvalidRequest if the target has a placeholder symbol that no verbatim span of the source has.
        """
        try:
            return self._target_tokenizer.encode_target(text, verbatim_spans)[:-1]
        except TokenizerError as error:
            raise InvalidRequest(
                f"{field} has a character from U+E000 to U+E007 that the source does not have", field=field
            ) from error

    def as_written(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        """Return a forced target, with the unknown token for each placeholder symbol that the model cannot write."""
        return ids if self._unknown_tokens is None else self._unknown_tokens.as_written(ids)

    def needs_matching(self, source: Encoded) -> bool:
        """Whether attention is needed to find the span of the source that an unknown token stands for."""
        return self._unknown_tokens is not None and len(source.verbatim_spans) > 1

    def matched(self, result: SequenceResult, source: Encoded) -> SequenceResult:
        """Replace each unknown token of the result by the placeholder symbol of the span that it stands for."""
        return result if self._unknown_tokens is None else self._unknown_tokens.matched(result, source)

    def subword_offsets(self, part: str, pair: LanguagePair) -> list[Offsets]:
        """Return the offsets of each subword in its part. The end token and the language tag have empty offsets."""
        tokenizer, end = self._tokenizer, (len(part), len(part))
        offsets = source_offsets(tokenizer, part) + [end] * tokenizer.ends_source
        if pair.source_prefix is None:
            return offsets
        return [*offsets, end] if tokenizer.tag_follows_source else [(0, 0), *offsets]

    def source_spans(self, source: ScoredSource, pair: LanguagePair) -> list[TextSpan]:
        """Return the span of each subword of a text to score, in the request's text."""
        start = source.span.start
        return [TextSpan(*offsets).moved(start) for offsets in self.subword_offsets(source.text, pair)]


def stripped_span(field: str, index: int, text: str) -> Span:
    """Return the span of a text without white space at its ends. Raises InvalidRequest if the text is blank.

    field, index: the text's position in the request, for the error.
    """
    start, end = len(text) - len(text.lstrip()), len(text.rstrip())
    if start >= end:
        raise InvalidRequest(f"{field}[{index}] must not be blank", field=f"{field}[{index}]")
    return Span(start, end)
