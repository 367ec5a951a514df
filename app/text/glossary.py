"""Finds glossary terms in a text, and the words that replace them in the translation.

A term matches whole words. Longer terms match before shorter ones. Each word of the text may have a simple ending of
its language: `box` also matches `boxes` and `box's`, `Haus` also matches `Hauses`. In French and Italian, a term may
begin after an elision (`l'école`), and in Turkish it may end before an apostrophe (`İstanbul'da`). In scripts without
spaces between words, each letter counts as a word. The invisible characters of `app.text.model_input` do not count.

In Greek, a word in capitals also matches without its tonos: `ΝΟΜΟΣ` matches `νόμος`.

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
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import NamedTuple

from app.text.alignment import words
from app.text.casing import DOTLESS_I, GREEK, capitals, lower_case, upper_case, without_tonos
from app.text.language_codes import base_language
from app.text.model_input import INVISIBLE, without_invisible
from app.text.segmentation import Span

_ENDINGS = {
    "en": ("s", "es", "'s", "\u2019s"),
    "de": ("e", "en", "er", "ern", "es", "em", "n", "s"),
    "fr": ("s", "x", "e", "es"),
}
# The first part of a word with an apostrophe. A term may begin after this part, or be this part.
_FIRST_PARTS = {
    "fr": re.compile("(?:[cdjlmnst]|(?:jus|lors|puis)?qu)['\u2019]", re.IGNORECASE),
    "it": re.compile("(?:l|d|un|(?:a|da|de|ne|su)ll)['\u2019]", re.IGNORECASE),
    "tr": re.compile("[^'\u2019]+(?=['\u2019])"),
}
# Languages with their own division into words or their own lower case.
_WITH_OWN_WORDS = frozenset({*_FIRST_PARTS, *DOTLESS_I, GREEK})
# Minimum number of letters before an ending. If smaller, short words such as `as` match by chance. If larger, forms of
# short words are missed.
MIN_INFLECTED_LENGTH = 3
# Maximum number of terms' words that a word of a text is compared with, and maximum number of runs of words that are
# followed from there. Real glossaries need few. If smaller, terms may be missed where many differ only by capitals and
# endings. If larger, such terms take more time.
MAX_CHOICES = 32


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


# A word of a term: the word in lower case, and the beginning that the text's word must have, in the same case.
_Word = tuple[str, str]


class _Match(NamedTuple):
    """A term that begins at a word of a text. Of several, the greatest by the order of tuples counts.

    num_words: of the term. length: of the term, in characters. order: minus the index of the term in the glossary.
    """

    num_words: int
    has_capitals: bool
    length: int
    order: int


@dataclass(slots=True, eq=False)
class _Run:
    """A run of words that ends a term. longer: the runs with one more word in front, by this word.

    match: the term, if the run is a whole term.
    """

    longer: dict[_Word, _Run] = field(default_factory=dict)
    match: _Match | None = None

    def add(self, parts: Iterable[_Word], match: _Match) -> None:
        """Add a term to the empty run. parts: its words."""
        run = self
        for part in reversed(tuple(parts)):
            run = run.longer.setdefault(part, _Run())
        run.match = max(match, run.match or match)


class Glossary:
    """Terms of one language pair, compiled for lookups. Any thread may use it."""

    def __init__(self, terms: Sequence[Term], source_language: str) -> None:
        """terms: if two have the same source, the last one counts. source_language: BCP 47 code. An unknown language
        has no endings.
        """
        self._terms = tuple({term.source: term for term in terms}.values())
        # The result of `_compile` by language. All languages that are not in _WITH_OWN_WORDS have the key "".
        self._compiled: dict[str, tuple[_Run, dict[str, list[str]]]] = {}
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
        if key not in self._compiled:
            self._compiled[key] = self._compile()
        self._empty_run, self._forms = self._compiled[key]

    def _compile(self) -> tuple[_Run, dict[str, list[str]]]:
        """Return the empty run, and for each word of a text the words of terms that it may match, in lower case."""
        empty_run = _Run()
        forms: dict[str, dict[str, None]] = {}
        for index, term in enumerate(self._terms):
            source = without_invisible(term.source)
            parts = [self._part(span.of(source), forms) for span in _words(source, self._language)]
            if parts:
                has_capitals = source != source.lower()
                empty_run.add(parts, _Match(len(parts), has_capitals, len(source), -index))
        return empty_run, {form: list(folded) for form, folded in forms.items()}

    def _part(self, word: str, forms: dict[str, dict[str, None]]) -> _Word:
        """Return a word of a term for comparisons. Adds to `forms` how a text may write it."""
        folded, start = _folded(word, self._language), _written(word, self._language)
        if start[1:] == start[1:].lower():
            start = "" if start[0].islower() else start[0]
        forms.setdefault(folded, {})[folded] = None
        if self._language == GREEK:
            composed = unicodedata.normalize("NFC", word)
            forms.setdefault(_folded(capitals(composed, GREEK), GREEK), {})[folded] = None
        return folded, start

    def hits(
        self, text: str, target_language: str = "", borders: Sequence[int] = ()
    ) -> Iterator[GlossaryHit]:
        """Yield every term in a text, in order, without overlap.

        target_language: BCP 47 code of the replacements. borders: positions at which a word ends, in order.
        """
        read = without_invisible(text)
        positions: Sequence[int] = range(len(text))
        if len(read) < len(text):
            positions = [index for index, character in enumerate(text) if character not in INVISIBLE]
        spans = _words(read, self._language, [bisect_left(positions, border) for border in borders])
        matches = self._matches(read, spans)
        index = 0
        while index < len(spans):
            match = matches[index]
            if match is None:
                index += 1
                continue
            term = self._terms[-match.order]
            first, last = spans[index], spans[index + match.num_words - 1]
            span = Span(positions[first.start], positions[last.end - 1] + 1)
            surface = span.of(text)
            yield GlossaryHit(term, span, surface, _replacement(term, surface, target_language))
            index += match.num_words

    def _matches(self, text: str, spans: Sequence[Span]) -> list[_Match | None]:
        """Return the longest term that begins with each word.

        Of terms with equally many words, one with capitals wins, else the one with the most characters, else the first.
        It reads the words from the last to the first, in linear time. At each word, at most MAX_CHOICES runs (`_Run`)
        are followed further, the longest ones. Where there are more, a term may be missed.
        """
        matches: list[_Match | None] = []
        runs: list[_Run] = []  # the longest ones first
        after = len(text)
        for span in reversed(spans):
            if "\n" in text[span.end : after]:
                runs = []
            parts = tuple(islice(self._parts_of(span.of(text)), MAX_CHOICES))
            runs = [
                run.longer[part] for run in (*runs, self._empty_run) for part in parts if part in run.longer
            ]
            matches.append(max((run.match for run in runs if run.match is not None), default=None))
            runs = [run for run in runs if run.longer][:MAX_CHOICES]
            after = span.start
        return matches[::-1]

    def _parts_of(self, word: str) -> Iterator[_Word]:
        """Yield the words of terms that a word of a text may match, the closest ones first."""
        for base, num_added in self._bases(_folded(word, self._language)):
            if base in self._forms:
                written = _written(word, self._language)
                stem = written[: len(written) - num_added]
                for folded in self._forms[base]:
                    for start in dict.fromkeys((stem, stem[:1], "")):
                        yield folded, start

    def _bases(self, word: str) -> Iterator[tuple[str, int]]:
        """Yield the word and the words that it may be a form of, each with the number of letters that the word adds."""
        yield word, 0
        for ending in self._endings:
            if word.endswith(ending) and len(word) - len(ending) >= MIN_INFLECTED_LENGTH:
                yield word.removesuffix(ending), len(ending)


def _words(text: str, language: str, borders: Sequence[int] = ()) -> Sequence[Span]:
    """Return the words of a text, which also end at the borders.

    A word with an apostrophe has two parts in the languages of `_FIRST_PARTS`.
    """
    first_part = _FIRST_PARTS.get(language)
    found = list(_divided(words(text), borders)) if borders else words(text)
    if first_part is None:
        return found
    spans: list[Span] = []
    for span in found:
        match = first_part.match(text, span.start, span.end)
        cut = span.start if match is None else match.end()
        spans += (Span(*each) for each in ((span.start, cut), (cut, span.end)) if each[0] < each[1])
    return spans


def _divided(spans: Sequence[Span], borders: Sequence[int]) -> Iterator[Span]:
    """Yield the spans, divided at the borders inside them."""
    for span in spans:
        inside = borders[bisect_right(borders, span.start) : bisect_left(borders, span.end)]
        yield from (Span(*edges) for edges in pairwise([span.start, *inside, span.end]))


def _folded(word: str, language: str) -> str:
    """Return a word for a comparison without case, and with composed letters."""
    return lower_case(unicodedata.normalize("NFC", word), language).casefold()


def _written(word: str, language: str) -> str:
    """Return a word for a comparison of its case, with composed letters."""
    composed = unicodedata.normalize("NFC", word)
    return without_tonos(composed) if language == GREEK else composed


def _replacement(term: Term, surface: str, language: str) -> str:
    """Return the form of a term in the translation. language: BCP 47 code of the translation."""
    if term.source == term.target:
        return surface
    if _is_in_capitals(term, surface):
        return capitals(term.target, language)
    if surface[0].isupper() and without_invisible(term.source)[0].islower():
        return upper_case(term.target[0], language) + term.target[1:]
    return term.target


def _is_in_capitals(term: Term, surface: str) -> bool:
    """Whether the text has the term in capitals and the glossary does not."""
    return surface.isupper() and len(surface) > 1 and not term.source.isupper()


def missing_terms(hits: Sequence[GlossaryHit], translation: str, target_language: str) -> list[GlossaryHit]:
    """Return the hits that have no match of their own in a translation. Matches are whole words.

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
