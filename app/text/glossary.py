"""Glossary terms in a text: where they stand, and what stands there in the translation.

A term matches whole words, longer terms before shorter ones, with a simple ending of its language on any of its words
(`box` also as `boxes` and `box's`, `Haus` also as `Hauses`). Case: a term with a capital inside or all in capitals
(`iPhone`, `IT`) matches as it is written; one that begins with a capital matches words that do; one in lower case
matches any.
A term that is its own translation is left exactly as it stands in the text; another is replaced by its
translation, in capitals where the text is, with a capital where the text has one and the term does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.text.alignment import words
from app.text.segmentation import Span

_ENDINGS = {
    "en": ("s", "es", "'s", "\u2019s"),
    "de": ("e", "en", "er", "ern", "es", "em", "n", "s"),
    "fr": ("s", "x", "e", "es"),
}
MIN_INFLECTED_LENGTH = 3


@dataclass(frozen=True)
class Term:
    """An entry of a glossary. source == target: a term that is not translated."""

    source: str
    target: str


@dataclass(frozen=True)
class GlossaryHit:
    """A term in a text. span: where. form: as the text has it. restored: what the translation has instead."""

    term: Term
    span: Span
    form: str
    restored: str


@dataclass(frozen=True)
class _Entry:
    term: Term
    words: tuple[str, ...]


class Glossary:
    """Terms of one language pair, ready to be looked up. Immutable, so any thread may use it."""

    def __init__(self, terms: Sequence[Term], source_language: str) -> None:
        """terms: of equal source the last counts. source_language: ISO 639-1 code; unknown ones have no endings."""
        self._endings = _ENDINGS.get(source_language, ())
        by_source = {term.source: term for term in terms}
        self._by_first: dict[str, list[_Entry]] = {}
        for term in by_source.values():
            parts = tuple(word.of(term.source) for word in words(term.source))
            if parts:
                self._by_first.setdefault(parts[0].casefold(), []).append(_Entry(term, parts))
        for entries in self._by_first.values():
            entries.sort(key=lambda entry: (-len(entry.words), not _is_cased(entry.words[0])))

    def hits(self, text: str) -> Iterator[GlossaryHit]:
        """Every term in a text, in order and apart."""
        spans = words(text)
        index = 0
        while index < len(spans):
            hit = self._hit(text, spans, index)
            if hit is None:
                index += 1
                continue
            yield hit
            while index < len(spans) and spans[index].start < hit.span.end:
                index += 1

    def _hit(self, text: str, spans: Sequence[Span], index: int) -> GlossaryHit | None:
        found: _Entry | None = None
        word = spans[index].of(text)
        for base in self._bases(word.casefold()):
            for entry in self._by_first.get(base, ()):
                if (found is None or len(entry.words) > len(found.words)) and self._matches(
                    text, spans, index, entry
                ):
                    found = entry
                    break
        if found is None:
            return None
        span = Span(spans[index].start, spans[index + len(found.words) - 1].end)
        form = span.of(text)
        return GlossaryHit(found.term, span, form, _restored(found.term, form))

    def _bases(self, word: str) -> Iterator[str]:
        """The word, and what it may be a form of."""
        yield word
        for ending in self._endings:
            if word.endswith(ending) and len(word) - len(ending) >= MIN_INFLECTED_LENGTH:
                yield word.removesuffix(ending)

    def _matches(self, text: str, spans: Sequence[Span], index: int, entry: _Entry) -> bool:
        if index + len(entry.words) > len(spans):
            return False
        end = spans[index].start
        for span, expected in zip(spans[index : index + len(entry.words)], entry.words, strict=True):
            if "\n" in text[end : span.start] or not self._is_form(span.of(text), expected):
                return False
            end = span.end
        return True

    def _is_form(self, word: str, expected: str) -> bool:
        """Whether a word of the text is a term's word, with its case and perhaps an ending."""
        if word.casefold() != expected.casefold() and expected.casefold() not in self._bases(word.casefold()):
            return False
        if expected[1:] != expected[1:].lower():
            return word.startswith(expected)
        return word[0] == expected[0] or expected[0].islower()


def _is_cased(word: str) -> bool:
    return word != word.lower()


def _restored(term: Term, form: str) -> str:
    if term.source == term.target:
        return form
    is_upper = form.isupper() and len(form) > 1 and not term.source.isupper()
    if is_upper:
        return term.target.upper()
    if form[0].isupper() and term.source[0].islower():
        return term.target[0].upper() + term.target[1:]
    return term.target
