"""HTML to blocks. The standard library's parser says where every tag stands; what it stands for is taken from the text
itself, so that whatever is not translated comes out byte for byte, malformed or not.

Never translated: attributes, comments, `script`, `style`, `pre`, `code` and their like, `translate="no"`, the class
`notranslate`, and the tags that a caller names. An element that is not closed ends with the text.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import accumulate, pairwise

from app.text.blocks import BlockBuilder, Document
from app.text.tags import TagKind

_BLOCK_NAMES = """
    address article aside audio blockquote body br canvas caption center col colgroup datalist dd details dialog dir
    div dl dt embed fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr
    html iframe legend li link main map menu meta nav noframes noscript object ol optgroup option p param picture
    search section select source summary table tbody td template tfoot th thead title tr track ul video
"""
_BLOCKS = frozenset(_BLOCK_NAMES.split())
_POINTS = frozenset({"area", "base", "img", "input", "wbr"})
_VOID = _POINTS | {"br", "col", "embed", "frame", "hr", "link", "meta", "param", "source", "track"}
_UNTOUCHED_BLOCKS = frozenset({"math", "pre", "script", "style", "svg", "textarea", "xmp"})
_UNTOUCHED = _UNTOUCHED_BLOCKS | frozenset({"code", "kbd", "samp", "var"})
# Where the parser gives this as text, it is a tag that never ends.
_UNCLOSED = re.compile(r"<[A-Za-z/!?]")
_REFERENCE = re.compile(r"&#?\w+;?")


@dataclass(frozen=True)
class _Event:
    """kind: `text`, `open`, `close`, `point` or `other`. length: of the text, where it is known."""

    offset: int
    kind: str
    name: str = ""
    length: int | None = None
    is_untouched: bool = False


class _Recorder(HTMLParser):
    """Where text and tags begin."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self.events: list[_Event] = []
        self._lines = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
        self.feed(text)
        self.close()

    def _here(self) -> int:
        line, column = self.getpos()
        return self._lines[line - 1] + column

    def _add(
        self, kind: str, name: str = "", *, length: int | None = None, is_untouched: bool = False
    ) -> None:
        self.events.append(_Event(self._here(), kind, name, length, is_untouched))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An opening tag, or one of an element that has no content."""
        self._add("point" if tag in _VOID else "open", tag, is_untouched=is_not_translated(dict(attrs)))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A tag that ends in `/>`."""
        self._add("point", tag)

    def handle_endtag(self, tag: str) -> None:
        """A closing tag."""
        self._add("point" if tag in _VOID else "close", tag)

    def handle_data(self, data: str) -> None:
        """Text as it stands."""
        self._add("text", length=len(data))

    def handle_entityref(self, name: str) -> None:
        """A named reference."""
        self._add("text")

    def handle_charref(self, name: str) -> None:
        """A numeric reference."""
        self._add("text")

    def handle_comment(self, data: str) -> None:
        """A comment, or what counts as one."""
        self._add("point")

    def handle_decl(self, decl: str) -> None:
        """A document type."""
        self._add("other")

    def handle_pi(self, data: str) -> None:
        """A processing instruction."""
        self._add("other")

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        """`<![` that begins no CDATA is a bogus comment, as in HTML 5; the parser's own way is an AssertionError."""
        if self.rawdata.startswith("<![CDATA[", i):
            return super().parse_marked_section(i, report)
        return self.parse_bogus_comment(i, report)

    def unknown_decl(self, data: str) -> None:
        """Another declaration, such as CDATA."""
        self._add("other")


def is_not_translated(attributes: dict[str, str | None]) -> bool:
    """Whether an element's attributes say that its content stays as it is."""
    says = attributes.get("translate", attributes.get("its:translate"))
    return (says or "").strip().lower() == "no" or "notranslate" in (attributes.get("class") or "").split()


def read_html(text: str, ignore_tags: Collection[str] = ()) -> Document:
    """A page or a fragment. Never fails.

    ignore_tags: names of elements, in lower case, whose content is not translated.
    """
    events = _Recorder(text).events
    ends = [after.offset for _, after in pairwise([*events, _Event(len(text), "other")])]
    builder = BlockBuilder()
    passed_over = text[: events[0].offset if events else None]
    if passed_over:
        builder.boundary(passed_over)
    untouched_from = depth = 0
    skipped = ""
    for event, end in zip(events, ends, strict=True):
        if skipped:
            depth += (event.name == skipped) * ((event.kind == "open") - (event.kind == "close"))
            if depth == 0:
                _untouched(builder, text[untouched_from:end], skipped)
                skipped = ""
        elif event.kind == "open" and (
            event.is_untouched or event.name in _UNTOUCHED or event.name in ignore_tags
        ):
            untouched_from, depth, skipped = event.offset, 1, event.name
        elif event.kind == "text" and _UNCLOSED.match(text, event.offset):
            builder.tag(text[event.offset :], TagKind.POINT, "")
            break
        else:
            _add(builder, event, text[event.offset : end])
    if skipped:
        _untouched(builder, text[untouched_from:], skipped)
    return Document(builder.finish(), is_markup=True)


def _untouched(builder: BlockBuilder, raw: str, name: str) -> None:
    if name in _UNTOUCHED_BLOCKS or name in _BLOCKS:
        builder.boundary(raw)
    else:
        builder.untouched(raw)


def _add(builder: BlockBuilder, event: _Event, raw: str) -> None:
    """raw: the event's own text, and behind it what the parser passed over in silence."""
    if event.kind == "text":
        reference = _REFERENCE.match(raw)
        length = event.length if event.length is not None else reference.end() if reference else len(raw)
        builder.text(raw[:length])
        if raw[length:]:
            builder.tag(raw[length:], TagKind.POINT, "")
    elif event.kind == "other" or event.name in _BLOCKS:
        builder.boundary(raw)
    else:
        builder.tag(raw, TagKind(event.kind), event.name)
