"""JSON: translates string values. Keys, numbers, order and white space are kept.

A translated string escapes each of `/`, `<`, `>`, `&` and `'` that the original string escapes. It escapes characters
beyond ASCII if the file escapes them all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import msgspec

from app.files.encoding import decode
from app.files.string_text import StringText
from app.files.unit import FileError, FileLimits, Slot, SlottedText, is_translatable

# The content of a quoted string, with escapes.
_INSIDE_QUOTES = r'[^"\\]*+(?:\\.[^"\\]*+)*'
_TOKEN = re.compile(rf'"{_INSIDE_QUOTES}"|[^\s"]')
_COLON = re.compile(r"\s*:")
# An escaped character beyond ASCII, and an escaped slash. Before each is an even number of backslashes.
_ESCAPED_CHARACTER = re.compile(r"(?<!\\)(?>(?:\\\\)*)\\u(?!00[0-7])")
_ESCAPED_SLASH = re.compile(r"(?<!\\)(?>(?:\\\\)*)\\/")
# An escaped `<`, `>`, `&` or `'`. A page that holds the JSON may need the escape: `</script>` ends a script.
_ESCAPED_MARKUP = re.compile(r"(?<!\\)(?>(?:\\\\)*)(\\u00(2[67]|3[CcEe]))")


def read_json(data: bytes, limits: FileLimits) -> SlottedText:
    """Parse JSON. Raises FileError with line and column of a syntax error."""
    decoded = decode(data)
    _check(decoded.text)
    return SlottedText(decoded.text, limits.bounded(_slots(decoded.text)), decoded.encoder())


def _check(text: str) -> None:
    """Raise FileError for invalid JSON, without building objects of a large file."""
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        pass  # Python's parser accepts more (NaN) and has better error messages
    else:
        return
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise FileError(f"line {error.lineno}, column {error.colno}: {error.msg}") from error
    except (RecursionError, ValueError) as error:
        raise FileError("the JSON is nested too deeply, or has a number that is too long") from error


def _slots(text: str) -> Iterator[Slot]:
    is_ascii = text.isascii() and _ESCAPED_CHARACTER.search(text) is not None
    for match in _TOKEN.finditer(text):
        raw = match.group()
        if raw[0] != '"' or _COLON.match(text, match.end()):
            continue
        value = json.loads(raw)
        if is_translatable(value):
            string = StringText.of(value)
            writer = _StringWriter(string, is_ascii, _escapes(raw))
            yield Slot(match.start(), match.end(), string.unit, writer)


def _escapes(raw: str) -> dict[str, str]:
    """The characters of ASCII that the string escapes without need, each with its escape."""
    escapes = {chr(int(match[2], 16)): match[1] for match in _ESCAPED_MARKUP.finditer(raw)}
    return {**escapes, "/": "\\/"} if _ESCAPED_SLASH.search(raw) else escapes


class _StringWriter:
    """Writes the translation of a string in the style of the file.

    is_ascii: whether characters beyond ASCII are escaped. escapes: how characters of ASCII are written.
    """

    def __init__(self, string: StringText, is_ascii: bool, escapes: dict[str, str]) -> None:
        self._string = string
        self._is_ascii = is_ascii
        self._escapes = escapes

    def __call__(self, translation: str) -> str:
        """The string as JSON. translation: that of its unit."""
        written = json.dumps(self._string.translated(translation), ensure_ascii=self._is_ascii)
        for character, escape in self._escapes.items():
            written = written.replace(character, escape)
        return written
