"""Control characters. A text is split at them, so no sentence has one, and neither has its translation."""

from __future__ import annotations

import re

# Characters at which a text is split, as a part of a regular expression's set: Unicode's line breaks (the set of
# `str.splitlines`), the tab, and all other characters of category Cc.
SPLITTING = r"\x00-\x1f\x7f-\x9f\u2028\u2029"
_SPLITTING_CHARACTER = re.compile(f"[{SPLITTING}]")
# The same, surrogates, which UTF-8 cannot spell, and the two noncharacters that XML forbids.
_REFUSED_CHARACTER = re.compile(rf"[{SPLITTING}\ud800-\udfff\ufffe\uffff]")


def with_spaces(text: str) -> str:
    """Return the text with a space for each character at which a text is split."""
    return _SPLITTING_CHARACTER.sub(" ", text)


def control_character_problem(text: str, allowed: str = "") -> str | None:
    """Return what is wrong with a text that the translation must contain, as a predicate; None if it is valid.

    allowed: characters that are valid nevertheless.
    """
    found = next((each for each in _REFUSED_CHARACTER.findall(text) if each not in allowed), None)
    return None if found is None else f"has a control character (U+{ord(found):04X})"
