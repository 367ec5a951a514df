"""Puts glossary terms as words into the model's first input. The model may translate them as the glossary does.

If a translation lacks a term, the segment is decoded again with a placeholder for the term (`app.text.parsed_text`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.text.blocks import Block
from app.text.glossary import GlossaryHit
from app.text.model_input import INVISIBLE
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
    block: Block, protected: Block, hits: Sequence[GlossaryHit], protected_hits: Sequence[GlossaryHit]
) -> Mapping[str, ExpandedTerm]:
    """Return the terms that can be words in the model's input, by placeholder.

    They have no tag inside, and no digit in term or replacement, and their placeholders stand for no tags. block: the
    block before protection. hits: all terms in `block`. protected_hits: the terms that overlap no protected span and
    no formula, with spans in the document.
    """
    by_start = {hit.span.start: hit for hit in protected_hits}
    terms: dict[str, ExpandedTerm] = {}
    for each in hits:
        start, end = each.span.start, each.span.end
        hit = by_start.get(block.offsets[start])
        tag = bisect_right(block.tags, start, key=lambda tag: tag.position)
        is_split = tag < len(block.tags) and block.tags[tag].position < end
        if hit is None or is_split or any(map(str.isdigit, hit.surface + hit.replacement)):
            continue
        place = bisect_right(protected.offsets, hit.span.start) - 1
        character = protected.text[place]
        has_tags = protected.offsets[place] < hit.span.start
        if character not in protected.placeholders or has_tags:
            continue
        kept = [
            index
            for index in range(start, end)
            if not block.text[index - 1 : index + 1].isspace() and block.text[index] not in INVISIBLE
        ]
        terms[character] = ExpandedTerm(
            hit,
            "".join(" " if block.text[index].isspace() else block.text[index] for index in kept),
            tuple((block.offsets[index], block.end(index)) for index in kept),
        )
    return terms


def expand_terms(part: str, terms: Mapping[str, ExpandedTerm]) -> tuple[str, Sequence[int]]:
    """Return a part of a block with terms as words, and each character's position in the part."""
    if not terms or terms.keys().isdisjoint(part):
        return part, range(len(part))
    runs = [terms[character].text if character in terms else character for character in part]
    return "".join(runs), [index for index, run in enumerate(runs) for _ in run]
