"""What a model reads in place of wide spaces, hyphens and invisible characters, and which of them its translation gets.

The training data has plain spaces only, and no character of INVISIBLE (`model/text_cleaning.py`). So the model reads
one plain space where the text has, between two visible characters, a no-break or other wide space, alone or beside one
plain space. It reads nothing where the text has one of INVISIBLE. A longer run of spaces stays unchanged, because it is
layout. U+3000 next to a character as wide as a Chinese one stays, too, because it does not separate words.

The model reads `-` for a hyphen beyond ASCII and for a minus sign, which most vocabularies lack. In a German text, it
reads `„“` for `»«` and `«»` around words.

If two words, or a word and a punctuation mark, are neighbours both in the text and in the translation, the translation
gets the text's space between them. It gets the text's hyphen or minus sign if the same words touch it on both sides, or
the same number follows it and no word touches it before.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, takewhile
from typing import NamedTuple

from app.text.language_codes import base_language

# Soft hyphen, zero-width space, word joiner and byte order mark. The joiners U+200C and U+200D are not among them,
# because emoji and several scripts need them. Marks of writing direction are not among them, although the training data
# lacks them, because they decide in which order a reader sees the words.
_WORD_JOINER = "\u2060"
INVISIBLE = frozenset("\u00ad\u200b\ufeff" + _WORD_JOINER)
_IDEOGRAPHIC_SPACE = "\u3000"
_WIDE_SPACES = frozenset("\u00a0\u202f\u205f" + "".join(map(chr, range(0x2000, 0x200B))) + _IDEOGRAPHIC_SPACE)
_SPACE = re.compile(f"[ {''.join(_WIDE_SPACES)}]")
# The hyphen, the non-breaking hyphen and the minus sign.
_HYPHENS = "\u2010\u2011\u2212"
_PLAIN_HYPHENS = str.maketrans(dict.fromkeys(_HYPHENS, "-"))
_SPECIAL = re.compile(f"[{''.join(INVISIBLE | _WIDE_SPACES)}{_HYPHENS}]")
# A wide and a plain space, as editors of web pages write two spaces.
_PAIR = re.compile(f"(?<=\\S)(?: [{''.join(_WIDE_SPACES)}]|[{''.join(_WIDE_SPACES)}] )(?=\\S)")
# A run of these counts as one space in markup.
ASCII_SPACES = " \t\n\r\f"
_ASCII_RUN = re.compile(f"[{ASCII_SPACES}]+")
_REPEATED = re.compile(f"[{ASCII_SPACES}]{{2}}")
# What is before a space or hyphen, a plain space or hyphen, and what is after it. They are composed (NFC), as the model
# writes them.
_Neighbours = tuple[str, str, str]
# The quotation marks of German books. An arrow such as the one in `Weiter \u00bb` touches no word.
_ANGLES = frozenset("\u00ab\u00bb")
_OPENING_ANGLE = re.compile(r"(?<!\w)[\u00ab\u00bb](?=[\w\u2026])")
_CLOSING_ANGLE = re.compile(r"(?<=[\w.!?,\u2026])[\u00ab\u00bb](?!\w)")


class ModelInput(NamedTuple):
    """A text as the model reads it.

    written: `source` with the text's wide spaces and hyphens, of the same length. positions: for each character of
    `source` its index in the text.
    """

    source: str
    written: str
    positions: Sequence[int]


def model_input(text: str, *, collapses_spaces: bool = False) -> ModelInput:
    """Return a text as the model reads it. collapses_spaces: whether a run of ASCII white space is one space."""
    is_special = not text.isascii() and _SPECIAL.search(text) is not None
    if not is_special and not (collapses_spaces and _REPEATED.search(text)):
        written = _ASCII_RUN.sub(" ", text) if collapses_spaces else text
        return ModelInput(written, written, range(len(text)))
    kept: list[int] = []
    is_cut = False  # whether a character after the last kept one is dropped
    for index, character in enumerate(text):
        is_repeated = bool(kept) and character in ASCII_SPACES and text[kept[-1]] in ASCII_SPACES
        if character in INVISIBLE or (is_repeated and (collapses_spaces or is_cut)):
            is_cut = True
        else:
            kept.append(index)
            is_cut = False
    written = "".join(text[index] for index in kept)
    if collapses_spaces:
        written = _ASCII_RUN.sub(" ", written)
    if paired := {match.start() + match.group().index(" ") for match in _PAIR.finditer(written)}:
        kept = [index for place, index in enumerate(kept) if place not in paired]
        written = "".join(each for place, each in enumerate(written) if place not in paired)
    source = _with_plain_spaces(written).translate(_PLAIN_HYPHENS) if is_special else written
    return ModelInput(source, written, kept if len(kept) < len(text) else range(len(text)))


def without_spaces_around_tags(text: str, positions: Iterable[int]) -> str:
    """Return the text with an invisible character for each space that tags separate from a space before it.

    The model does not read such a character, nor more spaces directly after it. positions: those of the tags.
    """
    doubled = [position for position in positions if text[max(position - 1, 0) : position + 1] == "  "]
    if not doubled:
        return text
    characters = list(text)
    for position in doubled:
        characters[position] = _WORD_JOINER
    return "".join(characters)


def with_common_quotes(text: str, language: str) -> str:
    """Return a German text with `„“` in place of `»«` and `«»` around words. Many vocabularies lack `»` and `«`.

    language: BCP 47 code of the text.
    """
    if base_language(language) != "de" or _ANGLES.isdisjoint(text):
        return text
    return _CLOSING_ANGLE.sub("\u201c", _OPENING_ANGLE.sub("\u201e", text))


def without_invisible(text: str) -> str:
    """Return the text without the characters of INVISIBLE."""
    if INVISIBLE.isdisjoint(text):
        return text
    return "".join(character for character in text if character not in INVISIBLE)


def _with_plain_spaces(text: str) -> str:
    """Return the text with a plain space for each single wide space between two visible characters."""
    characters = list(text)
    for index in range(1, len(text) - 1):
        before, space, after = text[index - 1], text[index], text[index + 1]
        if space not in _WIDE_SPACES or before.isspace() or after.isspace():
            continue
        if space != _IDEOGRAPHIC_SPACE or not (_is_wide(before) or _is_wide(after)):
            characters[index] = " "
    return "".join(characters)


def _is_wide(character: str) -> bool:
    """Whether a character is as wide as a Chinese one."""
    return unicodedata.east_asian_width(character) in "WF"


def with_written_characters(source: str, written: str, translation: str) -> str:
    """Return the translation with the wide spaces and hyphens of the text in the place of plain ones.

    The translation keeps its length, and the wide spaces and hyphens that it has. If the same two neighbours occur more
    often in the translation than in the text, the further occurrences get the last character that the text has between
    them. A second call changes nothing.
    source, written: as in `ModelInput`.
    """
    if source == written:
        return translation
    known: dict[_Neighbours, list[str]] = {}
    for position, neighbours in _spaces_and_hyphens(source):
        known.setdefault(neighbours, []).append(written[position])
    characters = list(translation)
    num_used: Counter[_Neighbours] = Counter()
    for position, neighbours in _spaces_and_hyphens(translation.translate(_PLAIN_HYPHENS)):
        if found := known.get(neighbours):
            if translation[position] in " -":
                characters[position] = found[min(num_used[neighbours], len(found) - 1)]
            num_used[neighbours] += 1
    return "".join(characters)


def _spaces_and_hyphens(text: str) -> Iterator[tuple[int, _Neighbours]]:
    """Yield the position and neighbours of each hyphen, and of each single space between two visible characters.

    The neighbours of a hyphen are the words that touch it, which may be missing. text: its hyphens are plain ones.
    """
    position = 0
    for before, after in pairwise(_SPACE.split(text)):
        position += len(before)
        if before and after:
            yield position, (_composed(_last_token(before)), " ", _composed(_first_token(after)))
        position += 1
    position = 0
    for before, after in pairwise(text.split("-")):
        position += len(before)
        last_word = _word_at_start(before[::-1])[::-1]
        yield position, (_composed(last_word), "-", _composed(_word_at_start(after)))
        position += 1


def _composed(token: str) -> str:
    return unicodedata.normalize("NFC", token)


def _last_token(chunk: str) -> str:
    """Return the last word with the marks after it, or the last mark if there is no word."""
    return _first_token(chunk[::-1])[::-1]


def _first_token(chunk: str) -> str:
    """Return the first word with the marks before it, or the first mark if there is no word."""
    start = next((index for index, each in enumerate(chunk) if _is_in_word(each)), None)
    return chunk[0] if start is None else chunk[:start] + _word_at_start(chunk[start:])


def _word_at_start(text: str) -> str:
    """Return the letters, digits and marks at the start of a text."""
    return "".join(takewhile(_is_in_word, text))


def _is_in_word(character: str) -> bool:
    """Whether a character is a letter, a digit, or a mark of one."""
    return character.isalnum() or unicodedata.category(character)[0] == "M"
