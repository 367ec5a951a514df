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
# Names of the Encoding standard that Python lacks, without `x-`. Each line begins with Python's name.
_MORE_NAMES = """
    big5 cn_big5
    cp1252 user_defined
    cp874 dos_874 windows_874
    cp932 windows_31j
    cp949 windows_949
    euc_jp cseucpkdfmtjapanese
    euc_kr cseuckr csksc56011987 iso_ir_149 ks_c_5601_1989 ksc_5601
    gb2312 csgb2312 gb_2312 gb_2312_80
    iso8859_6 csiso88596e csiso88596i iso_8859_6_e iso_8859_6_i
    iso8859_7 sun_eu_greek
    iso8859_8 csiso88598e csiso88598i iso_8859_8_e iso_8859_8_i logical visual
    iso8859_15 csisolatin9
    koi8_r koi koi8
    koi8_u koi8_ru
    mac_cyrillic mac_ukrainian
    mac_roman csmacintosh mac
    utf_16 csunicode iso_10646_ucs_2 ucs_2 unicode unicodefeff unicodefffe
    utf_8 unicode11utf8 unicode20utf8 unicode_1_1_utf_8
"""
_MORE_ALIASES = {
    alias: name for name, *names in map(str.split, _MORE_NAMES.strip().splitlines()) for alias in names
}
_PREFIX = re.compile(r"\A(?:x_)+")
_ISO_8859 = re.compile(r"\Aiso8859(?=\d)")
# In HTML, each name means the encodings at its right. They are tried in order until one decodes the file without loss.
_IN_HTML = {
    "ascii": ("cp1252",),
    "big5": ("big5hkscs", "big5"),
    "euc_kr": ("cp949",),
    "gb2312": ("gb18030",),
    "gbk": ("gb18030",),
    "iso8859_1": ("cp1252",),
    "iso8859_11": ("cp874",),
    "iso8859_9": ("cp1254",),
    "latin_1": ("cp1252",),
    "shift_jis": ("cp932",),
    "tis_620": ("cp874",),
}
# Windows encodings as the Encoding standard defines them: bytes from 0x80 to 0x9F without a character are control
# characters, which Python's codecs lack. The name of a codec with these control characters has this suffix.
_OF_HTML = "_of_html"
_WINDOWS = re.compile(r"cp(?:874|125\d)")
_BREAK = re.compile(r"\r\n|\n|\r")
_WIDE = ("utf_16", "utf_32", "utf_7")


def _html_codec(name: str) -> codecs.CodecInfo | None:
    """The codec of a Windows encoding in HTML, if this is its name."""
    base = name.removesuffix(_OF_HTML)
    if base == name or not _WINDOWS.fullmatch(base):
        return None
    characters = "".join(
        bytes([byte]).decode(base, "ignore") or (chr(byte) if byte < 0xA0 else "\ufffe")  # U+FFFE for none
        for byte in range(256)
    )
    mapping = codecs.charmap_build(characters)
    return codecs.CodecInfo(
        encode=lambda text, errors="strict": codecs.charmap_encode(text, errors, mapping),
        decode=lambda data, errors="strict": codecs.charmap_decode(data, errors, characters),
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
                    f"the translation has characters that the file's encoding {_shown(self.encoding)} lacks; "
                    "convert the file to UTF-8"
                ) from error

        return encode


def decode(data: bytes, declared: str | None = None, *, is_html: bool = False) -> Decoded:
    """Decode a file. declared: the encoding it names; None for UTF-8. is_html: whether the file is HTML.

    Raises FileError, with the line of the first invalid byte if there is one.
    """
    # First, because the mark of UTF-32-LE begins with the mark of UTF-16-LE.
    if data.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        raise FileError("the file is UTF-32; convert it to UTF-8")
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return Decoded(_text(data[len(mark) :], encoding, first_byte=len(mark) + 1), encoding, mark)
    errors = []
    for name in _codec_names(declared, is_html=is_html) if declared else ["utf-8"]:
        try:
            text = _text(data, name)
        except FileError as error:
            errors.append(error)
            continue
        if text.encode(name, "replace") == data:
            return Decoded(text, name)
        errors.append(
            FileError(
                f"the file does not survive decoding from {_shown(name)} unchanged; convert it to UTF-8"
            )
        )
    if is_html and not declared:
        raise FileError(
            f"{errors[0]}; declare the page's encoding with <meta charset> in the first 1,024 bytes, "
            "or save the page as UTF-8"
        ) from errors[0]
    raise errors[0]


def last_line(text: str) -> int:
    """The number of the text's last line, counted from 1."""
    return len(_BREAK.findall(text)) + 1


def _text(data: bytes, encoding: str, first_byte: int = 1) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        # Count the lines of the decoded text: in UTF-16 a newline's byte is also a part of other characters.
        line = last_line(data[: error.start].decode(encoding, "replace"))
        raise FileError(
            f"line {line} is not {_shown(encoding).upper()} (byte {error.start + first_byte} of the file)"
        ) from error


def _shown(codec: str) -> str:
    """A codec's name in messages."""
    return codec.removesuffix(_OF_HTML)


def _codec_names(declared: str, *, is_html: bool) -> list[str]:
    """Python's names of a declared encoding, the preferred one first. Raises FileError if the file cannot have it."""
    name = _PREFIX.sub("", normalize_encoding(declared).lower())
    name = _ISO_8859.sub("iso8859_", name)
    name = _MORE_ALIASES.get(name) or aliases.get(name, name)
    if is_html and name.startswith("utf_16"):
        name = "utf_8"  # A browser could not read the declaration of a file that is UTF-16.
    if name.startswith(_WIDE):
        raise FileError("the file names an encoding that it cannot have")
    if name not in _CODECS:
        raise FileError("the file names an encoding that is not supported")
    names = [codecs.lookup(each).name for each in (_IN_HTML.get(name, (name,)) if is_html else (name,))]
    return [each + _OF_HTML if is_html and _WINDOWS.fullmatch(each) else each for each in names]
