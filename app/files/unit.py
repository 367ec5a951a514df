"""The types that all file formats share.

A unit is a text to translate. A slot is the place of a unit in a text file. An office document has units without slots.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

# Characters that XML cannot contain. A text with one of them is not translated, because a unit may be in XML.
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


class FileError(ValueError):
    """The file cannot be read, or cannot be written with its translations.

    The message names the place of the problem, if it has one: the line of a text file or the entry of an archive. It
    never quotes the text of the file.
    """


class UnitFormat(StrEnum):
    """The format of a unit's text, with the names of the field `format` in the native API."""

    TEXT = "text"
    HTML = "html"
    XML = "xml"


@dataclass(frozen=True, slots=True)
class Unit:
    """One text to translate.

    is_wrapped: whether line breaks in the text are soft wraps, which count as spaces.

    In the format XML, `g` and `x` are inline elements, and a sentence ends at `br`. An `x` with `translate="no"` is a
    placeholder. The translation must have every element of the text exactly once.
    """

    text: str
    format: UnitFormat = UnitFormat.TEXT
    is_wrapped: bool = False


@dataclass(frozen=True)
class FileLimits:
    """The limits of one file. Reading stops as soon as a limit is exceeded.

    max_units: texts to translate. max_characters: characters of these texts together, with their tags.

    An office document is a ZIP archive with several entries, and an XLIFF file counts as one entry. max_parts: entries.
    max_unpacked_bytes: unpacked bytes of all entries together. max_part_bytes: unpacked bytes of the entries with text
    together. max_elements: XML elements of the same entries together.
    """

    max_units: int = 200_000
    max_characters: int = 10_000_000
    max_parts: int = 2_000
    max_unpacked_bytes: int = 100_000_000
    max_part_bytes: int = 30_000_000
    max_elements: int = 400_000

    def bounded(self, slots: Iterable[Slot]) -> tuple[Slot, ...]:
        """Read the slots into a tuple. Raises FileError at the first slot that exceeds max_units or max_characters."""
        accepted: list[Slot] = []
        num_characters = 0
        for slot in slots:
            accepted.append(slot)
            num_characters += len(slot.unit.text)
            self.check(len(accepted), num_characters)
        return tuple(accepted)

    def check(self, num_units: int, num_characters: int) -> None:
        """Raise FileError if a file has more than max_units texts or max_characters characters in them."""
        if num_units > self.max_units:
            raise FileError(f"the file exceeds the limit of {self.max_units} texts")
        if num_characters > self.max_characters:
            raise FileError(f"the file exceeds the limit of {self.max_characters} characters of text")


class TranslatableFile(Protocol):
    """A parsed file, which can be written again with translated texts."""

    @property
    def units(self) -> Sequence[Unit]:
        """The texts to translate, in reading order."""

    def write(self, translations: Sequence[str]) -> bytes:
        """The bytes of the file with each unit replaced by its translation.

        translations: one for each unit, in the same order. Raises ValueError if the number of translations differs from
        the number of units, or if the translation of an XML unit has lost an element or has another one. The markup of
        HTML units is not checked. Raises FileError if the file's encoding, or XML, cannot have a character of a
        translation.
        """


@dataclass(frozen=True, slots=True)
class Slot:
    """The range text[start:end] of a file that the translation of `unit` replaces.

    write: converts the translation to the syntax of the file, such as an escaped JSON string; None if the file cannot
        have the translation. group: if one slot of a group is written, all are; None for a slot without a group.
    """

    start: int
    end: int
    unit: Unit
    write: Callable[[str], str | None]
    group: int | None = None


@dataclass(frozen=True)
class SlottedText:
    """A parsed text file. slots: in the order of the text, without overlaps. encode: converts the text to bytes."""

    text: str
    slots: tuple[Slot, ...]
    encode: Callable[[str], bytes]

    @property
    def units(self) -> tuple[Unit, ...]:
        """The unit of each slot, in the order of the text."""
        return tuple(slot.unit for slot in self.slots)

    def write(self, translations: Sequence[str]) -> bytes:
        """The bytes of the file with the translations in their slots.

        A slot keeps the text of the file if its translation equals its text, unless its group is written. A slot whose
        translation the file cannot have keeps it, too, and so does its group. Raises ValueError if the number of
        translations differs from the number of slots, or if the translation of an XML unit lacks an element of its text
        or has another one. Raises FileError if the encoding of the file lacks a character.
        """
        check_count(translations, len(self.slots))
        pairs = list(zip(self.slots, translations, strict=True))
        changed = {slot.group for slot, translation in pairs if translation != slot.unit.text} - {None}
        written = [
            slot.write(translation) if translation != slot.unit.text or slot.group in changed else None
            for slot, translation in pairs
        ]
        kept = {slot.group for slot, text in zip(self.slots, written, strict=True) if text is None} - {None}
        parts: list[str] = []
        copied_until = 0
        for slot, text in zip(self.slots, written, strict=True):
            if text is not None and slot.group not in kept:
                parts += (self.text[copied_until : slot.start], text)
                copied_until = slot.end
        return self.encode("".join([*parts, self.text[copied_until:]]))


def check_count(translations: Sequence[str], num_units: int) -> None:
    """Raise ValueError unless the number of translations is num_units."""
    if len(translations) != num_units:
        raise ValueError(f"{len(translations)} translations for {num_units} units")


def is_translatable(text: str) -> bool:
    """Whether the text contains a letter, and no character that XML cannot contain."""
    return any(map(str.isalpha, text)) and is_xml_text(text)


def is_xml_text(text: str) -> bool:
    """Whether XML can contain every character of the text."""
    return not _NOT_XML.search(text)
