"""One paragraph of a Word document as running text with marks, and back.

Word cuts a paragraph into runs, at any place and for reasons that nobody sees. What has the same look is one piece of
text here. The look that most of the paragraph has needs no mark; another one, a link or a field is a pair of marks, and
what is no text (a picture, the sign of a footnote, a bookmark) a mark of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape, unescape

from app.files.tagged import Mark, MarkKind, Piece, Tagged
from app.files.unit import Unit, is_translatable
from app.files.xml_tree import Node

# What is text of its own inside, and goes around it again.
_AROUND = frozenset(
    {"w:hyperlink", "w:ins", "w:moveTo", "w:smartTag", "w:fldSimple", "w:customXml", "w:dir", "w:bdo"}
)
# Notes of Word's own that say nothing of a translation.
_DROPPED = frozenset({"w:proofErr", "w:lastRenderedPageBreak"})
_BREAKS = frozenset({"w:br", "w:cr", "w:tab", "w:ptab"})
_CHARACTERS = {"w:noBreakHyphen": "\u2011", "w:softHyphen": "\u00ad"}
# Of a look: in which language, and whether its spelling is checked.
_NO_LOOK = re.compile(r"<w:(?:lang|noProof)\b[^>]*/>")
_FIELD = re.compile(r'w:fldCharType="(\w+)"')


@dataclass(frozen=True, slots=True)
class Look:
    """properties: the run's, as they stand; empty for none."""

    properties: str


@dataclass(frozen=True, slots=True)
class Around:
    """An element, or a field, that stands around text: its beginning, or its end."""

    raw: str


@dataclass(frozen=True, slots=True)
class Object:
    """What is no text. nodes may hold paragraphs of their own, as a text box does; in a run of the given look."""

    nodes: tuple[Node, ...]
    look: Look | None = None


Raw = Look | Around | Object


@dataclass(frozen=True, slots=True)
class _Text:
    text: str
    look: Look


@dataclass(frozen=True, slots=True)
class Paragraph:
    """head: what stands before its text. base: the look of text without a mark."""

    node: Node
    head: str
    tagged: Tagged[Raw]
    base: Look

    @property
    def unit(self) -> Unit:
        """Its text."""
        return self.tagged.unit(flows=False)

    def written(self, pieces: Sequence[Piece[Raw]], render: Callable[[Node], str]) -> str:
        """The paragraph with other pieces. render: of the nodes of objects."""
        looks = [self.base]
        parts: list[str] = []
        for piece in pieces:
            if isinstance(piece, str):
                parts.append(_run(looks[-1], piece))
            elif isinstance(piece.raw, Object):
                inner = "".join(map(render, piece.raw.nodes))
                parts.append(inner if piece.raw.look is None else _in_run(piece.raw.look, inner))
            elif isinstance(piece.raw, Around):
                parts.append(piece.raw.raw)
            elif piece.kind is MarkKind.OPEN:
                looks.append(piece.raw)
            elif piece.kind is MarkKind.CLOSE:
                looks.pop()
        return "".join([self.node.opening, self.head, *parts, self.node.closing])


def read_paragraph(node: Node) -> Paragraph | None:
    """None where there is nothing to translate."""
    head = [child for child in node.children if isinstance(child, Node) and child.name == "w:pPr"]
    reader = _ParagraphReader()
    reader.read([child for child in node.nodes if child.name != "w:pPr"])
    reader.finish()
    base = reader.base
    tagged = Tagged.of(reader.pieces(base))
    if not is_translatable(tagged.plain):
        return None
    return Paragraph(node, "".join(child.raw for child in head), tagged, base)


