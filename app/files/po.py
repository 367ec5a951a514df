"""gettext catalogues (.po): fills the `msgstr` of each entry that has no translation.

`msgstr` and `msgstr[0]` get the translation of `msgid`. The other forms get the translation of `msgid_plural`. If an
entry with `msgid_plural` has `msgstr[0]` only, `msgstr[0]` gets the translation of `msgid_plural`. The header,
comments, flags, contexts, obsolete entries and existing translations, fuzzy or not, are kept. A translation equal to
its source leaves `msgstr` empty, because gettext then shows the source. So does a translation with another order of the
arguments of printf, if the entry's format cannot number them. Of several forms, all are written, or none.

The header declares the encoding. If that encoding lacks a character of a translation, the catalogue is written in
UTF-8, and its header says so. The `charset=CHARSET` of a template is read as UTF-8, and becomes `UTF-8` if a
translation is written and the file has characters beyond ASCII.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from app.files.encoding import Decoded, decode, last_line
from app.files.string_text import StringText
from app.files.unit import FileError, FileLimits, Slot, SlottedText, is_translatable, is_xml_text

# A comment, a keyword before a string, or a string; each with the white space after it.
_TOKEN = re.compile(
    r"(?:(?P<comment>#[^\r\n]*+)"
    r"|(?P<keyword>domain|msgctxt|msgid_plural|msgid|msgstr(?:\s*+\[\s*+(?P<index>\d++)\s*+\])?)(?=\s*+\")"
    r"|(?P<quoted>\"(?P<string>[^\"\\\r\n]*+(?:\\[^\r\n][^\"\\\r\n]*+)*)\"))\s*+"
)
# Flags of entries whose format has no numbered arguments of printf such as `%1$s`.
_UNNUMBERED = frozenset({"go-format", "lua-format", "object-pascal-format", "python-format"})
# A byte in octal or hexadecimal, another escape, or text without escapes.
_PIECE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|(.))|([^\\]+)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_SPELLINGS = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "\a": "\\a", "\b": "\\b"} | {
    "\f": "\\f",
    "\v": "\\v",
}
# The header is the first entry with an empty msgid. The group matches the strings of its msgstr.
_HEADER = re.compile(rb'(?<![^\r\n])[ \t]*+msgid(?>(?:\s*+"")+)\s*+msgstr((?>(?:\s*+"[^\r\n]*+)+))')
# A string may end between any two characters and continue in the next line.
_BREAK = rb'(?:"\s*+")?'
_NAME = rb"[A-Za-z0-9_.:-](?:%b[A-Za-z0-9_.:-]){0,39}" % _BREAK
# gettext, too, takes the first `charset=` of the header, in whatever field.
_CHARSET = re.compile(
    _BREAK.join([*(b"%c" % letter for letter in b"charset="), b"(%b)" % _NAME]), re.IGNORECASE
)
# What a template has instead of the encoding's name.
_TEMPLATE = "CHARSET"


@dataclass
class _String:
    """A string as one or more strings in quotes: text[start:end], with the quotes.

    parts: what is between the quotes of each, with escapes.
    """

    start: int
    end: int
    parts: list[str]

    @property
    def is_empty(self) -> bool:
        """Whether the string has no character."""
        return not any(self.parts)

    def value(self, file: Decoded) -> str:
        """The unescaped string. Raises FileError.

        An escape in octal or hexadecimal is a byte in the file's encoding. Any bytes of a character may be escaped, and
        a character may begin in one line and end in the next one.
        """
        # The escapes of a file with a byte order mark are UTF-8, even if the file is UTF-16.
        encoding = "utf-8" if file.mark else file.encoding
        try:
            return b"".join(_unescaped(part, encoding) for part in self.parts).decode(encoding)
        except UnicodeDecodeError as error:
            line, name = last_line(file.text[: self.start]), encoding.upper()
            raise FileError(f"line {line}: the escaped bytes of this string are not {name}") from error


@dataclass
class _Entry:
    """One message.

    flags: such as `c-format`. source: msgid. plural: msgid_plural. targets: each msgstr by its index; a plain msgstr
    has 0.
    """

    flags: frozenset[str] = frozenset()
    source: _String | None = None
    plural: _String | None = None
    targets: dict[int, _String] = field(default_factory=dict)


def read_po(data: bytes, limits: FileLimits) -> SlottedText:
    """Parse a catalogue. Raises FileError with the line of a syntax error."""
    declared = _charset(data)
    name = re.sub(_BREAK, b"", declared[1]).decode() if declared else None
    decoded = decode(data, None if name == _TEMPLATE else name)
    end = "\r\n" if "\r\n" in decoded.text else "\n"
    entries = _Reader(decoded.text).entries()
    slots = limits.bounded(slot for entry in entries for slot in _slots(entry, decoded, end))
    return SlottedText(decoded.text, slots, _encoder(decoded, is_template=name == _TEMPLATE))


def _charset(data: bytes) -> re.Match[bytes] | None:
    """The declaration of the encoding in the header."""
    header = _HEADER.search(data)
    return _CHARSET.search(data, header.start(1), header.end(1)) if header else None


def _in_utf8(data: bytes) -> bytes:
    """The catalogue with UTF-8 as its declared encoding."""
    declared = _charset(data)
    return data[: declared.start(1)] + b"UTF-8" + data[declared.end(1) :] if declared else data


def _encoder(decoded: Decoded, *, is_template: bool) -> Callable[[str], bytes]:
    """A function that encodes a catalogue as the file is encoded, or in UTF-8 if that encoding lacks a character.

    is_template: whether the header has CHARSET instead of the encoding's name.
    """
    encode_as_read = decoded.encoder()

    def encode(text: str) -> bytes:
        try:
            data = encode_as_read(text)
        except FileError:
            if decoded.mark or decoded.encoding == "utf-8":
                raise
            return _in_utf8(Decoded(text, "utf-8").encoder()(text))
        return _in_utf8(data) if is_template and text != decoded.text and not text.isascii() else data

    return encode


def _slots(entry: _Entry, file: Decoded, end: str) -> list[Slot]:
    """The slots of an entry. end: the file's line ending. Raises FileError."""
    if entry.source is None or entry.source.is_empty:
        return []
    if not all(each.is_empty for each in entry.targets.values()):
        return []
    single = entry.source.value(file)
    plural = single if entry.plural is None else entry.plural.value(file)
    # In a language with a single form for all numbers, the only msgstr translates msgid_plural.
    sources = {index: plural if index > 0 or len(entry.targets) == 1 else single for index in entry.targets}
    texts = set(sources.values())  # at most two, however many forms there are
    if not any(map(is_translatable, texts)) or not all(map(is_xml_text, texts)):
        return []
    strings = {text: StringText.of(text) for text in texts}
    may_number = _UNNUMBERED.isdisjoint(entry.flags)
    # gettext shows an empty form as it is, so all forms are written, or none.
    group = entry.source.start if len(entry.targets) > 1 else None
    slots = []
    for index, target in sorted(entry.targets.items(), key=lambda item: item[1].start):
        string = strings[sources[index]]
        writer = _MessageWriter(string, may_number, end)
        slots.append(Slot(target.start, target.end, string.unit, writer, group))
    return slots


