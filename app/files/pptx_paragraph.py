"""One paragraph of a PowerPoint presentation as running text with marks, and back.

PowerPoint splits a paragraph into runs at arbitrary places. Neighbouring runs with the same properties are joined. The
properties of a run contain its link. Neighbouring runs with the same link are one link.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from app.files.run_styles import RunStyle, Text, paragraph_base
from app.files.styled_paragraph import InlineObject, Item, Paragraph, styled_pieces, with_links
from app.files.tagged_text import Mark, MarkKind, TaggedText
from app.files.unit import is_translatable
from app.files.xml_tree import Node, elements

_LINKS = frozenset({"a:hlinkClick", "a:hlinkMouseOver"})
# Attributes that are PowerPoint's own notes, such as spelling errors. They have no meaning in a translation.
_NOTES = re.compile(r"""\s(?:dirty|err|smtClean|smtId)\s*=\s*(?:"[^"]*"|'[^']*')""")
# Attributes that do not affect the appearance: language, bookmark, and whether spelling is checked.
_IGNORED = re.compile(r"""\s(?:lang|altLang|kumimoji|noProof|bmk)\s*=\s*(?:"[^"]*"|'[^']*')""")
_EMPTY = re.compile(r"<a:rPr\s*(?:/>|>\s*</a:rPr\s*>)")
# Attributes that show on blanks. So does the element `a:highlight`.
_ON_BLANKS = re.compile(r"""\s(?:u|strike)\s*=\s*(?:"[^"]*"|'[^']*')""")
# A tab, and a control character as PowerPoint spells it.
_CONTROL = re.compile(r"(\t|_x00[01][0-9A-Fa-f]_)")


def read_paragraph(node: Node) -> Paragraph | None:
    """Parse a paragraph; None if it has nothing to translate."""
    head = [child.raw for child in node.nodes if child.name == "a:pPr"]
    tail = [child.raw for child in node.nodes if child.name == "a:endParaRPr"]
    items = with_links([pair for child in node.nodes for pair in _read(child)])
    base = paragraph_base(items, _style(None))
    tagged = TaggedText.of(styled_pieces(items, base, _write_text))
    if not is_translatable(tagged.plain):
        return None
    return Paragraph(node, "".join(head), tagged, base, _write_text, "".join(tail))


def _read(node: Node) -> Iterator[tuple[Item, str | None]]:
    """Yield the texts and marks of a child of a paragraph, each with its link, as `with_links` takes them."""
    if node.name == "a:r":
        properties = [child for child in node.nodes if child.name == "a:rPr"]
        style = _style(properties[0] if properties else None)
        link = "".join(child.raw for each in properties for child in each.nodes if child.name in _LINKS)
        for child in node.nodes:
            if child.name != "a:rPr":
                yield from ((item, link) for item in _read_content(child, style))
    elif node.name not in {"a:pPr", "a:endParaRPr"}:
        yield Mark(_kind(node), InlineObject((node,))), None


def _read_content(node: Node, style: RunStyle) -> Iterator[Item]:
    """Yield the texts and marks of a child of a run. style: of the run."""
    if node.name != "a:t":
        yield Mark(MarkKind.POINT, InlineObject((node,), style))
        return
    for part in _CONTROL.split(node.text):
        if _CONTROL.fullmatch(part):
            yield Mark(MarkKind.BREAK, InlineObject((Node("", _write_text(part, False)),), style))
        elif part:
            yield Text(re.sub(r"[\r\n]+", " ", part), style)


def _kind(node: Node) -> MarkKind:
    """The kind of the mark of a child of a paragraph that is no run."""
    if node.name == "a:br":
        return MarkKind.BREAK
    is_word = node.name == "a:fld" or any(each.name == "m:oMath" for each in elements(node))
    return MarkKind.PLACEHOLDER if is_word else MarkKind.POINT


def _style(properties: Node | None) -> RunStyle:
    """The style of a run. properties: None for none."""
    if properties is None:
        return RunStyle("<a:r>", "</a:r>")
    opening = _NOTES.sub("", properties.opening)
    rest = properties.raw.removeprefix(properties.opening)
    key = _IGNORED.sub("", opening) + rest
    highlights = [child.raw for child in properties.nodes if child.name == "a:highlight"]
    return RunStyle(
        f"<a:r>{opening}{rest}",
        "</a:r>",
        "" if _EMPTY.fullmatch(key) else key,
        (*_ON_BLANKS.findall(opening), *highlights),
    )


def _write_text(text: str, _is_after_space: bool) -> str:
    """The XML of a text in a run."""
    line = escape(text.replace("\n", " "), quote=False)
    return f"<a:t>{line}</a:t>"
