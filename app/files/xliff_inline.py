"""The content of an XLIFF source as running text with marks, and its translation as XML.

Elements that enclose text are pairs of marks. So are two codes in the same element that refer to each other (`bpt` and
`ept`, `sc` and `ec`), or whose native codes are a start tag and its end tag. A pair of codes that overlaps another pair
becomes two points, whose order stays. Content that must not be translated is a placeholder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import count

from app.files.string_text import StringText
from app.files.tagged_text import Mark, MarkKind, Piece, TaggedText
from app.files.unit import FileError, Unit, UnitFormat, is_translatable, is_xml_text
from app.files.xliff_codes import CONVERSION, ELEMENTS, code_mark, is_protected, keeps_order
from app.files.xml_tree import Node, plain_text
from app.text.protected_spans import printf_conversions

# A line break that wraps the text: the next line is indented.
_WRAP = re.compile(r"(?<![ \t])[ \t]*\n[ \t]+")
_OTHER_BREAK = re.compile(r"\n(?![ \t])")
_CDATA, _CDATA_END = "<![CDATA[", "]]>"
_LINE_BREAK_REFERENCE = re.compile(r"&#(?:10|[xX]0*[aA]);")
# The names of marks: of the elements that enclose text, and of marks that keep their order.
_ELEMENT = "element"
_ORDERED = "ordered"


class UnpairedRange(Exception):
    """A range that must not be translated begins in this element and does not end in it."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a source writes its text.

    line_end: of the file. is_cdata: whether all of the text is in CDATA. has_references: whether its line breaks are
    references.
    """

    line_end: str
    is_cdata: bool
    has_references: bool

    def written(self, text: str) -> str:
        """The text as XML. Raises FileError for a character that XML cannot contain."""
        if not is_xml_text(text):
            raise FileError("a translation has a character that XML cannot contain")
        if self.is_cdata and "\r" not in text:
            inner = text.replace(_CDATA_END, f"]]{_CDATA_END}{_CDATA}>").replace("\n", self.line_end)
            return f"{_CDATA}{inner}{_CDATA_END}"
        line_end = "&#10;" if self.has_references else self.line_end
        return escape(text, quote=False).replace("\r", "&#13;").replace("\n", line_end)


@dataclass(frozen=True, slots=True)
class InlineText:
    """A text to translate. node: the element that contains it. string: the text, with its marks as tags."""

    node: Node
    tagged: TaggedText[str]
    string: StringText
    spelling: Spelling

    @property
    def unit(self) -> Unit:
        """The unit of the text."""
        return self.string.unit

    def written(self, translation: str) -> str | None:
        """The translation as XML; None if it has arguments of printf in another order and cannot number them.

        Raises ValueError for lost tags, and FileError for a character that XML cannot contain.
        """
        pieces = self.tagged.read(self.string.translated(translation))
        if any(map(_is_conversion, pieces)) and _arguments(pieces) != _arguments(self.tagged.pieces):
            return None
        return "".join(self.spelling.written(each) if isinstance(each, str) else each.raw for each in pieces)


@dataclass(frozen=True, slots=True)
class InlineReader:
    """Reads the texts of a file.

    prefix: of the names of XLIFF's elements, with its colon; may be empty. line_end: of the file. may_write_cdata:
    whether a translation may be in CDATA. CDATA has no references, so the file's encoding must have all characters.
    """

    prefix: str
    line_end: str
    may_write_cdata: bool

    def local(self, node: Node) -> str:
        """The name of an XLIFF element without its prefix; empty for another element."""
        local = node.name.removeprefix(self.prefix)
        return "" if ":" in local or len(local) + len(self.prefix) != len(node.name) else local

    def read(self, node: Node, data: Mapping[str, str], *, is_preserved: bool) -> InlineText | None:
        """The text of an element; None if it has nothing to translate.

        data: native codes by the ids that `dataRef` names. is_preserved: whether all white space counts. Raises
        UnpairedRange.
        """
        tagged = self._tagged(node, data)
        if not is_translatable(tagged.plain):
            return None
        if not is_preserved:
            tagged = TaggedText(tuple(_unwrapped(tagged.pieces)))
        unit = tagged.unit(is_wrapped=False)
        if unit.format is UnitFormat.TEXT:
            string = StringText.of(unit.text)
        else:
            string = StringText.of_xml(unit.text, tagged.plain)
        return InlineText(node, tagged, string, self._spelling(node))

    def _spelling(self, node: Node) -> Spelling:
        raw = "".join(child for child in node.children if isinstance(child, str))
        is_section = raw.startswith(_CDATA) and raw.find(_CDATA_END) == len(raw) - len(_CDATA_END)
        is_cdata = self.may_write_cdata and not node.nodes and is_section
        has_references = "\n" not in raw and _LINE_BREAK_REFERENCE.search(raw) is not None
        return Spelling(self.line_end, is_cdata, has_references)

    def _tagged(self, node: Node, data: Mapping[str, str]) -> TaggedText[str]:
        """The pieces of an element. If a code keeps its order, all marks do. Raises UnpairedRange."""
        pieces: list[Piece[str]] = []
        is_ordered = False
        places = count()
        # For each open element: what is left of it, the mark at its end, and the name of its place.
        opened = [(self._joined(node.children), Mark(MarkKind.CLOSE, ""), f"{next(places)}")]
        while opened:
            rest, closing, place = opened[-1]
            item = next(rest, None)
            if item is None:
                opened.pop()
                pieces.append(closing)
                continue
            if isinstance(item, str):
                pieces.append(plain_text(item))
                continue
            local = self.local(item)
            is_ordered = is_ordered or keeps_order(item)
            if local in ELEMENTS and item.children and not is_protected(item):
                pieces.append(Mark(MarkKind.OPEN, item.opening, _ELEMENT))
                mark = Mark(MarkKind.CLOSE, item.closing, _ELEMENT)
                opened.append((self._joined(item.children), mark, f"{next(places)}"))
            else:
                pieces.append(_single(item, local, data, place))
        settled = TaggedText.of(pieces[:-1]).pieces
        return TaggedText(tuple(_settled(each, is_ordered=is_ordered) for each in settled))

    def _joined(self, children: Sequence[Node | str]) -> Iterator[Node | str]:
        """Yield the children of an element. Neighbouring texts are joined.

        A range from `sm` to `em` that must not be translated is a node without a name. Raises UnpairedRange.
        """
        ends = {
            child.attributes.get("startRef"): index
            for index, child in enumerate(children)
            if isinstance(child, Node) and self.local(child) == "em"
        }
        texts: list[str] = []
        done = 0
        for index, child in enumerate(children):
            if index < done:
                continue
            if isinstance(child, str):
                texts.append(child)
                continue
            if texts:
                yield "".join(texts)
                texts = []
            if self.local(child) == "sm" and is_protected(child):
                done = ends.get(child.attributes.get("id"), -1) + 1
                if done <= index:
                    raise UnpairedRange
                child = Node("", Node("", "", "", list(children[index:done])).raw)
            yield child
        yield "".join(texts)


def _is_conversion(piece: Piece[str]) -> bool:
    """Whether the piece is a code that stands for a conversion of printf without a number."""
    return isinstance(piece, Mark) and piece.name == CONVERSION


def _arguments(pieces: Sequence[Piece[str]]) -> list[Piece[str]]:
    """The conversions of printf in texts and codes, in order."""
    found: list[Piece[str]] = []
    for piece in pieces:
        if isinstance(piece, str):
            found += (span.of(piece) for span in printf_conversions(piece))
        elif _is_conversion(piece):
            found.append(piece)
    return found


def _single(node: Node, local: str, data: Mapping[str, str], place: str) -> Mark[str]:
    """The mark of an element whose text, if it has any, is not translated. local: empty for no element of XLIFF."""
    if not local:
        return Mark(MarkKind.POINT if node.name else MarkKind.PLACEHOLDER, node.raw)
    if local in ELEMENTS:
        return Mark(MarkKind.PLACEHOLDER if node.children else MarkKind.POINT, node.raw)
    return code_mark(node, local, data, place)


def _settled(piece: Piece[str], *, is_ordered: bool) -> Piece[str]:
    """The piece. is_ordered: whether all marks keep their order; they are then points with the same name.

    Otherwise the name of a point loses its place. So a code keeps its order with a partner in another element.
    """
    if isinstance(piece, str) or piece.kind is MarkKind.BREAK:
        return piece
    if is_ordered:
        return Mark(MarkKind.POINT, piece.raw, _ORDERED)
    if piece.kind is MarkKind.POINT:
        return Mark(MarkKind.POINT, piece.raw, piece.name.partition(" ")[2])
    return piece


def _unwrapped(pieces: Sequence[Piece[str]]) -> Iterator[Piece[str]]:
    """Yield the pieces. If all lines after the first are indented, a space takes the place of each line break.

    White space at both ends of the text stays.
    """
    whole = "".join(piece if isinstance(piece, str) else "x" for piece in pieces)
    if _OTHER_BREAK.search(whole.strip()):
        yield from pieces
        return
    last = len(pieces) - 1
    for index, piece in enumerate(pieces):
        if not isinstance(piece, str):
            yield piece
            continue
        start = len(piece) - len(piece.lstrip()) if index == 0 else 0
        end = len(piece.rstrip()) if index == last else len(piece)
        yield piece[:start] + _WRAP.sub(" ", piece[start:end]) + piece[max(start, end) :]
