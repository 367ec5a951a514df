"""JSON: translates string values. Keys, numbers, order and white space are kept.

A translated string escapes each of `/`, `<`, `>`, `&` and `'` that the original string escapes, and characters beyond
ASCII if the file escapes them all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import msgspec

from app.files.encoding import decode
from app.files.references import has_reference
from app.files.unit import FileError, FileLimits, Slot, SlottedText, Unit, UnitFormat, is_translatable

# The content of a quoted string, with escapes.
INSIDE_QUOTES = r'[^"\\]*+(?:\\.[^"\\]*+)*'
_TOKEN = re.compile(rf'"{INSIDE_QUOTES}"|[^\s"]')
_COLON = re.compile(r"\s*:")
# An escaped character beyond ASCII, and an escaped slash. Before each is an even number of backslashes.
_ESCAPED_CHARACTER = re.compile(r"(?<!\\)(?>(?:\\\\)*)\\u(?!00[0-7])")
_ESCAPED_SLASH = re.compile(r"(?<!\\)(?>(?:\\\\)*)\\/")
# An escaped `<`, `>`, `&` or `'`. A page that holds the JSON may need the escape: `</script>` ends a script.
_ESCAPED_MARKUP = re.compile(r"(?<!\\)(?>(?:\\\\)*)(\\u00(2[67]|3[CcEe]))")
_TAG = re.compile(r"<(?P<close>/?)(?P<name>[A-Za-z][A-Za-z0-9-]*)(?P<attributes>\s[^<>]*)?/?>")
# An attribute with a value. If attributes without a value precede it, the value must be in quotes, because
# `<your value for x=1>` is text.
_ATTRIBUTE = re.compile(r"(?:\s++[A-Za-z][\w:.-]*+)*?\s++[A-Za-z][\w:.-]*+=[\"']|\s++[A-Za-z][\w:.-]*+=")
# Elements of HTML whose tag alone is markup. Other names may be variables, as in `Usage: tool <file> <output>`.
_NAMES_OF_HTML = """
    a b big blockquote br dd del div dl dt em font h1 h2 h3 h4 h5 h6 hr i img ins kbd li ol p pre s small span strike
    strong sub sup tbody td tfoot th thead tr tt u ul wbr
"""
_HTML_NAMES = frozenset(_NAMES_OF_HTML.split())


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
            yield Slot(match.start(), match.end(), text_unit(value), _StringStyle(is_ascii, _escapes(raw)))


def _escapes(raw: str) -> dict[str, str]:
    """The characters of ASCII that the string escapes without need, each with its escape."""
    escapes = {chr(int(match[2], 16)): match[1] for match in _ESCAPED_MARKUP.finditer(raw)}
    return {**escapes, "/": "\\/"} if _ESCAPED_SLASH.search(raw) else escapes


def text_unit(value: str) -> Unit:
    """The unit of a string: HTML if it has a tag of HTML, a whole element or a character reference."""
    return Unit(value, UnitFormat.HTML if _is_html(value) else UnitFormat.TEXT)


def _is_html(text: str) -> bool:
    """Whether the text has a character reference, or a tag with a name of HTML, with an attribute or with an end.

    Examples: `&amp;`, `<b>`, `<x y="z">`, `<x/>` and `<x>...</x>`.
    """
    if has_reference(text):
        return True
    names: dict[str, set[str]] = {"": set(), "/": set()}
    for tag in _TAG.finditer(text):
        name = tag["name"].lower()
        names[tag["close"]].add(name)
        if name in _HTML_NAMES or tag.group().endswith("/>") or _ATTRIBUTE.match(tag["attributes"] or ""):
            return True
    return not names[""].isdisjoint(names["/"])


class _StringStyle:
    """Writes a string in the style of the file.

    is_ascii: whether characters beyond ASCII are escaped. escapes: how characters of ASCII are written.
    """

    def __init__(self, is_ascii: bool, escapes: dict[str, str]) -> None:
        self._is_ascii = is_ascii
        self._escapes = escapes

    def __call__(self, text: str) -> str:
        """The string as JSON."""
        written = json.dumps(text, ensure_ascii=self._is_ascii)
        for character, escape in self._escapes.items():
            written = written.replace(character, escape)
        return written
