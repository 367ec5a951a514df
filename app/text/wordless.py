"""Tells whether a translation lacks the words of its source."""

from __future__ import annotations

import re

_DIGIT = re.compile(r"\d")
_DIGITS_ONLY = re.compile(r"[\d\s.,!?]+")
_WORD = re.compile(r"[^\W\d_]{2}")
_DIGIT_AND_LETTER = re.compile(r"\d[^\W\d_]")


def is_wordless(source: str, translation: str) -> bool:
    """Whether the translation has no words although the source needs some.

    - The translation has no letter or digit, and the source has one.
    - The translation has only the source's digits, and the source has a word. "1" is no translation of "1 item". But
      "5." may be the translation of "5th", and "5 %" that of "5 percent".
    """
    if not any(map(str.isalnum, translation)):
        return any(map(str.isalnum, source))
    return (
        _DIGITS_ONLY.fullmatch(translation) is not None
        and _DIGIT.findall(translation) == _DIGIT.findall(source)
        and _WORD.search(source) is not None
        and _DIGIT_AND_LETTER.search(source) is None
    )
