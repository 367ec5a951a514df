"""Tells whether a word ends where an HTML element ends and the next begins, without white space between them.

Pages without white space between elements, such as minified ones, show the elements apart by their style.
"""

from __future__ import annotations

import re
from html import unescape

from app.text.scripts import UNSPACED

# Characters of a text that are read at its edge. If smaller, a character reference may be cut.
_MAX_READ = 64
_UNSPACED = re.compile(f"[{UNSPACED}]")
_LETTERS_AT_START = re.compile(r"[^\W\d_]*+")
_ENDS = frozenset(".!?:)")


def may_end_word(name: str) -> bool:
    """Whether an element of this name may end a word if an element of the same name follows directly."""
    return name in {"a", "span"} or "-" in name


def is_word_border(before: str, after: str, name: str) -> bool:
    """Whether a word ends between two elements of this name. before, after: the text with its character references.

    No word ends before a lower-case letter, within a number, between capitals and a digit, or beside a single letter of
    a word in capitals.
    """
    left, right = _edges(before, after)
    last, first = left[-1:], right[:1]
    if not first.isalnum() or first.islower():
        return False
    if not last.isalnum():
        return last in _ENDS and first.isalpha()
    left_word, right_word = _letters(left[::-1]), _letters(right)
    if first.isdigit():
        return last.isalpha() and not left_word.isupper()
    if not first.isupper():
        return name != "span"  # The script has no capitals, so a span may end within a word.
    if not right_word.isupper():
        return True
    return not (len(right_word) == 1 and (last.isupper() or last.isdigit())) and not (
        len(left_word) == 1 and last.isupper()
    )


def is_between_words(before: str, after: str) -> bool:
    """Whether both texts have a word at the place where they meet, in scripts with spaces between words."""
    left, right = _edges(before, after)
    return all(each.isalnum() and not _UNSPACED.match(each) for each in (left[-1:], right[:1]))


def _letters(text: str) -> str:
    """The letters at the start of a text."""
    match = _LETTERS_AT_START.match(text)
    return match.group() if match else ""


def _edges(before: str, after: str) -> tuple[str, str]:
    """The end of the first text and the start of the second, with character references decoded."""
    return unescape(before[-_MAX_READ:]), unescape(after[:_MAX_READ])
