"""The types that all file formats share: units, slots, limits and errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

# Characters that XML cannot contain, so a unit in XML cannot hold them.
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


class FileError(ValueError):
    """The file cannot be read. The message names the line or part and never repeats the file's text."""


class UnitFormat(StrEnum):
    """The format of a unit's text, named as in the native API."""

    TEXT = "text"
    HTML = "html"
    XML = "xml"


@dataclass(frozen=True, slots=True)
class Unit:
    """One text to translate. is_wrapped: line breaks in it are soft wraps and count as spaces.

    In XML the elements `g` and `x` are inline and `br` ends a sentence; each must occur once in the translation.
    """

    text: str
    format: UnitFormat = UnitFormat.TEXT
    is_wrapped: bool = False


@dataclass(frozen=True)
class FileLimits:
    """What one file may contain; a larger one is rejected before it is read completely.

    max_units, max_characters: texts to translate, and their total characters. max_parts, max_unpacked_bytes: entries of
    an archive, and their total unpacked bytes. max_part_bytes, max_elements: bytes of an archive's text entries, and
    the XML elements in them.
    """

    max_units: int = 200_000
    max_characters: int = 10_000_000
    max_parts: int = 2_000
    max_unpacked_bytes: int = 100_000_000
    max_part_bytes: int = 30_000_000
    max_elements: int = 400_000

    def bounded(self, slots: Iterable[Slot]) -> tuple[Slot, ...]:
        """The slots as a tuple. Raises FileError as soon as there are too many slots or characters."""
        found: list[Slot] = []
        num_characters = 0
        for slot in slots:
            found.append(slot)
            num_characters += len(slot.unit.text)
            self.check(len(found), num_characters)
        return tuple(found)

    def check(self, num_units: int, num_characters: int) -> None:
        """Raise FileError if a file has too many texts or characters."""
        if num_units > self.max_units:
            raise FileError(f"the file has more than the {self.max_units} texts allowed")
        if num_characters > self.max_characters:
            raise FileError(f"the file has more than the {self.max_characters} characters of text allowed")


class TranslatableFile(Protocol):
    """A parsed file."""

    @property
    def units(self) -> Sequence[Unit]:
        """The texts to translate, in reading order."""

    def write(self, translations: Sequence[str]) -> bytes:
        """The file with one translation per unit.

        Raises ValueError for another number of translations or lost markup.
        """


@dataclass(frozen=True, slots=True)
class Slot:
    """The range text[start:end] that a unit's translation replaces. write: formats the translation for the file."""

    start: int
    end: int
    unit: Unit
    write: Callable[[str], str]


@dataclass(frozen=True)
class SlottedText:
    """A text file. slots: in order, not overlapping. encode: converts the text to bytes."""

    text: str
    slots: tuple[Slot, ...]
    encode: Callable[[str], bytes]

    @property
    def units(self) -> tuple[Unit, ...]:
        """One unit per slot."""
        return tuple(slot.unit for slot in self.slots)

    def write(self, translations: Sequence[str]) -> bytes:
        """The file with the translations in their slots. Raises ValueError."""
        check_count(translations, len(self.slots))
        parts: list[str] = []
        done = 0
        for slot, translation in zip(self.slots, translations, strict=True):
            if translation != slot.unit.text:
                parts += (self.text[done : slot.start], slot.write(translation))
                done = slot.end
        return self.encode("".join([*parts, self.text[done:]]))


def check_count(translations: Sequence[str], num_units: int) -> None:
    """Raise ValueError unless there is one translation per unit."""
    if len(translations) != num_units:
        raise ValueError(f"{len(translations)} translations for {num_units} units")


def is_translatable(text: str) -> bool:
    """Whether the text contains a letter, and no character that XML excludes."""
    return any(map(str.isalpha, text)) and not _NOT_XML.search(text)


def line_of(text: str, offset: int) -> int:
    """The line number of an offset, from 1."""
    return text.count("\n", 0, offset) + 1
