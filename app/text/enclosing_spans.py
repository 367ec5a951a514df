"""Finds pairs of protected spans that enclose words as the two tags of an element do: `%1$shere%2$s`.

Such a span gets its place in the translation as a tag does (`app.text.tags`), because a model would part it from its
words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from unicodedata import category

from app.text.scripts import in_unspaced
from app.text.segmentation import Span
from app.text.template_code import is_else

_WORD = re.compile(r"[^\W\d_]{3}")
# The maximum number of characters before the first word of three letters or more that two spans enclose. If larger,
# searching takes more time.
_MAX_BEFORE_WORD = 32
_OPENING_CATEGORIES = frozenset({"Ps", "Pi"})
_CLOSING_CATEGORIES = frozenset({"Pe", "Pf"})
_QUOTES = frozenset("\"'")
_MARKS = frozenset(".,:;!?\u2026") | _QUOTES


def enclosing_pairs(text: str, spans: Sequence[Span]) -> Iterator[tuple[Span, Span]]:
    """Yield the first and the last span of each pair. Pairs may overlap.

    - The two spans begin with the same character, and a word of three letters or more is between them.
    - The first span directly precedes a letter or another first span, and follows no word.
    - The last span directly follows a word, its punctuation or another span. It precedes no letter, unless it has a
      slash as `</b>` and `[/b]`. The last one of two tags or shortcodes always has a slash.
    - No `else` of a template is between them, because words of one branch would be put into the other.
    spans: the protected spans of the text, in order.
    """
    ends = {span.end for span in spans}
    before_words: set[int] = set()  # the starts of the spans that directly precede a word
    for span in reversed(spans):
        is_before_word = span.end in before_words or _is_letter(text[span.end : span.end + 1])
        if is_before_word and not _has_slash(text, span):
            before_words.add(span.start)
    opened: dict[str, list[Span]] = {}
    for span in spans:
        kind, before = text[span.start], text[span.start - 1 : span.start]
        if is_else(span.of(text)):
            opened.pop(kind, None)
        elif span.start in before_words:
            if span.start in ends or _may_precede_word(before):
                opened.setdefault(kind, []).append(span)
        elif (
            (_has_slash(text, span) or kind not in "<[")
            and (span.start in ends or _may_end_word(before))
            and (first := opened.get(kind))
        ):
            start = first.pop()
            if _WORD.search(text, start.end, min(span.start, start.end + _MAX_BEFORE_WORD)):
                yield start, span


def _has_slash(text: str, span: Span) -> bool:
    """Whether a span is like `</b>` and `[/b]`."""
    return text.startswith("/", span.start + 1)


def _is_letter(character: str) -> bool:
    """Whether a character is a letter or digit. In scripts in which words may have no spaces, it is not known."""
    return character.isalnum() and not in_unspaced(character)


def _may_precede_word(character: str) -> bool:
    return character in ("", *_QUOTES) or character.isspace() or category(character) in _OPENING_CATEGORIES


def _may_end_word(character: str) -> bool:
    return character != "" and (
        _is_letter(character) or character in _MARKS or category(character) in _CLOSING_CATEGORIES
    )
