"""One paragraph of an OpenDocument file as running text with marks, and back.

The style of a text is that of all spans around it. LibreOffice divides a paragraph into spans at arbitrary places.
Neighbouring texts whose spans look the same are joined.
"""

from __future__ import annotations

import re
from html import escape

from app.files.mark_pairs import RANGE
from app.files.odf_styles import SpanStyles
from app.files.run_styles import RunStyle, Text, paragraph_base
from app.files.styled_paragraph import (
    InlineObject,
    Item,
    Paragraph,
    Wrapper,
    styled_pieces,
    with_links,
    with_nested_pairs,
)
from app.files.tagged_text import Mark, MarkKind, TaggedText
from app.files.unit import is_translatable
from app.files.xml_tree import Node, plain_text

# The text of headers and footers of slides. It has no elements.
_DECLARATIONS = frozenset({"presentation:header-decl", "presentation:footer-decl"})
PARAGRAPHS = frozenset({"text:p", "text:h"}) | _DECLARATIONS
# Elements that enclose text and become a pair of marks.
_WRAPPERS = frozenset({"text:meta", "loext:content-control"})
# Elements without text at the start of a link, or of an element of _WRAPPERS.
_HEADS = frozenset({"office:event-listeners", "loext:list-item"})
_BREAKS = frozenset({"text:line-break", "text:tab"})
# LibreOffice's note of the last layout, which has no meaning in a translation, and the reading above a text.
_DROPPED = frozenset({"text:soft-page-break", "text:ruby-text"})
# Elements that are no words of their sentence. All other elements with _FIELD_PREFIXES are fields, which are words.
_POINTS = frozenset(
    {"text:a", "text:s", "text:note", "text:bookmark", "text:reference-mark", "text:change", "text:number",
     "text:toc-mark", "text:alphabetical-index-mark", "text:user-index-mark", "text:script", "text:hidden-paragraph"}
)  # fmt: skip
_FIELD_PREFIXES = ("text:", "presentation:")
# The beginnings of the names of visible points. White space after such a point counts.
_VISIBLE_PREFIXES = ("draw:", "text:note")
# The start or the end of a bookmark, of a comment's range and the like.
_RANGE = re.compile(r"(text:[\w-]+|office:annotation)(-start|-end|(?<=annotation))")
_ID = re.compile(r"""\s(?:text:name|text:id|text:change-id|office:name)\s*=\s*["']([^"']*)["']""")
_COUNT = re.compile(r"""\stext:c\s*=\s*["'](\d{1,4})["']""")
_AS_CHARACTER = re.compile(r"""\stext:anchor-type\s*=\s*["']as-char["']""")
_WHITE_SPACE = re.compile(r"[ \t\r\n]+")
_SPACES = re.compile(" +")


def read_paragraph(node: Node, styles: SpanStyles) -> Paragraph | None:
    """Parse a paragraph; None if it has nothing to translate. styles: of its entry. Raises FileError."""
    reader = _ParagraphReader(styles)
    reader.read(node, RunStyle())
    items = with_links(reader.items)
    base = paragraph_base(items, RunStyle())
    tagged = TaggedText.of(styled_pieces(with_nested_pairs(items), base, _write_blank))
    if not is_translatable(tagged.plain):
        return None
    write_text = _write_declaration if node.name in _DECLARATIONS else _write_text
    return Paragraph(node, "", tagged, base, write_text)


