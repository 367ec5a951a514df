"""What the server and a file worker write to each other: a length, then one message, over the worker's two pipes."""

from __future__ import annotations

import msgspec

from app.files import FileFormat, UnitFormat

# Before each message its length in bytes.
LENGTH_BYTES = 4


class WorkerLimits(msgspec.Struct, array_like=True, frozen=True):
    """Of one worker, and of one file in it.

    memory_bytes: of address space. cpu_s: whole seconds of processor time to read a file, or to write it.
    part_characters: a longer text is cut.
    """

    memory_bytes: int
    cpu_s: int
    part_characters: int


class ReadRequest(msgspec.Struct, tag="read", array_like=True):
    """Say what is to be translated."""

    content: bytes
    format: FileFormat


class WriteRequest(msgspec.Struct, tag="write", array_like=True):
    """WriteRequest the file with a translation for each text that `ReadRequest` of the same content says."""

    content: bytes
    format: FileFormat
    translations: list[str]


class TextUnit(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """As `app.files.Unit`, or a part of one."""

    text: str
    format: UnitFormat
    is_wrapped: bool


class ReadResult(msgspec.Struct, tag="texts", array_like=True):
    """What is to be translated, in reading order. is_last: the worker ends, for it has grown."""

    texts: list[TextUnit]
    is_last: bool = False


class WriteResult(msgspec.Struct, tag="written", array_like=True):
    """The file."""

    content: bytes
    is_last: bool = False


class InvalidFile(msgspec.Struct, tag="refused", array_like=True):
    """The file cannot be read or written. message: names the line or part, and echoes nothing."""

    message: str
    is_last: bool = False


class OutOfMemory(msgspec.Struct, tag="exhausted", array_like=True):
    """The memory did not suffice."""

    is_last: bool = True


class InternalError(msgspec.Struct, tag="broken", array_like=True):
    """An error of ours. kind: the exception's name. place: file and line of the code."""

    kind: str
    place: str
    is_last: bool = True


ToWorker = ReadRequest | WriteRequest
FromWorker = ReadResult | WriteResult | InvalidFile | OutOfMemory | InternalError
