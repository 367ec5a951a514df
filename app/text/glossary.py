"""Finds glossary terms in a text, and the words that replace them in the translation.

A term matches whole words. Longer terms match before shorter ones. Each word of the text may have a simple ending of
its language: `box` also matches `boxes` and `box's`, `Haus` also matches `Hauses`. In French and Italian, a term may
begin after an elision (`l'école`), and in Turkish it may end before an apostrophe (`İstanbul'da`). In scripts without
spaces between words, each letter counts as a word.

Each word of a term is compared alone. With a capital inside or all in capitals (`iPhone`, `IT`) it matches as written.
If it begins with a capital, it matches words that begin with one. In lower case it matches any case.

A term that is its own translation keeps its form in the text. Any other term is replaced by its translation. The
replacement is in capitals if the text has the term in capitals and the glossary does not. It begins with a capital if
the term does so in the text and not in the glossary. The same rules, with the endings of the target language, decide
whether a translation contains a term.
"""

from __future__ import annotations

import copy
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from app.text.alignment import words
from app.text.casing import DOTLESS_I, capitals, lower_case, upper_case
from app.text.language_codes import base_language
from app.text.segmentation import Span

_ENDINGS = {
    "en": ("s", "es", "'s", "\u2019s"),
    "de": ("e", "en", "er", "ern", "es", "em", "n", "s"),
    "fr": ("s", "x", "e", "es"),
}
# The first part of a word with an apostrophe. A term may begin after it, or be it.
_FIRST_PARTS = {
    "fr": re.compile("(?:[cdjlmnst]|(?:jus|lors|puis)?qu)['\u2019]", re.IGNORECASE),
    "it": re.compile("(?:l|d|un|(?:a|da|de|ne|su)ll)['\u2019]", re.IGNORECASE),
    "tr": re.compile("[^'\u2019]+(?=['\u2019])"),
}
# Languages with their own division into words or their own lower case.
_WITH_OWN_WORDS = frozenset({*_FIRST_PARTS, *DOTLESS_I})
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
        self._terms = tuple({term.source: term for term in terms}.values())
        self._roots: dict[str, _Node] = {}  # by the language with its own words; "" for all others
        self._set_language(source_language)

    def of_language(self, source_language: str) -> Glossary:
        """Return the same terms with the rules of another language."""
        other = copy.copy(self)
        other._set_language(source_language)
        return other

    def _set_language(self, source_language: str) -> None:
        self._language = base_language(source_language)
        self._endings = _ENDINGS.get(self._language, ())
        key = self._language if self._language in _WITH_OWN_WORDS else ""
        if key not in self._roots:
            self._roots[key] = self._trie()
        self._root = self._roots[key]

    def _trie(self) -> _Node:
        root = _Node()
        for term in self._terms:
            parts = tuple(span.of(term.source) for span in _words(term.source, self._language))
            node = root
            for part in parts:
                node = node.following.setdefault(_folded(part, self._language), _Node())
            if parts:
                node.terms.append((term, parts))
        return root

    def hits(self, text: str, target_language: str = "") -> Iterator[GlossaryHit]:
        """Yield every term in a text, in order, without overlap. target_language: BCP 47 code of the replacements."""
        spans = _words(text, self._language)
        index = 0
        while index < len(spans):
            hit = self._hit(text, spans, index, target_language)
            if hit is None:
                index += 1
                continue
            yield hit
            while index < len(spans) and spans[index].start < hit.span.end:
                index += 1

    def _hit(self, text: str, spans: Sequence[Span], index: int, target_language: str) -> GlossaryHit | None:
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
                bases = self._bases(_folded(spans[end].of(text), self._language))
                pending += [(node.following[base], end + 1) for base in bases if base in node.following]
        if best is None:
            return None
        span = Span(spans[index].start, spans[index + best[0] - 1].end)
        surface = span.of(text)
        return GlossaryHit(best[2], span, surface, _replacement(best[2], surface, target_language))

    def _bases(self, word: str) -> Iterator[str]:
        """Yield the word, and the words that it may be a form of."""
        yield word
        for ending in self._endings:
            if word.endswith(ending) and len(word) - len(ending) >= MIN_INFLECTED_LENGTH:
                yield word.removesuffix(ending)


def _words(text: str, language: str) -> Sequence[Span]:
    """Return the words of a text. A word with an apostrophe has two parts in the languages of `_FIRST_PARTS`."""
    first_part = _FIRST_PARTS.get(language)
    if first_part is None:
        return words(text)
    spans: list[Span] = []
    for span in words(text):
        match = first_part.match(text, span.start, span.end)
        cut = span.start if match is None else match.end()
        spans += (Span(*each) for each in ((span.start, cut), (cut, span.end)) if each[0] < each[1])
    return spans


def _folded(word: str, language: str) -> str:
    """Return a word for a comparison without case, and with composed letters."""
    return lower_case(unicodedata.normalize("NFC", word), language).casefold()


def _has_case(text: str, spans: Sequence[Span], parts: Sequence[str]) -> bool:
    """Whether words of the text match the case of a term's words."""
    return all(_fits_case(span.of(text), part) for span, part in zip(spans, parts, strict=True))


def _fits_case(word: str, expected: str) -> bool:
    word, expected = unicodedata.normalize("NFC", word), unicodedata.normalize("NFC", expected)
    if expected[1:] != expected[1:].lower():
        return word.startswith(expected)
    return word[0] == expected[0] or expected[0].islower()


def _replacement(term: Term, surface: str, language: str) -> str:
    """Return the form of a term in the translation. language: BCP 47 code of the translation."""
    if term.source == term.target:
        return surface
    if _is_in_capitals(term, surface):
        return capitals(term.target, language)
    if surface[0].isupper() and term.source[0].islower():
        return upper_case(term.target[0], language) + term.target[1:]
    return term.target


def _is_in_capitals(term: Term, surface: str) -> bool:
    """Whether the text has the term in capitals and the glossary does not."""
    return surface.isupper() and len(surface) > 1 and not term.source.isupper()


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
