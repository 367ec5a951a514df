"""Bytes to text and back, so that nothing is lost: a byte order mark and the encoding stay what they were."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from dataclasses import dataclass

from app.files.unit import FileError

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True)
class Decoded:
    """text: without its byte order mark. errors: what becomes of characters that the encoding lacks."""

    text: str
    encoding: str
    mark: bytes = b""

    def encoder(self, errors: str = "strict") -> Callable[[str], bytes]:
        """The way back. It raises FileError for a character that the file's encoding lacks."""

        def encode(text: str) -> bytes:
            try:
                return self.mark + text.encode(self.encoding, errors)
            except UnicodeEncodeError as error:
                raise FileError(
                    f"the translation has characters that the file's encoding {self.encoding} lacks; "
                    "convert the file to UTF-8"
                ) from error

        return encode


def decode(data: bytes, declared: str | None = None) -> Decoded:
    """The text of a file. declared: the encoding that it names itself; UTF-8 where it names none.

    Raises FileError with the line of the first wrong byte.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return Decoded(_text(data[len(mark) :], encoding), encoding, mark)
    encoding = declared or "utf-8"
    try:
        name = codecs.lookup(encoding).name
    except (LookupError, ValueError) as error:
        raise FileError("the file names an encoding that is not known") from error
    if not _is_ascii_based(name):
        raise FileError("the file names an encoding that it cannot be in")
    text = _text(data, name)
    if text.encode(name, "replace") != data:
        raise FileError(f"the file's encoding {name} cannot be kept byte by byte; convert it to UTF-8")
    return Decoded(text, name)


def _text(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FileError(
            f"line {line} is not {encoding.upper()} (byte {error.start + 1} of the file)"
        ) from error


def _is_ascii_based(name: str) -> bool:
    """Whether it is an encoding of text that holds ASCII as it is."""
    try:
        return codecs.lookup(name)._is_text_encoding and "Az<>&\n".encode(name) == b"Az<>&\n"
    except (LookupError, UnicodeError):
        return False
