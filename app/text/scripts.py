"""Scripts in which words may have no spaces between them."""

from __future__ import annotations

import re

# Ranges of a regular expression: Thai, Lao, Burmese, Khmer, Korean, Japanese and Chinese letters. In these scripts, a
# word may follow a URL or a number without a space.
UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u318f\u31a0-\u31ff\u3400-\u4dbf"
    r"\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_IN_UNSPACED = re.compile(f"[{UNSPACED}]")
# The same without Korean, which has spaces between words, and without digits and currencies.
_WITHOUT_SPACES = re.compile(
    r"[\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ecf\u0edc-\u0edf\u1000-\u103f\u1050-\u108f\u109a-\u109f\u1780-\u17d3"
    r"\u17d7\u17dd\u3005-\u3007\u3040-\u312f\u31a0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uaa60-\uaa7f\uf900-\ufaff"
    r"\uff66-\uff9f\U0001b000-\U0001b16f\U00020000-\U0003ffff]"
)


def is_unspaced(character: str) -> bool:
    """Whether a character belongs to a script without spaces between words."""
    return character > "\u0e00" and _WITHOUT_SPACES.match(character) is not None


def in_unspaced(character: str) -> bool:
    """Whether a character is in UNSPACED, which has Korean too."""
    return _IN_UNSPACED.match(character) is not None
