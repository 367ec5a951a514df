"""One paragraph of a Word document as running text with marks, and back.

Word splits a paragraph into runs at arbitrary places. Neighbouring runs with the same properties are joined here. Text
in the paragraph's commonest style has no marks. Text in another style, in a link or in a field is between a pair of
marks. An inline object, such as a picture, a footnote reference or a bookmark, is one mark.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape, unescape

from app.files.tagged_text import Mark, MarkKind, Piece, TaggedText
from app.files.unit import Unit, is_translatable
from app.files.xml_tree import Node

# Elements that enclose runs and become a pair of marks.
_WRAPPERS = frozenset(
    {"w:hyperlink", "w:ins", "w:moveTo", "w:smartTag", "w:fldSimple", "w:customXml", "w:dir", "w:bdo"}
)
# Word's own annotations, which have no meaning in a translation.
_DROPPED = frozenset({"w:proofErr", "w:lastRenderedPageBreak"})
_BREAKS = frozenset({"w:br", "w:cr", "w:tab", "w:ptab"})
_CHARACTERS = {"w:noBreakHyphen": "\u2011", "w:softHyphen": "\u00ad"}
# Run properties that do not affect the appearance: language, and whether spelling is checked.
_IGNORED_PROPERTIES = re.compile(r"<w:(?:lang|noProof)\b[^>]*/>")
_FIELD = re.compile(r'w:fldCharType="(\w+)"')


@dataclass(frozen=True, slots=True)
class RunStyle:
    """The style of a run. properties: the XML of its properties; empty for none."""

    properties: str


@dataclass(frozen=True, slots=True)
class Wrapper:
    """The XML of the start or the end of an element or field; its whole XML if it has no text."""

    raw: str


@dataclass(frozen=True, slots=True)
class InlineObject:
    """Content that is not text. nodes: its XML, which may contain paragraphs. style: of the enclosing run, if any."""

    nodes: tuple[Node, ...]
    style: RunStyle | None = None


Raw = RunStyle | Wrapper | InlineObject


@dataclass(frozen=True, slots=True)
class _Text:
    """Text of one run."""

    text: str
    style: RunStyle


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph with text to translate. head: XML before its text. base: the style of text without a mark."""

    node: Node
    head: str
    tagged: TaggedText[Raw]
    base: RunStyle

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


def read_paragraph(node: Node) -> Paragraph | None:
    """Parse a paragraph; None if it has nothing to translate."""
    head = [child for child in node.children if isinstance(child, Node) and child.name == "w:pPr"]
    reader = _ParagraphReader()
    reader.read([child for child in node.nodes if child.name != "w:pPr"])
    reader.finish()
    base = reader.base
    tagged = TaggedText.of(reader.pieces(base))
    if not is_translatable(tagged.plain):
        return None
    return Paragraph(node, "".join(child.raw for child in head), tagged, base)


