"""The messages between the server and a file worker. On the worker's pipes, each message follows its own length."""

from __future__ import annotations

import msgspec

from app.files import FileFormat, UnitFormat

# Bytes of the length before a message, a little-endian integer.
LENGTH_BYTES = 4


class WorkerLimits(msgspec.Struct, array_like=True, frozen=True):
    """The limits of one worker.

    memory_bytes: address space. cpu_s: whole seconds of CPU time to read or to write one file. part_characters: the
    maximum number of characters of a text that is not split.
    """

    memory_bytes: int
    cpu_s: int
    part_characters: int


class ReadRequest(msgspec.Struct, tag="read", array_like=True):
    """Extract the texts to translate from a file. target: the language of the translations; empty if not known."""

    content: bytes
    format: FileFormat
    target: str = ""


class WriteRequest(msgspec.Struct, tag="write", array_like=True):
    """Write a file with one translation for each text of `ReadResult`.

    target: as in `ReadRequest`. gap: what is written between the translations of two parts of a text that no white
    space separates.
    """

    content: bytes
    format: FileFormat
    translations: list[str]
    target: str = ""
    gap: str = ""


class TextUnit(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An `app.files.Unit`, or a part of one."""

    text: str
    format: UnitFormat
    is_wrapped: bool


class ReadResult(msgspec.Struct, tag="texts", array_like=True):
    """The texts to translate, in reading order. is_last: the worker then ends, because it has used much memory."""

    texts: list[TextUnit]
    is_last: bool = False


class WriteResult(msgspec.Struct, tag="written", array_like=True):
    """The translated file."""

    content: bytes
    is_last: bool = False


class InvalidFile(msgspec.Struct, tag="refused", array_like=True):
    """The file cannot be read or written. message: why, as in `FileError`; it never repeats the file's text."""

    message: str
    is_last: bool = False


class OutOfMemory(msgspec.Struct, tag="exhausted", array_like=True):
    """The file needs more memory than the limit."""

    is_last: bool = True


class InternalError(msgspec.Struct, tag="broken", array_like=True):
    """A bug. kind: the exception's type. location: file and line of the code."""

    kind: str
    location: str
    is_last: bool = True


ToWorker = ReadRequest | WriteRequest
FromWorker = ReadResult | WriteResult | InvalidFile | OutOfMemory | InternalError
