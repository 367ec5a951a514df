"""Lower-cases sentences in capitals and titles for the model, and restores the casing of the translation.

A sentence in capitals (`MIND THE GAP`) has no lower-case letter except `ß`, no letter of a script without case, and is
more than an acronym. It has a word of five letters or more, or two words of two letters or more, one of them with four.
Or it is a single word of three or four letters that the vocabulary has as one subword (`OPEN`). The model reads it in
lower case with a capital at its start. The translation is converted to capitals, where `ß` becomes `SS`.

An English title (`The Old Man and the Sea`) has at least four words and does not end with a full stop. All its words
except small ones (`and`, `the`) are capitalised, and three or more have lower-case letters after the capital. The model
reads it in lower case after its first letter, and the translation keeps the case that the model writes.

Words with a digit and the word `I`, also in `I'm`, stay unchanged. In a title, so do words of one letter, and words
with a capital after the first letter. All other sentences stay unchanged.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from enum import Enum

from app.text.language_codes import base_language

_CHUNK = re.compile(r"\S+")
_LETTERS = re.compile(r"[^\W\d_]+")
_LOWER = re.compile(r"[a-z]")
_SMALL = """
    a an and as at but by for from in into is nor of off on onto or over per so than that the to up via vs with
"""
_SMALL_WORDS = frozenset(_SMALL.split())
# Fewest words of a title. If smaller, names of three words are lower-cased. If larger, more titles keep their capitals,
# and the model translates these badly.
MIN_TITLE_WORDS = 4


class Casing(Enum):
    """The casing of a sentence."""

    PLAIN = "plain"
    CAPITALS = "capitals"
    TITLE = "title"


def no_word(word: str) -> bool:
    """Return False: without a vocabulary a short word in capitals counts as an acronym."""
    return False


def casing_of(text: str, language: str, is_word: Callable[[str], bool] = no_word) -> Casing:
    """Return the casing of a sentence.

    language: BCP 47 code of the sentence. is_word: whether a short word in capitals is a word, not an acronym.
    """
    may_be_title = base_language(language) == "en" and not text.rstrip().endswith(".")
    if not may_be_title and _LOWER.search(text):
        return Casing.PLAIN
    words = _LETTERS.findall(text)
    if _is_in_capitals(words, is_word):
        return Casing.CAPITALS
    return Casing.TITLE if may_be_title and _is_title(text, words) else Casing.PLAIN


def _is_in_capitals(words: list[str], is_word: Callable[[str], bool]) -> bool:
    if any(_is_no_capital(character) for word in words for character in word):
        return False
    lengths = [len(word) for word in words if word.upper() != word.lower()]
    longest = max(lengths, default=0)
    if longest >= 5 or (longest >= 4 and sum(length > 1 for length in lengths) > 1):
        return True
    return len(words) == 1 and longest >= 3 and is_word(words[0])


def _is_no_capital(letter: str) -> bool:
    """Whether a letter is lower-case, except `ß`, or belongs to a script without case."""
    return (letter.islower() and letter != "ß") or unicodedata.category(letter) == "Lo"


def _is_title(text: str, words: list[str]) -> bool:
    """Whether a text is a title, by the rule in the module's docstring."""
    chunks = [chunk for chunk in text.split() if _LETTERS.search(chunk)]
    if len(chunks) < MIN_TITLE_WORDS:
        return False
    if not all(_is_capitalised(chunk) or chunk.strip(",:;!?()").lower() in _SMALL_WORDS for chunk in chunks):
        return False
    return sum(_is_capitalised(word) and word[1:].islower() for word in words) >= MIN_TITLE_WORDS - 1


def _is_capitalised(chunk: str) -> bool:
    match = _LETTERS.search(chunk)
    return match is not None and match.group()[0].isupper()


def lowered(text: str, casing: Casing) -> str:
    """Return the sentence as the model reads it. Each character is replaced by one character."""
    if casing is Casing.PLAIN:
        return text
    result = _CHUNK.sub(lambda chunk: _lowered_chunk(chunk.group(), casing), text)
    first = _LETTERS.search(text)
    if first is None:
        return text
    return result[: first.start()] + text[first.start()] + result[first.start() + 1 :]


def _lowered_chunk(chunk: str, casing: Casing) -> str:
    letters = "".join(_LETTERS.findall(chunk))
    keeps = (
        any(character.isdigit() for character in chunk) or letters == "I" or chunk.startswith(("I'", "I’"))
    )
    if casing is Casing.TITLE:
        keeps = keeps or not letters[1:].islower()
    if keeps and not (casing is Casing.CAPITALS and chunk.startswith(("I'", "I’"))):
        return chunk
    lower = "".join(_same_length(character.lower(), character) for character in chunk)
    return "I" + lower[1:] if chunk.startswith(("I'", "I’")) else lower


def _same_length(changed: str, character: str) -> str:
    """Return the changed character if it is a single character, else the old one, so that positions stay the same."""
    return changed if len(changed) == 1 else character


def restored(text: str, casing: Casing) -> str:
    """Return a part of the translation, in capitals if its source sentence is in capitals, else unchanged."""
    return text.upper() if casing is Casing.CAPITALS else text
