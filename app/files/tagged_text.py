"""Converts running text with marks to a unit in XML, so that inline markup passes through translation.

An opening mark and its closing mark become an element `g`. A single mark becomes an empty `x`, and a mark that ends a
sentence becomes an empty `br`. The `x` of a placeholder has `translate="no"`, which the text layer reads as it
reads `<code>` in HTML. The original markup is stored here and restored in the translation.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from html import escape, unescape
from typing import Generic, TypeGuard, TypeVar

from app.files.unit import Unit, UnitFormat

T = TypeVar("T")
_MARK = re.compile(
    r'<g id="(?P<open>\d+)">|(?P<close></g>)|<(?:x|br) id="(?P<single>\d+)"(?: translate="no")?/>'
)


class MarkKind(Enum):
    """The role of a mark. OPEN and CLOSE form a pair. The other marks stand alone.

    POINT is no word of the sentence, such as an image. PLACEHOLDER is a word of the sentence that is not translated,
    such as code. BREAK ends a sentence.
    """

    OPEN = "open"
    CLOSE = "close"
    POINT = "point"
    PLACEHOLDER = "placeholder"
    BREAK = "break"


_PAIRED = frozenset({MarkKind.OPEN, MarkKind.CLOSE})


@dataclass(frozen=True)
class Mark(Generic[T]):
    """One piece of markup. raw: as in the file.

    name: a closing mark closes the last open mark with the same name. Points with the same name keep their order, and
    points with an empty name may change it.
    """

    kind: MarkKind
    raw: T
    name: str = ""


Piece = str | Mark[T]


@dataclass(frozen=True)
class TaggedText(Generic[T]):
    """The pieces of one unit. Every opening mark has a closing mark."""

    pieces: tuple[Piece[T], ...]

    @classmethod
    def of(cls, pieces: Sequence[Piece[T]]) -> TaggedText[T]:
        """Return the tagged text of these pieces. An opening or closing mark without a partner becomes a point."""
        kept = [piece for piece in pieces if piece != ""]
        partners = _partners(kept)
        for index, piece in enumerate(kept):
            if isinstance(piece, Mark) and piece.kind in _PAIRED and index not in partners:
                kept[index] = Mark(MarkKind.POINT, piece.raw, piece.name)
        return cls(tuple(kept))

    @property
    def plain(self) -> str:
        """The text without marks."""
        return "".join(piece for piece in self.pieces if isinstance(piece, str))

    def unit(self, *, is_wrapped: bool) -> Unit:
        """The unit: plain text without marks, else XML."""
        if not any(isinstance(piece, Mark) for piece in self.pieces):
            return Unit(self.plain, UnitFormat.TEXT, is_wrapped)
        return Unit("".join(map(self._written, range(len(self.pieces)))), UnitFormat.XML, is_wrapped)

    def _written(self, index: int) -> str:
        piece = self.pieces[index]
        if isinstance(piece, str):
            return escape(piece, quote=False)
        if piece.kind is MarkKind.OPEN:
            return f'<g id="{index}">'
        if piece.kind is MarkKind.CLOSE:
            return "</g>"
        name = "br" if piece.kind is MarkKind.BREAK else "x"
        attribute = ' translate="no"' if piece.kind is MarkKind.PLACEHOLDER else ""
        return f'<{name} id="{index}"{attribute}/>'

    def read(self, translation: str) -> list[Piece[T]]:
        """The pieces of the unit's translation. Points with the same name have the order of the original text.

        Raises ValueError unless every mark occurs once and elements are nested properly.
        """
        if not any(isinstance(piece, Mark) for piece in self.pieces):
            return [translation]
        partners = _partners(self.pieces)
        pieces: list[Piece[T]] = []
        opened: list[int] = []
        seen: set[int] = set()
        done = 0
        for match in _MARK.finditer(translation):
            pieces.append(unescape(translation[done : match.start()]))
            done = match.end()
            if match["close"]:
                index, kinds = partners.get(opened.pop(), -1) if opened else -1, {MarkKind.CLOSE}
            elif match["open"]:
                index, kinds = int(match["open"]), {MarkKind.OPEN}
                opened.append(index)
            else:
                index, kinds = int(match["single"]), set(MarkKind) - _PAIRED
            if not self._has_mark(index, kinds) or index in seen:
                raise ValueError("the translation has a tag that its text does not have")
            seen.add(index)
            pieces.append(self.pieces[index])
        pieces.append(unescape(translation[done:]))
        if len(seen) != sum(isinstance(piece, Mark) for piece in self.pieces):
            raise ValueError("the translation lacks a tag of its text")
        return self._in_order([piece for piece in pieces if piece != ""])

    def _in_order(self, pieces: Sequence[Piece[T]]) -> list[Piece[T]]:
        """The pieces of the translation, in which points with the same name have the order of the original text.

        So the end of a bookmark or field does not precede its start, and the times in a cue rise.
        """
        marks: dict[str, list[Mark[T]]] = {}
        for piece in reversed(self.pieces):
            if _is_named_point(piece):
                marks.setdefault(piece.name, []).append(piece)
        return [marks[piece.name].pop() if _is_named_point(piece) else piece for piece in pieces]

    def _has_mark(self, index: int, kinds: set[MarkKind]) -> bool:
        piece = self.pieces[index] if 0 <= index < len(self.pieces) else ""
        return isinstance(piece, Mark) and piece.kind in kinds


def _is_named_point(piece: Piece[T]) -> TypeGuard[Mark[T]]:
    return isinstance(piece, Mark) and piece.kind is MarkKind.POINT and piece.name != ""


def _partners(pieces: Sequence[Piece[T]]) -> dict[int, int]:
    """Map the index of each opening mark to its closing mark's index, and the reverse. Pairs do not overlap."""
    partners: dict[int, int] = {}
    opened: list[tuple[int, str]] = []
    num_opened: Counter[str] = Counter()
    for index, piece in enumerate(pieces):
        if not isinstance(piece, Mark):
            continue
        if piece.kind is MarkKind.OPEN:
            opened.append((index, piece.name))
            num_opened[piece.name] += 1
        elif piece.kind is MarkKind.CLOSE and num_opened[piece.name]:
            start, name = opened.pop()
            num_opened[name] -= 1
            while name != piece.name:
                start, name = opened.pop()
                num_opened[name] -= 1
            partners[start], partners[index] = index, start
    return partners
