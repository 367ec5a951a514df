"""Decides which spaces a translation gets and loses when it is repaired, and what stays before its closing marks."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from app.text.protected_spans import PLACEHOLDER_CODE_POINTS
from app.text.scripts import is_unspaced

_DOUBLED = re.compile(r"(?<= ) +")
_BEFORE_MARK = re.compile(r"(?<! ) +(?=[.,](?:\s|$))")
# Spaces in a hashtag, which `C# code` is not.
_AFTER_HASH = re.compile(r"(?<=#)(?<!\w#) +(?=[^\W\d_])")
# Marks that end a sentence, also those of Armenian, Arabic, Urdu, Hindi, Burmese, Amharic and Khmer.
_ENDS = frozenset(".!?\u2026\u3002\uff01\uff1f\uff61\u0589\u061f\u06d4\u0964\u0965\u104b\u1362\u17d4\u17d5")
# Marks that end a part of a sentence, also those of Arabic, Chinese and Japanese.
_PAUSES = frozenset(":;,\u060c\u061b\uff0c\u3001\uff1a\uff1b")
# What may follow the last word of a sentence, besides closing brackets and quotation marks.
_CLOSING = _ENDS | _PAUSES | frozenset(" \t\n\u00a0\u202f\"'\u201c")
_CLOSING_CATEGORIES = frozenset({"Pe", "Pf"})


def kept_positions(source: str, text: str) -> list[int] | None:
    """Return the indices of the characters of a translation that are kept; None for all.

    Spaces are dropped if they are repeated, before a full stop or comma, between `#` and a word, at the start, or at
    the end. Spaces of one of these five kinds are kept if the source has that kind.
    """
    spaces = (_DOUBLED, _BEFORE_MARK, _AFTER_HASH)
    patterns = [each for each in spaces if each.search(text) and not each.search(source)]
    start = len(text) - len(text.lstrip(" ")) if not source.startswith(" ") else 0
    end = len(text.rstrip(" ")) if not source.endswith(" ") else len(text)
    if not patterns and (start, end) == (0, len(text)):
        return None
    dropped = {index for each in patterns for match in each.finditer(text) for index in range(*match.span())}
    return [index for index in range(start, end) if index not in dropped]


def closing_marks_start(text: str) -> int:
    """Return the position after the last word, where the closing marks, quotes and brackets of a sentence begin."""
    end = len(text)
    while end > 0 and _is_closing(text[end - 1]):
        end -= 1
    return end


def _is_closing(character: str) -> bool:
    if character == "}":  # the end of a variable such as `{name}`, which is the last word
        return False
    return character in _CLOSING or unicodedata.category(character) in _CLOSING_CATEGORIES


def appended(text: str, spans: Sequence[str]) -> str:
    """Return the text with spans after it, separated by spaces.

    The text itself is followed by no space if it ends with a letter of a script without spaces, or a wide mark.
    """
    text = text.rstrip()
    is_wide = text != "" and unicodedata.east_asian_width(text[-1]) in "WF" and not text[-1].isalnum()
    space = "" if is_wide or is_unspaced(text[-1:]) else " "
    return (text + space + " ".join(spans)).lstrip()


def needs_space(in_source: str, in_target: str) -> bool:
    """Whether a space goes between a placeholder and its neighbour in the translation.

    in_source, in_target: the neighbouring character on the same side in the source and in the translation; "" for none.
    """
    if not in_target or in_target.isspace():
        return False
    return in_source.isspace() or (is_in_word(in_target) and not is_in_word(in_source))


def needs_space_before(in_source: str, text: str, position: int) -> bool:
    """Whether a space goes before an element without words that is inserted at text[position].

    After a mark that no space follows in the text, as in `e-mail`, it gets one only before a mark such as a comma.
    in_source: the character before it in the source; "" for none.
    """
    before, after = text[max(position - 1, 0) : position], text[position : position + 1]
    return needs_space(in_source, before) and (is_in_word(before) or not after or follows_word(after))


def needs_space_after(in_source: str, text: str, position: int) -> bool:
    """Whether a space goes after markup that is inserted at text[position].

    Before a mark such as a comma, it gets one only if the source has a space and such a mark there.
    in_source: the characters after it in the source, up to the first that is no space.
    """
    before, after = text[max(position - 1, 0) : position], text[position : position + 1]
    if not needs_space(in_source[:1], after) or is_in_word(after):
        return needs_space(in_source[:1], after)
    return follows_word(in_source[-1]) if follows_word(after) else not before or before.isspace()


def follows_word(character: str) -> bool:
    """Whether the character is a mark that directly follows a word: a full stop, a comma, a closing bracket."""
    return character in _ENDS or character in _PAUSES or unicodedata.category(character) == "Pe"


def is_in_word(character: str) -> bool:
    """Whether the character is a letter, a digit or a placeholder, and its script has spaces between words."""
    if character.isalnum():
        return not is_unspaced(character)
    return character != "" and ord(character) in PLACEHOLDER_CODE_POINTS


def clamp_to_clause(source: str, span: str, text: str, position: int) -> int:
    """Return the position at which to insert a span of the source, at most `position`.

    It is before the closing mark of the translation, unless the span follows the closing mark of the source.
    """
    return position if _is_outside(source, span) else min(position, closing_marks_start(text))


def _is_outside(source: str, span: str) -> bool:
    """Whether a span of the source follows the source's closing mark."""
    index = source.find(span)
    if index < 0 or any(map(str.isalnum, source[index + len(span) :])):
        return False
    end = index
    while end > 0 and not source[end - 1].isalnum() and source[end - 1] not in _ENDS:
        end -= 1
    return source[end - 1 : end] in _ENDS


def without_strays(source: str, placeholders: Sequence[str], text: str) -> str:
    """Return the translation without the placeholders after its closing mark.

    If one of them is after the closing mark in the source, too, the translation is returned unchanged.
    """
    kept = text.rstrip(" " + "".join(placeholders))
    if not kept or kept == text.rstrip():
        return text
    if kept[-1] not in _ENDS and not (_is_closing(kept[-1]) and kept[-2:-1] in _ENDS):
        return text
    strays = [placeholder for placeholder in placeholders if placeholder in text[len(kept) :]]
    return kept if not any(_is_outside(source, stray) for stray in strays) else text
