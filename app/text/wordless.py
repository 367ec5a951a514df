"""Tells whether a translation lacks the words of its source."""

from __future__ import annotations

import re

_DIGIT = re.compile(r"\d")
_DIGITS_ONLY = re.compile(r"[\d\s.,!?]+")
_WORD = re.compile(r"[^\W\d_]{2}")
_DIGIT_AND_LETTER = re.compile(r"\d[^\W\d_]")


def is_wordless(source: str, translation: str) -> bool:
    """Whether the source has letters or digits and the translation has none, or has just the source's digits.

    "1" is no translation of "1 item". "5." may be one of "5th", and "5 %" of "5 percent".
    """
    if not any(map(str.isalnum, translation)):
        return any(map(str.isalnum, source))
    return (
        _DIGITS_ONLY.fullmatch(translation) is not None
        and _DIGIT.findall(translation) == _DIGIT.findall(source)
        and _WORD.search(source) is not None
        and _DIGIT_AND_LETTER.search(source) is None
    )
