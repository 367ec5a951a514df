"""Scans HTML for tags and texts with their positions, by the HTML standard (13.2.5), in linear time.

It is simpler than the standard in two cases: `<b/>` is an empty element, and a CDATA section always ends with `]]>`. A
tag, comment or declaration without an end is one event up to the end of the text. So the scanner searches only once for
a missing end. Beyond the standard, it knows template code (`app.text.template_code`). Outside of tags this code is
text, and in a tag it does not end a value or the tag.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Literal, NamedTuple

from app.text.template_code import TEMPLATE_CODE

Kind = Literal["text", "open", "empty", "close", "comment", "declaration", "unended"]

_CODE = rf"(?>{TEMPLATE_CODE})"
_TAG = re.compile(rf"<(/?)([a-zA-Z](?>(?:[^\t\n\r\f />\x00<{{]++|{_CODE}|[<{{])*))")
# A quote counts only where a value begins. `unended` is a quote without its partner.
_ATTRIBUTE = re.compile(
    rf"[\t\n\r\f /]*+(?P<name>(?:{_CODE}|[^\t\n\r\f />])(?>(?:[^\t\n\r\f />=<{{]++|{_CODE}|[<{{])*))"
    r"(?>(?:[\t\n\r\f ]*+=[\t\n\r\f ]*+"
    rf"(?>(?:\"(?P<double>(?>(?:[^\"<{{]++|{_CODE}|[<{{])*))\"|'(?P<single>(?>(?:[^'<{{]++|{_CODE}|[<{{])*))'"
    rf"|(?P<unended>[\"'])|(?P<bare>(?:{_CODE}|[^\t\n\r\f >\"'])(?>(?:[^\t\n\r\f ><{{]++|{_CODE}|[<{{])*)))?)"
    r")?)"
)
_TAG_END = re.compile(r"[\t\n\r\f ]*+(?>(?:/[\t\n\r\f ]*+)*)>")
# `<!-->` and `<!--->` are complete comments.
_EMPTY_COMMENT_END = re.compile(r"-?>")
_COMMENT_END = re.compile(r"--!?>")
# Template code, or a `<` that begins a tag, an end tag, a comment, a declaration or a processing instruction.
CODE_OR_MARKUP = re.compile(rf"(?P<code>{_CODE})|<(?=[a-zA-Z/!?])")
# Elements whose content has no markup, up to their own closing tags. `script` has rules of its own.
RAW_TEXTS = frozenset({"iframe", "noembed", "noframes", "style", "textarea", "title", "xmp"})
# ASCII, because without it "\u017f" (a long s) would match "s".
_RAW_ENDS = {name: re.compile(rf"</{name}(?=[\t\n\r\f />])", re.IGNORECASE | re.ASCII) for name in RAW_TEXTS}
_SCRIPT_MARK = re.compile(r"<!--(?!-*>)|-->|<(?P<close>/?)script(?=[\t\n\r\f />])", re.IGNORECASE | re.ASCII)
# The attributes that are read.
_READ = frozenset(
    {"translate", "its:translate", "class", "charset", "display", "http-equiv", "content", "type"}
)


class Event(NamedTuple):
    """A tag, a text or other markup: text[start:end] of a document.

    name: a tag's name in lower case. attributes: those of an opening tag that are in _READ.
    """

    start: int
    end: int
    kind: Kind
    name: str = ""
    attributes: dict[str, str] = {}  # noqa: RUF012 - never changed


def scan_html(text: str) -> Iterator[Event]:
    """Yield the events of a document in order. Together they cover the whole document."""
    position = 0
    while position < len(text):
        start = _markup_start(text, position)
        if start > position:
            yield Event(position, start, "text")
        if start == len(text):
            return
        event = _markup(text, start)
        yield event
        position = event.end
        if event.kind == "open" and (event.name == "script" or event.name in _RAW_ENDS):
            end = (
                _script_end(text, position)
                if event.name == "script"
                else _raw_end(text, position, event.name)
            )
            if end > position:
                yield Event(position, end, "text")
            position = end


def _markup_start(text: str, position: int) -> int:
    """Return where the next markup begins; the text's length if there is none."""
    found = (match.start() for match in CODE_OR_MARKUP.finditer(text, position) if not match["code"])
    return next(found, len(text))


def _raw_end(text: str, position: int, name: str) -> int:
    """Return where the closing tag of an element of _RAW_ENDS begins; the text's length if there is none."""
    end = _RAW_ENDS[name].search(text, position)
    return end.start() if end else len(text)


def _script_end(text: str, position: int) -> int:
    """Return where the closing tag of a script begins; the text's length if there is none.

    After `<!--` in a script, `<script>` and the next `</script>` are a pair, and this `</script>` does not end the
    script (13.2.5.15-31).
    """
    is_commented = is_nested = False
    for mark in _SCRIPT_MARK.finditer(text, position):
        if mark.group() == "<!--":
            is_commented = True
        elif mark.group() == "-->":
            is_commented = is_nested = False
        elif not mark["close"]:
            is_nested = is_commented
        elif is_nested:
            is_nested = False
        else:
            return mark.start()
    return len(text)


def _markup(text: str, start: int) -> Event:
    """Return the event that begins at a `<` of markup."""
    tag = _TAG.match(text, start)
    if tag is not None:
        return _tag(text, tag)
    if text.startswith("<!--", start):
        match = _EMPTY_COMMENT_END.match(text, start + 4) or _COMMENT_END.search(text, start + 4)
        return Event(start, match.end(), "comment") if match else Event(start, len(text), "unended")
    if text.startswith("<![CDATA[", start):
        return _until(text, start, "]]>", "declaration")
    is_declaration = text.startswith("<?", start) or text[start + 2 : start + 9].lower() == "doctype"
    return _until(text, start, ">", "declaration" if is_declaration else "comment")


def _until(text: str, start: int, mark: str, kind: Kind) -> Event:
    end = text.find(mark, start)
    return Event(start, len(text), "unended") if end < 0 else Event(start, end + len(mark), kind)


def _tag(text: str, tag: re.Match[str]) -> Event:
    start, position, name = tag.start(), tag.end(), tag[2].lower()
    attributes: dict[str, str] = {}
    while (attribute := _ATTRIBUTE.match(text, position)) is not None:
        position = attribute.end()
        if attribute["unended"]:
            return Event(start, len(text), "unended")
        key = attribute["name"].lower()
        if key in _READ:
            value = attribute["double"] or attribute["single"] or attribute["bare"] or ""
            attributes.setdefault(key, unescape(value))
    end = _TAG_END.match(text, position)
    if end is None:
        return Event(start, len(text), "unended")
    if tag[1]:
        return Event(start, end.end(), "close", name)
    kind: Kind = "empty" if text[end.end() - 2] == "/" and end.end() - 2 >= position else "open"
    return Event(start, end.end(), kind, name, attributes)