@dataclass(frozen=True, slots=True)
class _MessageWriter:
    """Writes the translation of a message.

    may_number: whether the message may have numbered arguments of printf. end: the file's line ending.
    """

    string: StringText
    may_number: bool
    end: str

    def __call__(self, translation: str) -> str | None:
        """The translation in quotes; None if it would need numbered arguments that the message may not have."""
        if not self.may_number and self.string.is_reordered(translation):
            return None
        return spelled(self.string.translated(translation), self.end)


def spelled(text: str, end: str) -> str:
    r"""The text as a quoted string. A new line follows each \n, as gettext's tools write it. end: the line ending."""
    lines = text.split("\n")
    lines = [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    quoted = [
        '"' + "".join(_SPELLINGS.get(character, character) for character in line) + '"' for line in lines
    ]
    return end.join(['""', *quoted]) if len(quoted) > 1 else "".join(quoted) or '""'


class _Reader:
    """Parses the text into entries."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._entry = _Entry()
        self._flags: frozenset[str] = frozenset()
        self._last: _String | None = None
        self._entries: list[_Entry] = []

    def entries(self) -> list[_Entry]:
        """All entries. Raises FileError."""
        position = len(self._text) - len(self._text.lstrip())
        while position < len(self._text):
            try:
                position = self._read_token(position)
            except FileError as error:
                raise FileError(f"line {last_line(self._text[:position])}: {error}") from error
        self._entries.append(self._entry)
        for entry in self._entries:
            if entry.source is not None and not entry.targets:
                line = last_line(self._text[: entry.source.start])
                raise FileError(f"line {line}: a msgid without its msgstr")
        return self._entries

    def _read_token(self, start: int) -> int:
        """Read the token at `start`. Return where the next one begins."""
        token = _TOKEN.match(self._text, start)
        if token is None:
            raise FileError("expected a keyword and a string in quotes")
        if token["comment"] is not None:
            self._read_comment(token["comment"])
        elif token["keyword"] is not None:
            self._last = _String(token.end(), token.end(), [])
            index = int(token["index"][:4]) if token["index"] else None
            self._assign(token["keyword"].partition("[")[0].rstrip(), index, self._last)
        elif self._last is None:
            raise FileError("a string without a keyword")
        else:
            self._last.parts.append(token["string"])
            self._last.end = token.end("quoted")
        return token.end()

    def _read_comment(self, comment: str) -> None:
        self._last = None
        if comment.startswith("#,"):
            self._flags |= frozenset(map(str.strip, comment[2:].split(",")))
        elif comment.startswith("#~"):  # the flags are those of an obsolete entry
            self._flags = frozenset()

    def _assign(self, keyword: str, index: int | None, string: _String) -> None:
        """Add a keyword's string to the current entry, or begin the next entry. index: of a msgstr, if it has one."""
        if keyword in {"domain", "msgctxt", "msgid"} and self._entry.source is not None:
            self._entries.append(self._entry)
            self._entry = _Entry()
        if keyword == "msgid":
            self._entry.source = string
            self._entry.flags, self._flags = self._flags, frozenset()
        elif keyword == "msgid_plural":
            self._entry.plural = string
        elif keyword == "msgstr":
            if self._entry.source is None:
                raise FileError("a msgstr without its msgid")
            if (index or 0) in self._entry.targets:
                name = keyword if index is None else f"msgstr[{index}]"
                raise FileError(f"a second {name} for the same msgid")
            self._entry.targets[index or 0] = string


def _unescaped(text: str, encoding: str) -> bytes:
    """The bytes of an escaped string."""
    return b"".join(
        # As in gettext, only the lowest eight bits of an octal number count.
        bytes([int(octal or hexadecimal, 8 if octal else 16) & 0xFF])
        if octal or hexadecimal
        else (literal or _ESCAPES.get(escaped, escaped)).encode(encoding)
        for octal, hexadecimal, escaped, literal in _PIECE.findall(text)
    )
