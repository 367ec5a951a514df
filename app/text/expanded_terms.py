"""Glossary terms as words in the model's first input. The model may translate these correctly without a placeholder."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.text.blocks import Block
from app.text.glossary import GlossaryHit
from app.text.segmentation import Offsets


@dataclass(frozen=True)
class ExpandedTerm:
    """A term whose words can replace its placeholder in the model's input.

    text: the term as in the document, with single spaces. offsets: the offsets of its characters in the document.
    """

    hit: GlossaryHit
    text: str
    offsets: tuple[Offsets, ...]


def find_expandable_terms(
    block: Block, protected: Block, found: Sequence[GlossaryHit], used: Sequence[GlossaryHit]
) -> Mapping[str, ExpandedTerm]:
    """Return the terms that can be words in the model's input, by placeholder: those without a digit or a tag inside.

    block: the block before protection. found: hits in `block`. used: the hits that were protected, with spans in the
    document.
    """
    by_start = {hit.span.start: hit for hit in used}
    terms: dict[str, ExpandedTerm] = {}
    for each in found:
        start, end = each.span.start, each.span.end
        hit = by_start.get(block.offsets[start])
        tag = bisect_right(block.tags, start, key=lambda tag: tag.position)
        is_split = tag < len(block.tags) and block.tags[tag].position < end
        if hit is None or is_split or any(map(str.isdigit, hit.surface + hit.replacement)):
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
    """Return a part of a block with terms as words, and each character's position in the part."""
    if not terms or terms.keys().isdisjoint(part):
        return part, range(len(part))
    runs = [terms[character].text if character in terms else character for character in part]
    return "".join(runs), [place for place, run in enumerate(runs) for _ in run]