class _ParagraphReader:
    """Collects texts and marks in reading order."""

    def __init__(self) -> None:
        self._items: list[_Text | Mark[Raw]] = []
        self._code: list[str] | None = None  # XML of a field's code so far; None outside of a code
        self._num_fields = 0  # fields that began in this code and have not ended

    @property
    def base(self) -> RunStyle:
        """The style that most characters have."""
        sizes: Counter[str] = Counter()
        styles: dict[str, RunStyle] = {}
        for item in self._items:
            if isinstance(item, _Text):
                sizes[_key(item.style)] += len(item.text)
                styles.setdefault(_key(item.style), item.style)
        return styles[max(sizes, key=lambda key: sizes[key])] if sizes else RunStyle("")

    def pieces(self, base: RunStyle) -> list[Piece[Raw]]:
        """The collected pieces: texts of equal style are joined.

        Styles other than the base are marks, except those of blank texts.
        """
        pieces: list[Piece[Raw]] = []
        pending: list[_Text] = []

        def flush() -> None:
            if not pending:
                return
            text, style = "".join(item.text for item in pending), pending[0].style
            if _key(style) == _key(base) or not text.strip():
                pieces.append(text)
            else:
                pieces.extend(
                    (Mark(MarkKind.OPEN, style, "style"), text, Mark(MarkKind.CLOSE, style, "style"))
                )
            pending.clear()

        for item in self._items:
            if isinstance(item, _Text):
                if pending and _key(pending[0].style) != _key(item.style):
                    flush()
                pending.append(item)
            else:
                flush()
                pieces.append(item)
        flush()
        return pieces

    def read(self, nodes: Sequence[Node]) -> None:
        """Read the children of a paragraph, or of an element that encloses text."""
        for node in nodes:
            if node.name == "w:r":
                self._run(node)
            elif self._code is not None:
                self._code.append(node.raw)
            elif node.name in _WRAPPERS:
                inner = [child for child in node.nodes if not child.name.endswith("Pr")]
                properties = "".join(child.raw for child in node.nodes if child.name.endswith("Pr"))
                self._wrapper(node.opening + properties, inner, node.closing, node.name)
            elif node.name == "w:sdt":
                self._control(node)
            elif node.name not in _DROPPED:
                self._items.append(Mark(MarkKind.POINT, InlineObject((node,))))

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
        """Read a run: its text, breaks and objects, or a part of a field."""
        properties = "".join(child.raw for child in run.nodes if child.name == "w:rPr")
        style = RunStyle(properties)
        fields = [_FIELD.search(child.opening) for child in run.nodes if child.name == "w:fldChar"]
        kinds = [match[1] for match in fields if match]
        if self._code is not None or kinds:
            self._field(run, kinds)
            return
        for child in run.nodes:
            if child.name == "w:t":
                text = unescape("".join(part for part in child.children if isinstance(part, str)))
                self._items.append(_Text(" ".join(re.split(r"[\r\n]+", text)), style))
            elif child.name in _CHARACTERS:
                self._items.append(_Text(_CHARACTERS[child.name], style))
            elif child.name not in _DROPPED and child.name != "w:rPr":
                kind = MarkKind.BREAK if child.name in _BREAKS else MarkKind.POINT
                self._items.append(Mark(kind, InlineObject((child,), style)))

    def _field(self, run: Node, kinds: list[str]) -> None:
        """Read a run that belongs to a field. The field's code, with the fields nested in it, becomes its opening mark.

        kinds: the field characters in the run: begin, separate (before the result) and end.
        """
        code = self._code if self._code is not None else []
        is_code = self._code is not None
        for kind in kinds:
            if kind == "begin":
                self._num_fields += 1
                is_code = True
            elif kind == "separate" and self._num_fields == 1 and is_code:
                self._items.append(Mark(MarkKind.OPEN, Wrapper("".join([*code, run.raw])), "field"))
                self._code, self._num_fields = None, 0
                return
            elif kind == "end" and is_code:
                self._num_fields -= 1
                if self._num_fields == 0:
                    self._items.append(Mark(MarkKind.POINT, Wrapper("".join([*code, run.raw]))))
                    self._code = None
                    return
            elif kind == "end":
                self._items.append(Mark(MarkKind.CLOSE, Wrapper(run.raw), "field"))
                return
        if is_code:
            code.append(run.raw)
            self._code = code
        else:
            self._items.append(Mark(MarkKind.POINT, Wrapper(run.raw)))

    def finish(self) -> None:
        """End the paragraph. The code of a field that continues in the next paragraph becomes one mark."""
        if self._code is not None:
            self._items.append(Mark(MarkKind.POINT, Wrapper("".join(self._code))))
            self._code = None


def _key(style: RunStyle) -> str:
    """Return a key that is equal for styles of the same appearance."""
    stripped = _IGNORED_PROPERTIES.sub("", style.properties)
    return "" if stripped in {"<w:rPr></w:rPr>", "<w:rPr/>"} else stripped


def _run(style: RunStyle, text: str) -> str:
    if not text:
        return ""
    line = escape(text.replace("\n", " "), quote=False)
    return _in_run(style, f'<w:t xml:space="preserve">{line}</w:t>')


def _in_run(style: RunStyle, inner: str) -> str:
    return f"<w:r>{style.properties}{inner}</w:r>"
