"""A paragraph of an office document as running text with marks, and back.

Text in the paragraph's commonest style has no marks. Text in another style, in a link, in a field, in a bookmark or in
the range of a comment is between a pair of marks. If the commonest style of a link differs from the paragraph's, marks
of the link's style enclose its whole text. So words that the translation adds in the link have this style, too. An
inline object, such as a picture or a footnote reference, is one mark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

from app.files.mark_pairs import unpaired
from app.files.run_styles import LINK, STYLED, RunStyle, Text, bases, joined
from app.files.tagged_text import Mark, MarkKind, Piece, TaggedText
from app.files.unit import Unit
from app.files.xml_tree import Node

# Returns the XML of a text. The flag says whether the text begins the paragraph or follows a space.
TextWriter = Callable[[str, bool], str]


@dataclass(frozen=True, slots=True)
class Wrapper:
    """The XML of the start or the end of an element; the element's whole XML if it has no text."""

    raw: str


@dataclass(frozen=True, slots=True)
class InlineObject:
    """Content that is not text, or the start or the end of a field or range.

    nodes: its XML, which may contain paragraphs. style: of the enclosing run, if any.
    """

    nodes: tuple[Node, ...]
    style: RunStyle | None = None


Raw = RunStyle | Wrapper | InlineObject
Item = Text | Mark[Raw]


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph with text to translate.

    head, tail: XML before and after its text. base: the style of text without a mark.
    """

    node: Node
    head: str
    tagged: TaggedText[Raw]
    base: RunStyle
    write_text: TextWriter
    tail: str = ""

    @property
    def unit(self) -> Unit:
        """The paragraph's text."""
        return self.tagged.unit(is_wrapped=False)

    def written(self, pieces: Sequence[Piece[Raw]]) -> Iterator[str | Node]:
        """Yield the paragraph's XML with translated pieces. The nodes in it may contain other paragraphs."""
        yield self.node.opening
        yield self.head
        styles = [self.base]
        is_after_space = True
        for piece in pieces:
            if isinstance(piece, str):
                if piece:
                    yield styles[-1].around(self.write_text(piece, is_after_space))
                    is_after_space = piece[-1].isspace()
            elif isinstance(piece.raw, InlineObject):
                style = piece.raw.style or RunStyle()
                yield style.opening
                yield from piece.raw.nodes
                yield style.closing
                is_after_space = is_after_space and piece.kind not in {MarkKind.BREAK, MarkKind.PLACEHOLDER}
            elif isinstance(piece.raw, Wrapper):
                yield piece.raw.raw
            elif piece.kind is MarkKind.OPEN:
                styles.append(piece.raw)
            elif piece.kind is MarkKind.CLOSE:
                styles.pop()
        yield self.tail
        yield self.node.closing

    def replacements(self, pieces: Sequence[Piece[Raw]]) -> list[tuple[Node, Iterator[str | Node]]]:
        """The nodes that change with translated pieces, each with its new XML."""
        return [(self.node, self.written(pieces))]


def with_links(items: Sequence[tuple[Item, str | None]]) -> list[Item]:
    """The items, with a mark at both ends of each link that has words.

    It is for formats in which a link is a part of the style of its texts. items: each with its link. The link is empty
    for an item without one. It is None for a mark that is in a link only if the items on both sides are in the same.
    """
    links = [link for _, link in items]
    before = _filled(links)
    after = _filled(links[::-1])[::-1]
    found = (one if one == other else "" for one, other in zip(before, after, strict=True))
    marked: list[Item] = []
    for link, group in groupby(zip(items, found, strict=True), lambda pair: pair[1]):
        inner = [item for (item, _), _ in group]
        has_words = any(isinstance(item, Text) and item.text.strip() for item in inner)
        start: Item = Mark(MarkKind.OPEN, Wrapper(""), LINK)
        end: Item = Mark(MarkKind.CLOSE, Wrapper(""), LINK)
        marked += [start, *inner, end] if link and has_words else inner
    return marked


def with_nested_pairs(items: Sequence[Item]) -> list[Item]:
    """The items, in which the starts and ends of fields and ranges that do not nest are points."""
    points = unpaired(items)
    return [_as_point(item) if at in points else item for at, item in enumerate(items)]


def styled_pieces(items: Sequence[Item], base: RunStyle, write_blank: TextWriter) -> list[Piece[Raw]]:
    """The pieces of a paragraph: texts of equal style are joined. Styles other than the base are marks.

    items: its texts and marks in reading order; pairs of marks nest. write_blank: returns the XML of a text that has
    only spaces.
    """
    items = joined(_with_blanks(joined(items), base, write_blank))
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
    return [piece for piece in pieces if isinstance(piece, str) or piece.name != LINK]


def blank_node(text: str, write_blank: TextWriter) -> Node:
    """The content of a run that has only spaces."""
    return Node("", write_blank(text, True))


def are_words(before: Item, after: Item) -> bool:
    """Whether both items are texts, without white space where they would touch."""
    return (
        isinstance(before, Text)
        and isinstance(after, Text)
        and not before.text[-1].isspace()
        and not after.text[0].isspace()
    )


def _filled(links: Sequence[str | None]) -> list[str]:
    """The links, with the last one before it in the place of None."""
    return list(accumulate(links, lambda last, link: last if link is None else link, initial=""))[1:]


def _as_point(item: Item) -> Item:
    """The item; a mark becomes a point."""
    return Mark(MarkKind.POINT, item.raw, item.name) if isinstance(item, Mark) else item


def _style_marks(style: RunStyle, around: RunStyle) -> tuple[list[Mark[Raw]], list[Mark[Raw]]]:
    """The marks before and after text of a style. There are none if the style looks like the style around the text."""
    if style.key == around.key:
        return [], []
    return [Mark(MarkKind.OPEN, style, "style")], [Mark(MarkKind.CLOSE, style, "style")]


def _with_blanks(items: Sequence[Item], base: RunStyle, write_blank: TextWriter) -> list[Item]:
    """The items, in which blank texts have the base style of the paragraph, or of the link or field around them.

    A longer blank on which its own style shows is an inline object, because a model does not keep the number of spaces.
    """
    written: list[Item] = []
    for index, (item, around) in enumerate(zip(items, bases(items, base), strict=True)):
        if isinstance(item, Mark) or item.text.strip():
            written.append(item)
        elif len(item.text) == 1 or item.style.on_blanks == around.on_blanks:
            written.append(Text(item.text, around))
        else:
            if are_words(items[max(index - 1, 0)], items[min(index + 1, len(items) - 1)]):
                written.append(Text(" ", around))
            blank = InlineObject((blank_node(item.text, write_blank),), item.style)
            written.append(Mark(MarkKind.POINT, blank))
    return written
