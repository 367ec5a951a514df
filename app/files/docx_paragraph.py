"""One paragraph of a Word document as running text with marks, and back.

Word splits a paragraph into runs at arbitrary places. Neighbouring runs with the same properties are joined here. Text
in the paragraph's commonest style has no marks. Text in another style, in a link, in a field, in a bookmark or in the
range of a comment is between a pair of marks. If the commonest style of a link differs from the paragraph's, marks of
the link's style enclose its whole text. So words that the translation adds in the link have this style, too. An inline
object, such as a picture or a footnote reference, is one mark. A blank to fill in is one mark, too: a field or a
content control whose text has only spaces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from app.files.docx_check_boxes import begins_check_box, is_check_box
from app.files.docx_fields import divided_at_fields, field_character
from app.files.docx_pairs import FIELD, RANGE, unpaired
from app.files.docx_styles import FIELDS, STYLED, RunStyle, Text, bases, joined, paragraph_base
from app.files.tagged_text import Mark, MarkKind, Piece, TaggedText
from app.files.unit import Unit, is_translatable
from app.files.xml_tree import Node

# Elements that enclose runs and become a pair of marks.
_WRAPPERS = frozenset(
    {"w:hyperlink", "w:ins", "w:moveTo", "w:smartTag", "w:fldSimple", "w:customXml", "w:dir", "w:bdo"}
)
# Marks around text that a reader of the document may fill in.
_FILLED = FIELDS | {"w:sdt"}
# The start or the end of a bookmark, of a comment's range and the like.
_RANGE = re.compile(r"(w:\w+)(Start|End)")
_ID = re.compile(r"""\sw:id\s*=\s*["']([^"']*)["']""")
# Word's own annotations, which have no meaning in a translation.
_DROPPED = frozenset({"w:proofErr", "w:lastRenderedPageBreak"})
_BREAKS = frozenset({"w:br", "w:cr", "w:tab", "w:ptab"})
_CHARACTERS = {"w:noBreakHyphen": "\u2011", "w:softHyphen": "\u00ad"}
_SPACE = re.compile(r"""\sxml:space\s*=\s*["'](\w+)["']""")
# White space that does not count at the ends of a text, unless it is preserved.
_WHITE_SPACE = " \t\r\n"


@dataclass(frozen=True, slots=True)
class Wrapper:
    """The XML of the start or the end of an element; its whole XML if it has no text."""

    raw: str


@dataclass(frozen=True, slots=True)
class InlineObject:
    """Content that is not text, or the start or the end of a field or range.

    nodes: its XML, which may contain paragraphs. style: of the enclosing run, if any.
    """

    nodes: tuple[Node, ...]
    style: RunStyle | None = None


Raw = RunStyle | Wrapper | InlineObject


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph with text to translate.

    head: XML before its text. base: the style of text without a mark. drop_cap: the paragraph before it whose text is
    the first letter of this one, if any (`app.files.docx_drop_caps`).
    """

    node: Node
    head: str
    tagged: TaggedText[Raw]
    base: RunStyle
    drop_cap: Paragraph | None = None

    @property
    def unit(self) -> Unit:
        """The paragraph's text."""
        return self.tagged.unit(is_wrapped=False)

    def written(self, pieces: Sequence[Piece[Raw]], render: Callable[[Node], str]) -> str:
        """The paragraph's XML with translated pieces. render: returns the XML of an object's node."""
        styles = [self.base]
        parts: list[str] = []
        for piece in pieces:
            if isinstance(piece, str):
                parts.append(_run(styles[-1], piece))
            elif isinstance(piece.raw, InlineObject):
                inner = "".join(map(render, piece.raw.nodes))
                parts.append(inner if piece.raw.style is None else _in_run(piece.raw.style, inner))
            elif isinstance(piece.raw, Wrapper):
                parts.append(piece.raw.raw)
            elif piece.kind is MarkKind.OPEN:
                styles.append(piece.raw)
            elif piece.kind is MarkKind.CLOSE:
                styles.pop()
        return "".join([self.node.opening, self.head, *parts, self.node.closing])


def preserves_space(node: Node, *, default: bool) -> bool:
    """Whether white space at the ends of an element's text counts. default: the answer without `xml:space`."""
    match = _SPACE.search(node.opening)
    return match[1] == "preserve" if match else default


def read_paragraph(node: Node, *, preserved: bool) -> Paragraph | None:
    """Parse a paragraph; None if it has nothing to translate. preserved: whether the document preserves all spaces."""
    head = [child for child in node.children if isinstance(child, Node) and child.name == "w:pPr"]
    reader = _ParagraphReader(preserved=preserved)
    reader.read([child for child in node.nodes if child.name != "w:pPr"])
    reader.finish()
    base = reader.base
    tagged = TaggedText.of(reader.pieces(base))
    if not is_translatable(tagged.plain):
        return None
    return Paragraph(node, "".join(child.raw for child in head), tagged, base)


class _ParagraphReader:
    """Collects texts and marks in reading order."""

    def __init__(self, *, preserved: bool) -> None:
        self._preserved = preserved
        self._items: list[Text | Mark[Raw]] = []
        # The nodes read so far of a field's code, which precedes its result; None outside of a code.
        self._code: list[Node] | None = None
        self._num_fields = 0  # fields that began in this code and have not ended
        self._is_check_box = False  # whether this code draws a check box

    @property
    def base(self) -> RunStyle:
        """The style of text without a mark."""
        return paragraph_base(self._items)

    def pieces(self, base: RunStyle) -> list[Piece[Raw]]:
        """The collected pieces: texts of equal style are joined. Styles other than the base are marks."""
        points = unpaired(self._items)
        items = [_as_point(item) if at in points else item for at, item in enumerate(self._items)]
        items = joined(_with_blanks(joined(_with_filled(items, base)), base))
        pieces: list[Piece[Raw]] = []
        # The base of the paragraph, and of each open link or field.
        opened = [base]
        for item, inner in zip(items, bases(items, base), strict=True):
            if isinstance(item, Text):
                start, end = _style_marks(item.style, opened[-1])
                pieces += [*start, item.text, *end]
            elif item.name not in STYLED or item.kind is MarkKind.POINT:
                pieces.append(item)
            elif item.kind is MarkKind.OPEN:
                start, _ = _style_marks(inner, opened[-1])
                pieces += [item, *start]
                opened.append(inner)
            else:
                opened.pop()
                _, end = _style_marks(inner, opened[-1])
                pieces += [*end, item]
        return pieces

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
        style = RunStyle("".join(child.raw for child in run.nodes if child.name == "w:rPr"))
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

    def finish(self) -> None:
        """End the paragraph. The code of a field that continues in the next paragraph becomes one mark."""
        if self._code is not None:
            self._items.append(Mark(MarkKind.POINT, InlineObject(tuple(self._code)), FIELD))
            self._code = None


def _object(node: Node) -> Mark[Raw]:
    """The mark of an inline object, or of the start or the end of a range, such as a bookmark."""
    part, number = _RANGE.fullmatch(node.name), _ID.search(node.opening)
    if part is None or number is None:
        kind = MarkKind.PLACEHOLDER if node.name == "m:oMath" else MarkKind.POINT
        return Mark(kind, InlineObject((node,)))
    kind = MarkKind.OPEN if part[2] == "Start" else MarkKind.CLOSE
    return Mark(kind, InlineObject((node,)), f"{RANGE}{part[1]} {number[1]}")


def _as_point(item: Text | Mark[Raw]) -> Text | Mark[Raw]:
    """The item; a mark becomes a point."""
    return Mark(MarkKind.POINT, item.raw, item.name) if isinstance(item, Mark) else item


def _style_marks(style: RunStyle, around: RunStyle) -> tuple[list[Mark[Raw]], list[Mark[Raw]]]:
    """The marks before and after text of a style. None if the style looks like the style around the text."""
    if style.key == around.key:
        return [], []
    return [Mark(MarkKind.OPEN, style, "style")], [Mark(MarkKind.CLOSE, style, "style")]


def _with_filled(items: Sequence[Text | Mark[Raw]], base: RunStyle) -> list[Text | Mark[Raw]]:
    """The items, in which a field or a content control whose text has only spaces is one point."""
    written: list[Text | Mark[Raw]] = []
    for index, item in enumerate(items):
        written.append(item)
        if not isinstance(item, Mark) or item.kind is not MarkKind.CLOSE or item.name not in _FILLED:
            continue
        start = len(written) - 2
        blanks: list[Node] = []
        while start >= 0 and isinstance(blank := written[start], Text) and not blank.text.strip():
            blanks.append(Node("w:r", f"<w:r>{blank.style.properties}", "</w:r>", [_blank(blank.text)]))
            start -= 1
        opening = written[start] if start >= 0 and blanks else None
        if isinstance(opening, Mark) and (opening.kind, opening.name) == (MarkKind.OPEN, item.name):
            del written[start:]
            if written and _are_words(written[-1], items[min(index + 1, len(items) - 1)]):
                written.append(Text(" ", base))
            nodes = (*_nodes(opening.raw), *reversed(blanks), *_nodes(item.raw))
            written.append(Mark(MarkKind.POINT, InlineObject(nodes)))
    return written


def _nodes(raw: Raw) -> tuple[Node, ...]:
    """The XML of a mark that is no style."""
    if isinstance(raw, InlineObject):
        return raw.nodes
    return (Node("", raw.raw),) if isinstance(raw, Wrapper) else ()


def _blank(text: str) -> Node:
    return Node("w:t", '<w:t xml:space="preserve">', "</w:t>", [escape(text, quote=False)])


def _with_blanks(items: Sequence[Text | Mark[Raw]], base: RunStyle) -> list[Text | Mark[Raw]]:
    """The items, in which blank texts have the base style of the paragraph, or of the link or field around them.

    A longer blank on which its own style shows is an inline object, because a model does not keep the number of spaces.
    """
    written: list[Text | Mark[Raw]] = []
    for index, (item, around) in enumerate(zip(items, bases(items, base), strict=True)):
        if isinstance(item, Mark) or item.text.strip():
            written.append(item)
        elif len(item.text) == 1 or item.style.on_blanks == around.on_blanks:
            written.append(Text(item.text, around))
        else:
            if _are_words(items[max(index - 1, 0)], items[min(index + 1, len(items) - 1)]):
                written.append(Text(" ", around))
            written.append(Mark(MarkKind.POINT, InlineObject((_blank(item.text),), item.style)))
    return written


def _are_words(before: Text | Mark[Raw], after: Text | Mark[Raw]) -> bool:
    """Whether both items are texts, without white space where they would touch."""
    return (
        isinstance(before, Text)
        and isinstance(after, Text)
        and not before.text[-1].isspace()
        and not after.text[0].isspace()
    )


def _run(style: RunStyle, text: str) -> str:
    if not text:
        return ""
    line = escape(text.replace("\n", " "), quote=False)
    return _in_run(style, f'<w:t xml:space="preserve">{line}</w:t>')


def _in_run(style: RunStyle, inner: str) -> str:
    return f"<w:r>{style.properties}{inner}</w:r>"
