"""One paragraph of a Word document as running text with marks, and back.

Word splits a paragraph into runs at arbitrary places. Neighbouring runs with the same properties are joined. A blank to
fill in is one mark: a field or a content control whose text has only spaces.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from app.files.docx_check_boxes import begins_check_box, is_check_box
from app.files.docx_fields import divided_at_fields, field_character
from app.files.docx_styles import word_style
from app.files.mark_pairs import FIELD, RANGE
from app.files.run_styles import RunStyle, Text, paragraph_base
from app.files.styled_paragraph import (
    InlineObject,
    Item,
    Paragraph,
    Raw,
    Wrapper,
    are_words,
    blank_node,
    styled_pieces,
    with_nested_pairs,
)
from app.files.tagged_text import Mark, MarkKind, TaggedText
from app.files.unit import is_translatable
from app.files.xml_tree import Node, preserves_space

# Elements that enclose runs and become a pair of marks.
_WRAPPERS = frozenset(
    {"w:hyperlink", "w:ins", "w:moveTo", "w:smartTag", "w:fldSimple", "w:customXml", "w:dir", "w:bdo"}
)
# Marks around text that a reader of the document may fill in.
_FILLED = frozenset({FIELD, "w:fldSimple", "w:sdt"})
# The start or the end of a bookmark, of a comment's range and the like.
_RANGE = re.compile(r"(w:\w+)(Start|End)")
_ID = re.compile(r"""\sw:id\s*=\s*["']([^"']*)["']""")
# Word's own annotations, which have no meaning in a translation.
_DROPPED = frozenset({"w:proofErr", "w:lastRenderedPageBreak"})
_BREAKS = frozenset({"w:br", "w:cr", "w:tab", "w:ptab"})
_CHARACTERS = {"w:noBreakHyphen": "\u2011", "w:softHyphen": "\u00ad"}
# White space that does not count at the ends of a text, unless it is preserved.
_WHITE_SPACE = " \t\r\n"


def read_paragraph(node: Node, *, preserved: bool) -> Paragraph | None:
    """Parse a paragraph; None if it has nothing to translate. preserved: whether the document preserves all spaces."""
    head = [child for child in node.children if isinstance(child, Node) and child.name == "w:pPr"]
    reader = _ParagraphReader(preserved=preserved)
    reader.read([child for child in node.nodes if child.name != "w:pPr"])
    items = reader.finished()
    base = paragraph_base(items)
    items = _with_filled(with_nested_pairs(items), base)
    tagged = TaggedText.of(styled_pieces(items, base, _write_text))
    if not is_translatable(tagged.plain):
        return None
    return Paragraph(node, "".join(child.raw for child in head), tagged, base, _write_text)


class _ParagraphReader:
    """Collects texts and marks in reading order."""

    def __init__(self, *, preserved: bool) -> None:
        self._preserved = preserved
        self._items: list[Item] = []
        # The nodes read so far of a field's code, which precedes its result; None outside of a code.
        self._code: list[Node] | None = None
        self._num_fields = 0  # fields that began in this code and have not ended
        self._is_check_box = False  # whether this code draws a check box

    def read(self, nodes: Sequence[Node]) -> None:
        """Read the children of a paragraph, or of an element that encloses text."""
        for part in (part for node in nodes for part in divided_at_fields(node)):
            kind = field_character(part)
            if kind is not None:
                self._field(part, kind)
            elif self._code is not None:
                self._code.append(part)
            elif part.name == "w:r":
                self._run(part)
            elif part.name in _WRAPPERS:
                inner = [child for child in part.nodes if not child.name.endswith("Pr")]
                properties = "".join(child.raw for child in part.nodes if child.name.endswith("Pr"))
                self._wrapper(part.opening + properties, inner, part.closing, part.name)
            elif part.name == "w:sdt":
                self._control(part)
            elif part.name not in _DROPPED:
                self._items.append(_object(part))

    def _wrapper(self, opening: str, nodes: Sequence[Node], closing: str, name: str) -> None:
        """Read an element that encloses runs."""
        if not nodes:
            self._items.append(Mark(MarkKind.POINT, Wrapper(opening + closing)))
            return
        self._items.append(Mark(MarkKind.OPEN, Wrapper(opening), name))
        self.read(nodes)
        self._items.append(Mark(MarkKind.CLOSE, Wrapper(closing), name))

    def _control(self, node: Node) -> None:
        """Read a content control, whose content is ordinary text."""
        contents = [child for child in node.nodes if child.name == "w:sdtContent"]
        if len(contents) != 1 or node.nodes[-1] is not contents[0]:
            self._items.append(Mark(MarkKind.POINT, InlineObject((node,))))
            return
        before = "".join(child.raw for child in node.nodes[:-1])
        content = contents[0]
        opening = node.opening + before + content.opening
        self._wrapper(opening, content.nodes, content.closing + node.closing, node.name)

    def _run(self, run: Node) -> None:
        """Read a run without field characters: its text, breaks and objects."""
        style = word_style("".join(child.raw for child in run.nodes if child.name == "w:rPr"))
        for child in run.nodes:
            if child.name == "w:t":
                text = child.text
                if not preserves_space(child, default=self._preserved):
                    text = text.strip(_WHITE_SPACE)
                if text:
                    self._items.append(Text(" ".join(re.split(r"[\r\n]+", text)), style))
            elif child.name in _CHARACTERS:
                self._items.append(Text(_CHARACTERS[child.name], style))
            elif child.name == "w:ruby":
                # The reading above the text is left out.
                self.read([node for base in child.nodes if base.name == "w:rubyBase" for node in base.nodes])
            elif child.name not in _DROPPED and child.name != "w:rPr":
                is_break = child.name in _BREAKS or is_check_box(child)
                kind = MarkKind.BREAK if is_break else MarkKind.POINT
                self._items.append(Mark(kind, InlineObject((child,), style)))

    def _field(self, part: Node, kind: str) -> None:
        """Read a field character. The field's code, with the fields nested in it, becomes its opening mark.

        A field that draws a check box has no result. It becomes one mark.

        part: the run with the field character, or the tracked change around the run. kind: begin, separate (before the
        result) or end.
        """
        if self._code is None:
            if kind == "begin":
                self._code, self._num_fields = [part], 1
                self._is_check_box = begins_check_box(part)
            else:
                mark = MarkKind.CLOSE if kind == "end" else MarkKind.POINT
                self._items.append(Mark(mark, InlineObject((part,)), FIELD))
            return
        self._code.append(part)
        self._num_fields += {"begin": 1, "separate": 0, "end": -1}[kind]
        if kind == "separate" and self._num_fields == 1 and not self._is_check_box:
            self._items.append(Mark(MarkKind.OPEN, InlineObject(tuple(self._code)), FIELD))
            self._code = None
        elif self._num_fields == 0:
            mark = MarkKind.BREAK if self._is_check_box else MarkKind.POINT
            self._items.append(Mark(mark, InlineObject(tuple(self._code))))
            self._code = None

    def finished(self) -> list[Item]:
        """The collected texts and marks. The code of a field that continues in the next paragraph becomes one mark."""
        if self._code is not None:
            self._items.append(Mark(MarkKind.POINT, InlineObject(tuple(self._code)), FIELD))
            self._code = None
        return self._items


def _object(node: Node) -> Mark[Raw]:
    """The mark of an inline object, or of the start or the end of a range, such as a bookmark."""
    part, number = _RANGE.fullmatch(node.name), _ID.search(node.opening)
    if part is None or number is None:
        kind = MarkKind.PLACEHOLDER if node.name == "m:oMath" else MarkKind.POINT
        return Mark(kind, InlineObject((node,)))
    kind = MarkKind.OPEN if part[2] == "Start" else MarkKind.CLOSE
    return Mark(kind, InlineObject((node,)), f"{RANGE}{part[1]} {number[1]}")


def _with_filled(items: Sequence[Item], base: RunStyle) -> list[Item]:
    """The items, in which a field or a content control whose text has only spaces is one point."""
    written: list[Item] = []
    for index, item in enumerate(items):
        written.append(item)
        if not isinstance(item, Mark) or item.kind is not MarkKind.CLOSE or item.name not in _FILLED:
            continue
        start = len(written) - 2
        blanks: list[Node] = []
        while start >= 0 and isinstance(blank := written[start], Text) and not blank.text.strip():
            content = [blank_node(blank.text, _write_text)]
            blanks.append(Node("w:r", blank.style.opening, blank.style.closing, [*content]))
            start -= 1
        opening = written[start] if start >= 0 and blanks else None
        if isinstance(opening, Mark) and (opening.kind, opening.name) == (MarkKind.OPEN, item.name):
            del written[start:]
            if written and are_words(written[-1], items[min(index + 1, len(items) - 1)]):
                written.append(Text(" ", base))
            nodes = (*_nodes(opening.raw), *reversed(blanks), *_nodes(item.raw))
            written.append(Mark(MarkKind.POINT, InlineObject(nodes)))
    return written


def _nodes(raw: Raw) -> tuple[Node, ...]:
    """The XML of a mark that is no style."""
    if isinstance(raw, InlineObject):
        return raw.nodes
    return (Node("", raw.raw),) if isinstance(raw, Wrapper) else ()


def _write_text(text: str, _is_after_space: bool) -> str:
    """The XML of a text in a run."""
    line = escape(text.replace("\n", " "), quote=False)
    return f'<w:t xml:space="preserve">{line}</w:t>'