class _ParagraphReader:
    """Collects texts and marks in reading order.

    items: each with its link, as `with_links` takes them.
    """

    def __init__(self, styles: SpanStyles) -> None:
        self.items: list[tuple[Item, str | None]] = []
        self._styles = styles
        self._opened_link = ""
        # White space counts as one space, and as none at the start of the paragraph.
        self._is_after_space = True

    def read(self, node: Node, style: RunStyle) -> None:
        """Read the children of a paragraph, or of an element that encloses text. style: of the spans around them."""
        raw: list[str] = []
        for child in (*node.children, None):
            if isinstance(child, str):
                raw.append(child)
                continue
            self._text(plain_text("".join(raw)), style)
            raw = []
            if child is None:
                return
            if child.name == "text:span":
                self.read(child, self._styles.of_span(child, style))
            elif child.name == "text:a" and child.children:
                self._link(child, style)
            elif child.name in _WRAPPERS:
                self._wrapper(child, style)
            elif child.name in {"text:ruby", "text:ruby-base"}:
                self.read(child, style)
            elif child.name == "text:s" and (count := _num_spaces(child)):
                self.items.append((Text(" " * count, style), self._opened_link))
                self._is_after_space = False
            elif child.name not in _DROPPED:
                self._mark(child, style)

    def _text(self, text: str, style: RunStyle) -> None:
        """Read a text between elements."""
        text = _WHITE_SPACE.sub(" ", text)
        if self._is_after_space:
            text = text.removeprefix(" ")
        if text:
            self.items.append((Text(text, style), self._opened_link))
            self._is_after_space = text.endswith(" ")

    def _link(self, node: Node, style: RunStyle) -> None:
        """Read a link. Its tags stay inside the spans around it, because Impress loses the text of spans in a link."""
        opening, content = _divided(node)
        around, self._opened_link = self._opened_link, opening
        self.read(content, self._styles.of_link(opening, node.closing, style))
        self._opened_link = around

    def _wrapper(self, node: Node, style: RunStyle) -> None:
        """Read an element that encloses text."""
        opening, content = _divided(node)
        self.items.append((Mark(MarkKind.OPEN, Wrapper(opening), node.name), ""))
        self.read(content, style)
        self.items.append((Mark(MarkKind.CLOSE, Wrapper(node.closing), node.name), ""))

    def _mark(self, node: Node, style: RunStyle) -> None:
        """Read an element without text to translate."""
        part, name = _RANGE.fullmatch(node.name), _ID.search(node.opening)
        if part is not None and name is not None:
            kind = MarkKind.CLOSE if part[2] == "-end" else MarkKind.OPEN
            self.items.append((Mark(kind, InlineObject((node,)), f"{RANGE}{part[1]} {name[1]}"), None))
            return
        kind = _kind(node)
        is_visible = kind is not MarkKind.POINT or node.name.startswith(_VISIBLE_PREFIXES)
        self._is_after_space = self._is_after_space and not is_visible
        self.items.append((Mark(kind, InlineObject((node,), style)), self._opened_link))


def _divided(node: Node) -> tuple[str, Node]:
    """The XML at the start of an element that is no text, and a node with its content."""
    opening = node.opening + "".join(child.raw for child in node.nodes if child.name in _HEADS)
    content = [child for child in node.children if isinstance(child, str) or child.name not in _HEADS]
    return opening, Node("", "", "", content)


def _kind(node: Node) -> MarkKind:
    """The kind of the mark of an element without text to translate."""
    if node.name in _BREAKS:
        return MarkKind.BREAK
    if node.name == "draw:frame":  # an equation, or a picture
        is_object = any(each.name == "draw:object" for each in node.nodes)
        return MarkKind.PLACEHOLDER if is_object and _AS_CHARACTER.search(node.opening) else MarkKind.POINT
    is_field = node.name.startswith(_FIELD_PREFIXES) and node.name not in _POINTS
    return MarkKind.PLACEHOLDER if is_field else MarkKind.POINT


def _num_spaces(node: Node) -> int:
    """The number of spaces that an element stands for; 0 if they are too many for a text."""
    if "text:c" not in node.opening:
        return 1
    count = _COUNT.search(node.opening)
    return int(count[1]) if count else 0


def _write_text(text: str, is_after_space: bool) -> str:
    """The XML of a text. A space that white space before it would absorb is an element."""

    def spaces(match: re.Match[str]) -> str:
        plain = "" if match.start() == 0 and is_after_space else " "
        return plain + _space_elements(len(match[0]) - len(plain))

    return _SPACES.sub(spaces, escape(re.sub(r"[\t\r\n]", " ", text), quote=False))


def _write_blank(text: str, _is_after_space: bool) -> str:
    """The XML of a text that has only spaces. Each is an element, so that it absorbs no space after it."""
    return _SPACES.sub(lambda match: _space_elements(len(match[0])), text)


def _space_elements(count: int) -> str:
    """The XML of a number of spaces."""
    if count < 2:
        return "<text:s/>" * count
    return f'<text:s text:c="{count}"/>'


def _write_declaration(text: str, _is_after_space: bool) -> str:
    """The XML of a text that cannot have elements."""
    return escape(text, quote=False)