class _ParagraphReader:
    """Gathers texts and marks in reading order."""

    def __init__(self) -> None:
        self._items: list[_Text | Mark[Raw]] = []
        self._code: list[str] | None = None
        self._num_fields = 0

    @property
    def base(self) -> Look:
        """The look of most characters."""
        sizes: Counter[str] = Counter()
        looks: dict[str, Look] = {}
        for item in self._items:
            if isinstance(item, _Text):
                sizes[_key(item.look)] += len(item.text)
                looks.setdefault(_key(item.look), item.look)
        return looks[max(sizes, key=lambda key: sizes[key])] if sizes else Look("")

    def pieces(self, base: Look) -> list[Piece[Raw]]:
        """Texts of the same look joined, others than the base in marks."""
        found: list[Piece[Raw]] = []
        waiting: list[_Text] = []

        def flush() -> None:
            if not waiting:
                return
            text, look = "".join(item.text for item in waiting), waiting[0].look
            if _key(look) == _key(base) or not text.strip():
                found.append(text)
            else:
                found.extend((Mark(MarkKind.OPEN, look, "look"), text, Mark(MarkKind.CLOSE, look, "look")))
            waiting.clear()

        for item in self._items:
            if isinstance(item, _Text):
                if waiting and _key(waiting[0].look) != _key(item.look):
                    flush()
                waiting.append(item)
            else:
                flush()
                found.append(item)
        flush()
        return found

    def read(self, nodes: Sequence[Node]) -> None:
        """The children of a paragraph, or of an element around text."""
        for node in nodes:
            if node.name == "w:r":
                self._run(node)
            elif self._code is not None:
                self._code.append(node.raw)
            elif node.name in _AROUND:
                inner = [child for child in node.nodes if not child.name.endswith("Pr")]
                properties = "".join(child.raw for child in node.nodes if child.name.endswith("Pr"))
                self._around(node.opening + properties, inner, node.closing, node.name)
            elif node.name == "w:sdt":
                self._control(node)
            elif node.name not in _DROPPED:
                self._items.append(Mark(MarkKind.POINT, Object((node,))))

    def _around(self, opening: str, nodes: Sequence[Node], closing: str, name: str) -> None:
        if not nodes:
            self._items.append(Mark(MarkKind.POINT, Around(opening + closing)))
            return
        self._items.append(Mark(MarkKind.OPEN, Around(opening), name))
        self.read(nodes)
        self._items.append(Mark(MarkKind.CLOSE, Around(closing), name))

    def _control(self, node: Node) -> None:
        """A content control: its content is text like any."""
        contents = [child for child in node.nodes if child.name == "w:sdtContent"]
        if len(contents) != 1 or node.nodes[-1] is not contents[0]:
            self._items.append(Mark(MarkKind.POINT, Object((node,))))
            return
        before = "".join(child.raw for child in node.nodes[:-1])
        content = contents[0]
        opening = node.opening + before + content.opening
        self._around(opening, content.nodes, content.closing + node.closing, node.name)

    def _run(self, run: Node) -> None:
        properties = "".join(child.raw for child in run.nodes if child.name == "w:rPr")
        look = Look(properties)
        fields = [_FIELD.search(child.opening) for child in run.nodes if child.name == "w:fldChar"]
        kinds = [match[1] for match in fields if match]
        if self._code is not None or kinds:
            self._field(run, kinds)
            return
        for child in run.nodes:
            if child.name == "w:t":
                text = unescape("".join(part for part in child.children if isinstance(part, str)))
                self._items.append(_Text(" ".join(re.split(r"[\r\n]+", text)), look))
            elif child.name in _CHARACTERS:
                self._items.append(_Text(_CHARACTERS[child.name], look))
            elif child.name not in _DROPPED and child.name != "w:rPr":
                kind = MarkKind.BREAK if child.name in _BREAKS else MarkKind.POINT
                self._items.append(Mark(kind, Object((child,), look)))

    def _field(self, run: Node, kinds: list[str]) -> None:
        """A field is its code, then what it shows, then its end. The code goes with the beginning, fields in it too."""
        code = self._code if self._code is not None else []
        is_code = self._code is not None
        for kind in kinds:
            if kind == "begin":
                self._num_fields += 1
                is_code = True
            elif kind == "separate" and self._num_fields == 1 and is_code:
                self._items.append(Mark(MarkKind.OPEN, Around("".join([*code, run.raw])), "field"))
                self._code, self._num_fields = None, 0
                return
            elif kind == "end" and is_code:
                self._num_fields -= 1
                if self._num_fields == 0:
                    self._items.append(Mark(MarkKind.POINT, Around("".join([*code, run.raw]))))
                    self._code = None
                    return
            elif kind == "end":
                self._items.append(Mark(MarkKind.CLOSE, Around(run.raw), "field"))
                return
        if is_code:
            code.append(run.raw)
            self._code = code
        else:
            self._items.append(Mark(MarkKind.POINT, Around(run.raw)))

    def finish(self) -> None:
        """A field whose code goes on in the next paragraph."""
        if self._code is not None:
            self._items.append(Mark(MarkKind.POINT, Around("".join(self._code))))
            self._code = None


def _key(look: Look) -> str:
    stripped = _NO_LOOK.sub("", look.properties)
    return "" if stripped in {"<w:rPr></w:rPr>", "<w:rPr/>"} else stripped


def _run(look: Look, text: str) -> str:
    if not text:
        return ""
    line = escape(text.replace("\n", " "), quote=False)
    return _in_run(look, f'<w:t xml:space="preserve">{line}</w:t>')


def _in_run(look: Look, inner: str) -> str:
    return f"<w:r>{look.properties}{inner}</w:r>"
