"""Styles of the runs of a paragraph: which of them look the same, and which is the commonest of a text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

from app.files.mark_pairs import FIELD
from app.files.tagged_text import Mark, MarkKind

T = TypeVar("T")

# The name of the marks of a link that is a part of the style of its texts. These marks are left out of the pieces.
LINK = "link"
# The names of marks whose text often has a style of its own, such as the style of links.
STYLED = frozenset({FIELD, "w:fldSimple", "w:hyperlink", LINK})
_DEPTH_CHANGES = {MarkKind.OPEN: 1, MarkKind.CLOSE: -1}


@dataclass(frozen=True, slots=True)
class RunStyle:
    """The style of a run.

    opening, closing: the XML around the run's content. key: equal for styles of the same appearance. on_blanks: the
    properties that show on blanks, such as the line to write on in a form.
    """

    opening: str = ""
    closing: str = ""
    key: str = ""
    on_blanks: tuple[str, ...] = ()

    def around(self, content: str) -> str:
        """The XML of a run with this style. content: XML."""
        return f"{self.opening}{content}{self.closing}"


@dataclass(frozen=True, slots=True)
class Text:
    """Text of one run."""

    text: str
    style: RunStyle


def joined(items: Sequence[Text | Mark[T]]) -> list[Text | Mark[T]]:
    """The items, in which neighbouring texts of equal style are joined."""
    result: list[Text | Mark[T]] = []
    for _, group in groupby(items, lambda item: item.style.key if isinstance(item, Text) else None):
        members = list(group)
        texts = [item for item in members if isinstance(item, Text)]
        result += [Text("".join(item.text for item in texts), texts[0].style)] if texts else members
    return result


def paragraph_base(items: Sequence[Text | Mark[T]], plain: RunStyle | None = None) -> RunStyle:
    """The commonest style of the characters outside of links and fields. If there are none, of all characters.

    plain: the base if all characters are in links, unless the paragraph is a single link. It is for formats in which a
    link is a part of the style of its texts, and None for other formats.
    """
    outside: list[Text] = []
    depth = num_opened = 0
    for item in items:
        if isinstance(item, Text):
            outside += [item] * (depth == 0 and item.text.strip() != "")
        elif item.name in STYLED:
            depth = max(depth + _DEPTH_CHANGES.get(item.kind, 0), 0)
            num_opened += item.kind is MarkKind.OPEN
    if (
        plain is not None
        and not outside
        and not (num_opened == 1 and _is_link(items[0]) and _is_link(items[-1]))
    ):
        return plain
    return _commonest(outside or [item for item in items if isinstance(item, Text)])


def _is_link(item: Text | Mark[T]) -> bool:
    """Whether an item is the start or the end of a link that is a part of the style of its texts."""
    return isinstance(item, Mark) and item.name == LINK


def bases(items: Sequence[Text | Mark[T]], base: RunStyle) -> list[RunStyle]:
    """The base of the innermost link or field around each item; outside of them the paragraph's base.

    The base of a link or field is the commonest style of its text outside of links and fields in it. If there is no
    such text, it is the base around the link or field. The start and the end of a link count as inside it.

    items: each link and field has a start and an end, and they nest.
    """
    # For the paragraph, and then for each link and field: its texts, and the index of what encloses it.
    texts: list[list[Text]] = [[]]
    around = [0]
    opened = [0]
    innermost: list[int] = []
    for item in items:
        kind = item.kind if isinstance(item, Mark) and item.name in STYLED else None
        if kind is MarkKind.OPEN:
            around.append(opened[-1])
            opened.append(len(texts))
            texts.append([])
        innermost.append(opened[-1])
        if isinstance(item, Text):
            texts[opened[-1]] += [item] * (item.text.strip() != "")
        elif kind is MarkKind.CLOSE:
            opened.pop()
    found = [base]
    for inside, outer in zip(texts[1:], around[1:], strict=True):
        found.append(_commonest(inside) if inside else found[outer])
    return [found[index] for index in innermost]


def _commonest(texts: Sequence[Text]) -> RunStyle:
    """The style that most characters have. Blanks do not count."""
    sizes: Counter[str] = Counter()
    styles: dict[str, RunStyle] = {}
    for item in texts:
        sizes[item.style.key] += sum(map(len, item.text.split()))
        styles.setdefault(item.style.key, item.style)
    return styles[max(sizes, key=lambda key: sizes[key])] if sizes else RunStyle()
