"""What all file formats share: units, the slots of a text that they stand in, errors and limits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

# What no XML document can hold: a unit in XML cannot carry it.
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


class FileError(ValueError):
    """A file that cannot be read. The message names the line or part, and echoes nothing."""


class UnitFormat(StrEnum):
    """What a unit is written in, as the native API names it."""

    TEXT = "text"
    HTML = "html"
    XML = "xml"


@dataclass(frozen=True, slots=True)
class Unit:
    """One text to translate. is_wrapped: whether a line break in it is but a space.

    In XML the elements `g` and `x` are inline and `br` ends a sentence; every one of them must come back once.
    """

    text: str
    format: UnitFormat = UnitFormat.TEXT
    is_wrapped: bool = False


@dataclass(frozen=True)
class FileLimits:
    """What one file may hold; a larger one is refused before it is read whole.

    max_units, max_characters: texts to translate, and characters of all of them. max_parts, max_unpacked_bytes: entries
    of an archive, and bytes of all of them unpacked. max_part_bytes, max_elements: those of its XML that is read, and
    the elements in that.
    """

    max_units: int = 200_000
    max_characters: int = 10_000_000
    max_parts: int = 2_000
    max_unpacked_bytes: int = 100_000_000
    max_part_bytes: int = 30_000_000
    max_elements: int = 400_000

    def bounded(self, slots: Iterable[Slot]) -> tuple[Slot, ...]:
        """The slots. Raises FileError as soon as there are too many, or too many characters in them."""
        found: list[Slot] = []
        num_characters = 0
        for slot in slots:
            found.append(slot)
            num_characters += len(slot.unit.text)
            self.check(len(found), num_characters)
        return tuple(found)

    def check(self, num_units: int, num_characters: int) -> None:
        """Raises FileError for more texts than a file may have."""
        if num_units > self.max_units:
            raise FileError(f"the file has more than the {self.max_units} texts allowed")
        if num_characters > self.max_characters:
            raise FileError(f"the file has more than the {self.max_characters} characters of text allowed")


class TranslatableFile(Protocol):
    """A file that was read."""

    @property
    def units(self) -> Sequence[Unit]:
        """In reading order."""

    def write(self, translations: Sequence[str]) -> bytes:
        """The file with one translation for each unit. Raises ValueError for another number, or lost markup."""


@dataclass(frozen=True, slots=True)
class Slot:
    """text[start:end] of a file, which a unit's translation replaces. write: the translation as it stands there."""

    start: int
    end: int
    unit: Unit
    write: Callable[[str], str]


@dataclass(frozen=True)
class SlottedText:
    """A text file. slots: in order and apart. encode: the text's bytes."""

    text: str
    slots: tuple[Slot, ...]
    encode: Callable[[str], bytes]

    @property
    def units(self) -> tuple[Unit, ...]:
        """One a slot."""
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
    """Raises ValueError where there is not one translation a unit."""
    if len(translations) != num_units:
        raise ValueError(f"{len(translations)} translations for {num_units} units")


def is_translatable(text: str) -> bool:
    """Whether it holds a letter, and nothing that cannot travel."""
    return any(map(str.isalpha, text)) and not _NOT_XML.search(text)


def line_of(text: str, offset: int) -> int:
    """The line of a place, from 1."""
    return text.count("\n", 0, offset) + 1
