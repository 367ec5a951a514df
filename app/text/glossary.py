"""Finds glossary terms in a text, and the words that replace them in the translation.

A term matches whole words. Longer terms match before shorter ones. Each word of the text may have a simple ending of
its language: `box` also matches `boxes` and `box's`, `Haus` also matches `Hauses`. Each word of a term is compared
alone. With a capital inside or all in capitals (`iPhone`, `IT`) it matches as written. If it begins with a capital, it
matches words that begin with one. In lower case it matches any case.

A term that is its own translation keeps its form in the text. Any other term is replaced by its translation. The
replacement is in capitals if the text has the term in capitals and the glossary does not. It begins with a capital if
the term does so in the text and not in the glossary. The same rules, with the endings of the target language, decide
whether a translation contains a term.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from app.text.alignment import words
from app.text.language_codes import base_language
from app.text.segmentation import Span

_ENDINGS = {
    "en": ("s", "es", "'s", "\u2019s"),
    "de": ("e", "en", "er", "ern", "es", "em", "n", "s"),
    "fr": ("s", "x", "e", "es"),
}
# Fewest letters of a word that may have an ending. If smaller, short words such as `as` match by chance. If larger,
# forms of short words are missed.
MIN_INFLECTED_LENGTH = 3


@dataclass(frozen=True)
class Term:
    """An entry of a glossary. If source == target, the term is not translated."""

    source: str
    target: str


@dataclass(frozen=True)
class GlossaryHit:
    """A term in a text. span: its position. surface: its form in the text. replacement: its form in the translation."""

    term: Term
    span: Span
    surface: str
    replacement: str

    @property
    def expected(self) -> str:
        """Return the form to search for in a translation: in capitals if the text is, else as in the glossary."""
        return self.replacement if _is_in_capitals(self.term, self.surface) else self.term.target


@dataclass
class _Node:
    """A node in the trie of terms. following: child nodes by next word in lower case. terms: those that end here."""

    following: dict[str, _Node] = field(default_factory=dict)
    terms: list[tuple[Term, tuple[str, ...]]] = field(default_factory=list)


class Glossary:
    """Terms of one language pair, compiled for lookups. Any thread may use it."""

    def __init__(self, terms: Sequence[Term], source_language: str) -> None:
        """terms: if two have the same source, the last one counts. source_language: BCP 47 code. An unknown language
        has no endings.
        """
        self._endings = _endings_of(source_language)
        self._root = _Node()
        for term in {term.source: term for term in terms}.values():
            parts = tuple(word.of(term.source) for word in words(term.source))
            node = self._root
            for part in parts:
                node = node.following.setdefault(part.casefold(), _Node())
            if parts:
                node.terms.append((term, parts))

    def of_language(self, source_language: str) -> Glossary:
        """Return the same terms with the endings of another language."""
        other = copy.copy(self)
        other._endings = _endings_of(source_language)
        return other

    def hits(self, text: str) -> Iterator[GlossaryHit]:
        """Yield every term in a text, in order, without overlap."""
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
        """Return the longest term that begins with this word. Among equally long terms one with capitals wins."""
        best: tuple[int, bool, Term] | None = None
        pending = [(self._root, index)]
        while pending:
            node, end = pending.pop()
            for term, parts in node.terms:
                candidate = (end - index, term.source != term.source.lower(), term)
                if (best is None or candidate[:2] > best[:2]) and _has_case(text, spans[index:end], parts):
                    best = candidate
            if end < len(spans) and (end == index or "\n" not in text[spans[end - 1].end : spans[end].start]):
                bases = self._bases(spans[end].of(text).casefold())
                pending += [(node.following[base], end + 1) for base in bases if base in node.following]
        if best is None:
            return None
        span = Span(spans[index].start, spans[index + best[0] - 1].end)
        surface = span.of(text)
        return GlossaryHit(best[2], span, surface, _replacement(best[2], surface))

    def _bases(self, word: str) -> Iterator[str]:
        """Yield the word, and the words that it may be a form of."""
        yield word
        for ending in self._endings:
            if word.endswith(ending) and len(word) - len(ending) >= MIN_INFLECTED_LENGTH:
                yield word.removesuffix(ending)


def _has_case(text: str, spans: Sequence[Span], parts: Sequence[str]) -> bool:
    """Whether words of the text match the case of a term's words."""
    return all(_fits_case(span.of(text), part) for span, part in zip(spans, parts, strict=True))


def _fits_case(word: str, expected: str) -> bool:
    if expected[1:] != expected[1:].lower():
        return word.startswith(expected)
    return word[0] == expected[0] or expected[0].islower()


def _replacement(term: Term, surface: str) -> str:
    if term.source == term.target:
        return surface
    if _is_in_capitals(term, surface):
        return term.target.upper()
    if surface[0].isupper() and term.source[0].islower():
        return term.target[0].upper() + term.target[1:]
    return term.target


def _is_in_capitals(term: Term, surface: str) -> bool:
    """Whether the text has the term in capitals and the glossary does not."""
    return surface.isupper() and len(surface) > 1 and not term.source.isupper()


def _endings_of(language: str) -> tuple[str, ...]:
    return _ENDINGS.get(base_language(language), ())


def missing_terms(hits: Sequence[GlossaryHit], translation: str, target_language: str) -> list[GlossaryHit]:
    """Return the hits without a match of their own in a translation, as whole words.

    target_language: BCP 47 code. An unknown language has no endings.
    """
    if not hits:
        return []
    expected = {hit.expected for hit in hits}
    forms = {hit.replacement: hit.expected for hit in hits} | {each: each for each in expected}
    # If two terms match the same word, the stricter one comes first: `PARK` before `Park`.
    terms = [Term(surface, surface) for surface in sorted(forms, key=str.isupper, reverse=True)]
    num_unused = Counter(forms[hit.term.source] for hit in Glossary(terms, target_language).hits(translation))
    missing = []
    for hit in hits:
        num_unused[hit.expected] -= 1
        if num_unused[hit.expected] < 0:
            missing.append(hit)
    return missing
