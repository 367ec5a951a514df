"""Glossary terms behind stand-ins that the model is first given as words, to find a translation of its own for."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.text.blocks import Block
from app.text.glossary import GlossaryHit
from app.text.segments import Offsets


@dataclass(frozen=True)
class ExpandedTerm:
    """A term behind a stand-in, as the model is first given it.

    text: as it stands in the document, of several spaces one. places: of its characters in the document.
    """

    hit: GlossaryHit
    text: str
    places: tuple[Offsets, ...]


def find_expandable_terms(
    block: Block, protected: Block, found: Sequence[GlossaryHit], used: Sequence[GlossaryHit]
) -> Mapping[str, ExpandedTerm]:
    """By stand-in, the terms that are words for the model at first: no tag parts them, and no digit is in them.

    found: in the block as it was, of which those in `used`, which are places in the document, were protected.
    """
    by_start = {hit.span.start: hit for hit in used}
    terms: dict[str, ExpandedTerm] = {}
    for each in found:
        start, end = each.span.start, each.span.end
        hit = by_start.get(block.offsets[start])
        tag = bisect_right(block.tags, start, key=lambda tag: tag.position)
        is_parted = tag < len(block.tags) and block.tags[tag].position < end
        if hit is None or is_parted or any(map(str.isdigit, hit.surface + hit.replacement)):
            continue
        character = protected.text[bisect_left(protected.offsets, hit.span.start)]
        if character not in protected.placeholders:
            continue
        kept = [place for place in range(start, end) if not block.text[place - 1 : place + 1].isspace()]
        terms[character] = ExpandedTerm(
            hit,
            "".join(" " if block.text[place].isspace() else block.text[place] for place in kept),
            tuple((block.offsets[place], block.offsets[place + 1]) for place in kept),
        )
    return terms


def expand_terms(part: str, terms: Mapping[str, ExpandedTerm]) -> tuple[str, Sequence[int]]:
    """A part of a block with terms as words instead of their stand-ins, and where its characters stand in the part."""
    if not terms or terms.keys().isdisjoint(part):
        return part, range(len(part))
    runs = [terms[character].text if character in terms else character for character in part]
    return "".join(runs), [place for place, run in enumerate(runs) for _ in run]
