"""Pairs of marks in a paragraph of an office document that may overlap: fields, and ranges such as bookmarks.

A pair can become an element of the unit only if it nests with the other elements:

- A field cannot be an element if its start and its end are in different elements of the document.
- A range cannot be an element if it overlaps an element of the document, or a field that is an element.
- Of two ranges that overlap, only the range that ends last can be an element.

The start and the end of a field or range that cannot be an element become points, which are marks without a partner.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from app.files.tagged_text import Mark, MarkKind

FIELD = "field"
# The name of a range's marks begins with this.
RANGE = "range "


def unpaired(items: Sequence[object]) -> Set[int]:
    """The indices of the marks of fields and ranges that do not nest. The marks of elements always nest."""
    fields = _unpaired(items, 1, frozenset())
    return fields | _unpaired(items, 2, fields)


def _unpaired(items: Sequence[object], rank: int, points: Set[int]) -> Set[int]:
    """The indices of this rank's marks that do not nest with each other and with the pairs of lower ranks.

    points: indices of marks of lower ranks that form no pair.
    """
    start_of = _starts(items, rank)
    closed = set(start_of.values())
    # The open marks of this rank, for each open pair of a lower rank. A mark that is never closed is left out.
    opened: list[list[int]] = [[]]
    # Starts of pairs that were closed while another mark or pair was open in them.
    overlapping: set[int] = set()
    alone: set[int] = set()
    for index, item in enumerate(items):
        if not isinstance(item, Mark) or item.kind not in {MarkKind.OPEN, MarkKind.CLOSE} or index in points:
            continue
        is_start = item.kind is MarkKind.OPEN
        if _rank(item.name) < rank:
            if is_start:
                opened.append([])
            else:
                opened.pop()
        elif _rank(item.name) == rank:
            alone.add(index)
            if index in closed:
                opened[-1].append(index)
            elif index in start_of:
                start, innermost = start_of[index], opened[-1]
                while innermost and innermost[-1] in overlapping:
                    innermost.pop()
                if innermost and innermost[-1] == start:
                    alone -= {innermost.pop(), index}
                else:
                    overlapping.add(start)
    return alone


def _starts(items: Sequence[object], rank: int) -> dict[int, int]:
    """Map the index of each end of this rank to the index of its start: the last open start of the same name."""
    opened: dict[str, list[int]] = {}
    found: dict[int, int] = {}
    for index, item in enumerate(items):
        if isinstance(item, Mark) and _rank(item.name) == rank:
            if item.kind is MarkKind.OPEN:
                opened.setdefault(item.name, []).append(index)
            elif item.kind is MarkKind.CLOSE and opened.get(item.name):
                found[index] = opened[item.name].pop()
    return found


def _rank(name: str) -> int:
    """0 for an element of the document, 1 for a field, 2 for a range. A pair must nest with pairs of lower ranks."""
    if name.startswith(RANGE):
        return 2
    return 1 if name == FIELD else 0
