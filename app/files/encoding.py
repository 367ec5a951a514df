"""Decodes and encodes text files without loss: the encoding and a byte order mark are kept."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from dataclasses import dataclass
from encodings import normalize_encoding
from encodings.aliases import aliases

from app.files.unit import FileError

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Encodings that a file may declare, by Python's codec names: text encodings that contain ASCII. Declared names are
# looked up only here, because Python has further codecs that are no text encodings (idna, zlib, punycode).
_CODEC_NAMES = """
    utf_8 ascii latin_1 iso8859_1 iso8859_2 iso8859_3 iso8859_4 iso8859_5 iso8859_6 iso8859_7 iso8859_8 iso8859_9
    iso8859_10 iso8859_11 iso8859_13 iso8859_14 iso8859_15 iso8859_16 cp1250 cp1251 cp1252 cp1253 cp1254 cp1255 cp1256
    cp1257 cp1258 cp437 cp850 cp852 cp855 cp857 cp862 cp866 cp874 koi8_r koi8_u koi8_t kz1048 ptcp154 mac_roman
    mac_cyrillic mac_greek mac_latin2 mac_turkish tis_620 gbk gb2312 gb18030 big5 big5hkscs cp950 euc_jp
    shift_jis cp932 iso2022_jp euc_kr cp949
"""
_CODECS = frozenset(_CODEC_NAMES.split())
# Names of the HTML standard that Python lacks.
_MORE_ALIASES = {"windows_874": "cp874", "windows_31j": "cp932", "x_sjis": "shift_jis", "x_gbk": "gbk"}
_MORE_ALIASES |= {"iso88591": "latin_1", "x_cp1252": "cp1252"}
# In HTML, these names mean Windows-1252 as the Encoding standard defines it: five bytes are control characters that
# Python's codec lacks.
_MEANS_WINDOWS_1252 = frozenset({"ascii", "iso8859-1", "cp1252"})
_HTML_CODEC = "windows_1252_of_html"
_HTML_CHARACTERS = "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in range(256))
_HTML_BYTES = codecs.charmap_build(_HTML_CHARACTERS)
_BREAK = re.compile(r"\r\n|\n|\r")
_WIDE = ("utf_16", "utf_32", "utf_7")


def _html_codec(name: str) -> codecs.CodecInfo | None:
    """The codec of Windows-1252 in HTML, if this is its name."""
    if name != _HTML_CODEC:
        return None
    return codecs.CodecInfo(
        encode=lambda text, errors="strict": codecs.charmap_encode(text, errors, _HTML_BYTES),
        decode=lambda data, errors="strict": codecs.charmap_decode(data, errors, _HTML_CHARACTERS),
        name=name,
    )


codecs.register(_html_codec)


@dataclass(frozen=True)
class Decoded:
    """A decoded file. text: without its byte order mark."""

    text: str
    encoding: str
    mark: bytes = b""

    def encoder(self, errors: str = "strict") -> Callable[[str], bytes]:
        """A function that encodes a text as the file is encoded. It raises FileError for a character without a code.

        errors: the codec's error handler.
        """

        def encode(text: str) -> bytes:
            try:
                return self.mark + text.encode(self.encoding, errors)
            except UnicodeEncodeError as error:
                raise FileError(
                    f"the translation has characters that the file's encoding {self.encoding} lacks; "
                    "convert the file to UTF-8"
                ) from error

        return encode


def decode(data: bytes, declared: str | None = None, *, is_html: bool = False) -> Decoded:
    """Decode a file. declared: the encoding it names; None for UTF-8. is_html: whether the name is one in HTML.

    Raises FileError, with the line of the first invalid byte if there is one.
    """
    # First, because the mark of UTF-32-LE begins with that of UTF-16-LE.
    if data.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        raise FileError("the file is UTF-32; convert it to UTF-8")
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return Decoded(_text(data[len(mark) :], encoding, first_byte=len(mark) + 1), encoding, mark)
    name = _codec_name(declared) if declared else "utf-8"
    if is_html and name in _MEANS_WINDOWS_1252:
        name = _HTML_CODEC
    text = _text(data, name)
    if text.encode(name, "replace") != data:
        raise FileError(f"the file does not survive decoding from {name} unchanged; convert it to UTF-8")
    return Decoded(text, name)


def last_line(text: str) -> int:
    """The number of the text's last line, counted from 1."""
    return len(_BREAK.findall(text)) + 1


def _text(data: bytes, encoding: str, first_byte: int = 1) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        # Decoded, because in UTF-16 a newline's byte is also a part of other characters.
        line = last_line(data[: error.start].decode(encoding, "replace"))
        raise FileError(
            f"line {line} is not {encoding.upper()} (byte {error.start + first_byte} of the file)"
        ) from error


def _codec_name(declared: str) -> str:
    """Python's codec name of a declared encoding. Raises FileError if the file cannot have it."""
    name = normalize_encoding(declared).lower()
    name = _MORE_ALIASES.get(name) or aliases.get(name, name)
    if name.startswith(_WIDE):
        raise FileError("the file names an encoding that it cannot have")
    if name not in _CODECS:
        raise FileError("the file names an encoding that is not supported")
    return codecs.lookup(name).name
