"""Reads XML into blocks with expat, which reports the byte offset of each event.

A fragment needs no root element. An element is inline if its parent directly contains text. Otherwise it is a boundary
between blocks. `XmlRules` holds exceptions from this rule. Not translated are attributes, comments, CDATA sections,
processing instructions, and elements with `translate="no"`, with the class `notranslate` or named by the caller.
Malformed XML and entity declarations raise MarkupError with line and column.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from xml.parsers import expat

from app.text.blocks import Block, BlockBuilder, Document, MarkupError
from app.text.html_parts import is_not_translated
from app.text.tags import TagKind

_ROOT = b"<fragment>"
_ROOT_END = b"</fragment>"
_LINE_END = re.compile(r"\r\n?|\n")  # as expat counts lines
_DOCUMENT = re.compile(r"[\s\ufeff]*+<(?:\?xml\s|!DOCTYPE\s)")


@dataclass(frozen=True)
class XmlRules:
    """The caller's rules for element names.

    ignored: elements whose content is not translated. splitting: elements that are always boundaries. not_splitting:
    elements that are never boundaries. is_outlined: whether other elements are boundaries if their parents directly
    contain no text; if False, they are always inline.
    """

    ignored: frozenset[str] = frozenset()
    splitting: frozenset[str] = frozenset()
    not_splitting: frozenset[str] = frozenset()
    is_outlined: bool = True


@dataclass
class _Event:
    """An event of expat.

    kind: `text`, `open`, `close` or `other`. offset: in bytes. parent: index of the enclosing element's event, or -1.
    is_untouched: whether the element is not translated. has_text: whether it directly contains more than white space.
    """

    offset: int
    kind: str
    parent: int
    name: str = ""
    is_untouched: bool = False
    has_text: bool = False


@dataclass
class _Recorder:
    """Records expat's events. open: the indices of the enclosing elements' events, outermost first."""

    rules: XmlRules
    events: list[_Event] = field(default_factory=list)
    open: list[int] = field(default_factory=list)
    is_cdata: bool = False

    def run(self, content: bytes) -> None:
        """Parse the document. Raises expat.ExpatError, and MarkupError for entity declarations."""
        parser = expat.ParserCreate("utf-8")
        self.parser = parser
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.CommentHandler = lambda _data: self._add("other")
        parser.ProcessingInstructionHandler = lambda _target, _data: self._add("other")
        parser.StartCdataSectionHandler = self._start_cdata
        parser.EndCdataSectionHandler = self._end_cdata
        parser.StartDoctypeDeclHandler = lambda *_: self._add("other")
        parser.EndDoctypeDeclHandler = lambda: self._add("other")
        parser.XmlDeclHandler = lambda *_: self._add("other")
        parser.EntityDeclHandler = self._refuse_entity
        parser.Parse(content, True)

    def is_inline(self, event: _Event) -> bool:
        """Whether a tag or other markup is inline, so that it does not end a block."""
        if event.kind == "open" and event.name in self.rules.splitting:
            return False
        if event.kind == "open" and (event.name in self.rules.not_splitting or not self.rules.is_outlined):
            return True
        return event.parent >= 0 and self.events[event.parent].has_text

    def _add(self, kind: str, name: str = "", *, is_untouched: bool = False) -> None:
        parent = self.open[-1] if self.open else -1
        self.events.append(_Event(self.parser.CurrentByteIndex, kind, parent, name, is_untouched))

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        is_untouched = name in self.rules.ignored or is_not_translated(attributes)
        self._add("open", name, is_untouched=is_untouched)
        self.open.append(len(self.events) - 1)

    def _end(self, name: str) -> None:
        self.open.pop()
        self._add("close", name)

    def _text(self, data: str) -> None:
        if not self.is_cdata:
            self._add("text")
            if self.open and not data.isspace():
                self.events[self.open[-1]].has_text = True

    def _start_cdata(self) -> None:
        self._add("other")  # extends to the next event, so the end of the section needs no event
        self.is_cdata = True

    def _end_cdata(self) -> None:
        self.is_cdata = False

    def _refuse_entity(self, *_: object) -> None:
        raise MarkupError(
            "entity declarations are not read",
            self.parser.CurrentLineNumber,
            self.parser.CurrentColumnNumber + 1,
        )


def read_xml(text: str, rules: XmlRules | None = None) -> Document:
    """Read a document (begins with `<?xml` or `<!DOCTYPE`) or a fragment. Raises MarkupError."""
    is_document = _DOCUMENT.match(text) is not None
    recorder = _Recorder(rules or XmlRules())
    body = text.encode()
    shift = 0 if is_document else len(_ROOT)
    try:
        recorder.run(body if is_document else _ROOT + body + _ROOT_END)
    except expat.ExpatError as error:
        lines = _LINE_END.split(text)
        column = error.offset + 1 - (shift if error.lineno == 1 else 0)
        column = min(max(column, 1), len(lines[error.lineno - 1]) + 1)
        raise MarkupError(expat.errors.messages[error.code], error.lineno, column) from None
    return Document(_parts(recorder, body, shift), is_markup=True)


def _parts(recorder: _Recorder, body: bytes, shift: int) -> tuple[str | Block, ...]:
    """Return the markup and blocks. shift: bytes of the root's tag put before a fragment; 0 for a document."""
    events = recorder.events[1:-1] if shift else recorder.events
    offsets = [event.offset - shift for event in events]
    builder = BlockBuilder()
    if offsets and offsets[0]:
        builder.boundary(body[: offsets[0]].decode())
    opened: list[_Event] = []
    untouched_from = untouched_depth = 0
    for event, (start, end) in zip(events, pairwise([*offsets, len(body)]), strict=True):
        raw = body[start:end].decode()
        if event.kind == "open":
            opened.append(event)
            if event.is_untouched and not untouched_depth:
                untouched_from, untouched_depth = start, len(opened)
        partner = opened.pop() if event.kind == "close" else event
        if not untouched_depth:
            _add(builder, event, raw, recorder.is_inline(partner))
        elif event.kind == "close" and len(opened) + 1 == untouched_depth:
            builder.untouched(body[untouched_from:end].decode())
            untouched_depth = 0
    return builder.finish()


def _add(builder: BlockBuilder, event: _Event, raw: str, is_inline: bool) -> None:
    if event.kind == "text":
        builder.text(raw)
    elif not raw:
        return  # the end event of an empty element, which has only one tag
    elif not is_inline:
        builder.boundary(raw)
    elif event.kind == "other" or raw.endswith("/>"):
        builder.tag(raw, TagKind.POINT, event.name)
    else:
        builder.tag(raw, TagKind(event.kind), event.name)
