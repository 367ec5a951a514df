"""Tells whether a word ends where an HTML element ends and the next begins, without white space between them.

Pages without white space between elements, such as minified ones, show the elements apart by their style.
"""

from __future__ import annotations

import re
from html import unescape

from app.text.scripts import in_unspaced

# The number of characters that are read at the start or end of a text. If smaller, a character reference may be cut.
_MAX_READ = 64
_LETTERS_AT_START = re.compile(r"[^\W\d_]*+")
# The end of a text with marks after its last word. French has a space before some of them. A mark without a word before
# it may belong to the next text.
_MARKS_AT_END = re.compile(
    r"[^\W_](?P<marks>(?:\s?[.!?:;\u2026%\u2030\u00b0)\]}\u2122\u00ae\u00a9$\u20ac\u00a3\u00a5\u00bb\u203a\u3002\uff01\uff1f]"
    r"|[\"\u201c\u201d+#*])+)\Z"
)
# Brackets, quotation marks, Spanish marks and currencies that may stand before the first word of a text.
_MARKS_AT_START = re.compile(
    r"[(\[\"\u201c\u201d\u201e\u2018\u201a\u00ab\u2039\u00bf\u00a1$\u20ac\u00a3\u00a5]*+"
)


def may_end_word(name: str) -> bool:
    """Whether an element of this name may end a word if an element of the same name follows directly."""
    return name in {"a", "span"} or "-" in name


def has_word(text: str) -> bool:
    """Whether a text has a letter or digit. text: with its character references."""
    return any(map(str.isalnum, unescape(text)))


def continues_sentence(text: str) -> bool:
    """Whether a text begins within a sentence: with a lower-case letter, or a mark that directly follows a word.

    text: with its character references.
    """
    first = unescape(text[:_MAX_READ]).lstrip()[:1]
    return first.islower() or first in set(",.;:!?)-")


def is_word_border(before: str, after: str, name: str) -> bool:
    """Whether a word ends between two elements of this name. before, after: the text with its character references.

    Marks such as punctuation, brackets and currency signs are removed at the end of the first text and at the start of
    the second. A word then ends if a letter or digit is before the border and another is after it, except

    - before a lower-case letter;
    - before a digit, if the character before is a digit, the word before is in capitals, or the first text had marks;
    - before a letter of a script without capitals, between two `span` elements, if the first text had no marks;
    - before a single capital letter that follows a capital letter or a digit;
    - between a single capital letter and a word in capitals.
    """
    left, right = _edges(before, after)
    ended = _MARKS_AT_END.search(left)
    left = left[: ended.start("marks")] if ended else left
    right = right[_end(_MARKS_AT_START, right) :]
    last, first = left[-1:], right[:1]
    if not (last.isalnum() and first.isalnum()) or first.islower():
        return False
    left_word, right_word = _letters(left[::-1]), _letters(right)
    if first.isdigit():
        return last.isalpha() and not left_word.isupper() and ended is None
    if not first.isupper():
        # The script has no capitals, so a span may end within a word.
        return name != "span" or ended is not None
    if not right_word.isupper():
        return True
    return not (len(right_word) == 1 and (last.isupper() or last.isdigit())) and not (
        len(left_word) == 1 and last.isupper()
    )


def is_between_words(before: str, after: str) -> bool:
    """Whether both texts have a word at the place where they meet, in scripts with spaces between words."""
    left, right = _edges(before, after)
    return all(each.isalnum() and not in_unspaced(each) for each in (left[-1:], right[:1]))


def _letters(text: str) -> str:
    """The letters at the start of a text."""
    return text[: _end(_LETTERS_AT_START, text)]


def _end(pattern: re.Pattern[str], text: str) -> int:
    """Where the pattern's match at the start of a text ends; 0 without a match."""
    match = pattern.match(text)
    return match.end() if match else 0


def _edges(before: str, after: str) -> tuple[str, str]:
    """The end of the first text and the start of the second, with character references decoded."""
    return unescape(before[-_MAX_READ:]), unescape(after[:_MAX_READ])
