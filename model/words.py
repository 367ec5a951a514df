r"""Regular expressions for the words of a text in any script.

A word may have combining marks, such as the vowel signs of Hindi and Thai, and the joiners U+200C and U+200D. `\w` of
Python matches neither.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from itertools import chain, compress

# The code points among which Unicode has combining marks.
_MAY_BE_MARKS = range(0x300, 0x1F000), range(0xE0100, 0xE01F0)
_JOINERS = "\u200c\u200d"
_LETTERS = r"[^\W\d_]"


@cache
def combining_marks() -> str:
    """Return all characters of category M. It takes about ten milliseconds, so it is not done at import."""
    characters = "".join(map(chr, chain(*_MAY_BE_MARKS)))
    are_marks = map({"Mn", "Mc", "Me"}.__contains__, map(unicodedata.category, characters))
    return "".join(compress(characters, are_marks))


@cache
def letters_pattern() -> str:
    """Return a regular expression for letters, with the marks and joiners after each of them.

    Its group and that of `word_pattern` are not possessive, because CPython before 3.11.5 does not restore the position
    of a possessive group whose last repetition fails (gh-106052).
    """
    # The lookahead saves time, because most words end before an ASCII character.
    marks = rf"(?![\x00-\x7f])[{combining_marks()}{_JOINERS}]++"
    return rf"{_LETTERS}++(?:{marks}{_LETTERS}*+)*"


@cache
def word_pattern() -> str:
    """Return a regular expression for a word, which may have apostrophes and hyphens between its letters."""
    return rf"{letters_pattern()}(?:['’-]{letters_pattern()})*"
