"""Glossary terms in a text: where they stand, and what stands there in the translation.

A term matches whole words, longer terms before shorter ones, with a simple ending of its language on any of its words
(`box` also as `boxes` and `box's`, `Haus` also as `Hauses`). Case: a term with a capital inside or all in capitals
(`iPhone`, `IT`) matches as it is written; one that begins with a capital matches words that do; one in lower case
matches any.
A term that is its own translation is left exactly as it stands in the text; another is replaced by its
translation, in capitals where the text is, with a capital where the text has one and the term does not.
Whether a translation has a term by itself is found by the same rules, in the target language.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

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
    surface: str
    replacement: str

    @property
    def wanted(self) -> str:
        """What to look for in a translation: what it has instead, but for a capital and an ending of the text's."""
        return self.replacement if _is_in_capitals(self.term, self.surface) else self.term.target


@dataclass
class _Node:
    """A place in the tree of terms: what may follow, by word in lower case, and the terms that end here."""

    following: dict[str, _Node] = field(default_factory=dict)
    terms: list[tuple[Term, tuple[str, ...]]] = field(default_factory=list)


class Glossary:
    """Terms of one language pair, ready to be looked up. Any thread may use it."""

    def __init__(self, terms: Sequence[Term], source_language: str) -> None:
        """terms: of equal source the last counts. source_language: ISO 639-1 code; unknown ones have no endings."""
        self._endings = _ENDINGS.get(source_language, ())
        self._root = _Node()
        for term in {term.source: term for term in terms}.values():
            parts = tuple(word.of(term.source) for word in words(term.source))
            node = self._root
            for part in parts:
                node = node.following.setdefault(part.casefold(), _Node())
            if parts:
                node.terms.append((term, parts))

    def of_language(self, source_language: str) -> Glossary:
        """The same terms with the endings of another language."""
        other = copy.copy(self)
        other._endings = _ENDINGS.get(source_language, ())
        return other

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
        """The longest term that begins with a word of the text; of equally long ones one that has capitals."""
        best: tuple[int, bool, Term] | None = None
        waiting = [(self._root, index)]
        while waiting:
            node, end = waiting.pop()
            for term, parts in node.terms:
                found = (end - index, term.source != term.source.lower(), term)
                if (best is None or found[:2] > best[:2]) and _has_case(text, spans[index:end], parts):
                    best = found
            if end < len(spans) and (end == index or "\n" not in text[spans[end - 1].end : spans[end].start]):
                bases = self._bases(spans[end].of(text).casefold())
                waiting += [(node.following[base], end + 1) for base in bases if base in node.following]
        if best is None:
            return None
        span = Span(spans[index].start, spans[index + best[0] - 1].end)
        surface = span.of(text)
        return GlossaryHit(best[2], span, surface, _replacement(best[2], surface))

    def _bases(self, word: str) -> Iterator[str]:
        """The word, and what it may be a form of."""
        yield word
        for ending in self._endings:
            if word.endswith(ending) and len(word) - len(ending) >= MIN_INFLECTED_LENGTH:
                yield word.removesuffix(ending)


def _has_case(text: str, spans: Sequence[Span], parts: Sequence[str]) -> bool:
    """Whether words of the text, which are those of a term but for endings, have its case."""
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
    """Whether the text has a term in capitals that the glossary does not."""
    return surface.isupper() and len(surface) > 1 and not term.source.isupper()


def missing_terms(hits: Sequence[GlossaryHit], translation: str, target_language: str) -> list[GlossaryHit]:
    """The hits for which a translation has not what they want, each in a place of its own, as whole words.

    target_language: ISO 639-1 code; unknown ones have no endings.
    """
    if not hits:
        return []
    wanted = {hit.wanted for hit in hits}
    forms = {hit.replacement: hit.wanted for hit in hits} | {each: each for each in wanted}
    # The narrower of two that match the same word first: `PARK` before `Park`.
    terms = [Term(surface, surface) for surface in sorted(forms, key=str.isupper, reverse=True)]
    found = Counter(forms[hit.term.source] for hit in Glossary(terms, target_language).hits(translation))
    left = []
    for hit in hits:
        found[hit.wanted] -= 1
        if found[hit.wanted] < 0:
            left.append(hit)
    return left
