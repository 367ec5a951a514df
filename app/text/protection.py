"""Replaces the parts of a block that the model must not read by placeholders and tags."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from app.text.blocks import Block, escaped, references_of, unused_placeholders
from app.text.enclosing_spans import enclosing_pairs
from app.text.formulas import TaggedWord, find_formulas, mark_borders
from app.text.glossary import GlossaryHit
from app.text.protected_spans import overlaps, protected_spans_between
from app.text.scripts import in_unspaced, is_unspaced
from app.text.segmentation import Span
from app.text.tags import Tag, TagKind, partners


@dataclass(frozen=True)
class Replacement:
    """A part of a block that the model must not read.

    restored: the markup that the translation has in its place; None: the same markup as the document.
    kind: POINT for a part that becomes a placeholder. A part that becomes a tag has the kind of that tag.
    name: of the tag.
    """

    span: Span
    restored: str | None = None
    kind: TagKind = TagKind.POINT
    name: str = ""


def protect_spans(
    block: Block,
    hits: Sequence[GlossaryHit],
    tagged: Sequence[TaggedWord],
    closed: Collection[str],
    *,
    is_markup: bool,
) -> tuple[Block, list[GlossaryHit]]:
    """Return the block with placeholders for its protected spans, formulas and terms, and the terms.

    Protected spans that enclose words become tags, whose name is a number. tagged: the block's `tagged_words`.
    closed: the names for which `[name]` is a shortcode. The spans of the returned terms are positions in the document.
    A term is returned, but not replaced, if a tag inside it has its partner outside.
    """
    protected = protected_spans_between(block.text, mark_borders(tagged), closed)
    if not (protected or hits or block.tags):
        return block, []
    references = references_of(block) if is_markup else {}
    found = find_formulas(block.text, tagged, protected)
    formulas = (span for span in found if not overlaps(span, protected))
    spans = sorted([*protected, *formulas])
    replacements = {span: Replacement(span) for span in spans}
    for first, last in enclosing_pairs(block.text, protected):
        name = str(first.start)
        replacements[first] = Replacement(first, kind=TagKind.OPEN, name=name)
        replacements[last] = Replacement(last, kind=TagKind.CLOSE, name=name)
    used = []
    for hit in hits:
        if not overlaps(hit.span, spans):
            used.append(replace(hit, span=Span(block.offsets[hit.span.start], block.end(hit.span.end - 1))))
            target = escaped(hit.replacement, references) if is_markup else hit.replacement
            replacements[hit.span] = Replacement(hit.span, None if hit.surface == hit.replacement else target)
    return protect(block, [replacements[span] for span in sorted(replacements)]), used


def protect(block: Block, replacements: Sequence[Replacement]) -> Block:
    """Return the block with a placeholder or tag for each replacement.

    replacements: in order, without overlap. A part is not replaced if a tag inside has its partner outside.
    - Without `restored`, a placeholder or tag stands for the markup of its part, with the tags inside. If the part is
      next to a letter or digit, as in `price<sup>1</sup>`, it also stands for the elements that enclose just this part.
      If a word follows a placeholder directly, as in `{n}words`, the text has a space before the word, because models
      do not translate such a word.
    - With `restored`, a placeholder stands for `restored` and for the tags inside the part. The tags before the first
      closing tag precede `restored`, and the other tags follow it.
    """
    if not replacements:
        return block
    text: list[str] = []
    raws: list[str] = []
    offsets: list[int] = []
    tags: list[Tag] = []
    placeholders, spaced = set(block.placeholders), set(block.spaced)
    free = unused_placeholders(block.text)
    closing = partners(block.tags)
    partner_of = closing | {close: start for start, close in closing.items()}
    done = next_tag = length = 0
    for replacement in replacements:
        span = replacement.span
        inner_tags = _tags_to_replace(block, replacement, partner_of)
        if inner_tags is None:
            continue
        length += span.start - done
        text.append(block.text[done : span.start])
        raws += block.raws[done : span.start]
        offsets += block.offsets[done : span.start]
        shift = length - span.start
        tags += (_moved(tag, tag.position + shift) for tag in block.tags[next_tag : inner_tags.start])
        done, next_tag = span.end, inner_tags.stop
        markup = _written(block, replacement, inner_tags)
        if replacement.kind is not TagKind.POINT:
            tags.append(Tag(length, markup, replacement.kind, replacement.name))
            continue
        character = next(free)
        placeholders.add(character)
        text.append(character)
        raws.append(markup)
        offsets.append(_offset_of(block, span, inner_tags))
        length += 1
        if replacement.restored is None and _is_before_word(block.text, span):
            spaced.add(character)
            text.append(" ")
            raws.append("")
            offsets.append(block.end(span.end - 1, inner_tags.stop))
            length += 1
    shift = length - done
    tags += (_moved(tag, tag.position + shift) for tag in block.tags[next_tag:])
    return Block(
        "".join([*text, block.text[done:]]),
        (*raws, *block.raws[done:]),
        (*offsets, *block.offsets[done:]),
        tuple(tags),
        frozenset(placeholders),
        frozenset(spaced),
    )


def _moved(tag: Tag, position: int) -> Tag:
    return Tag(position, tag.markup, tag.kind, tag.name)


def _tags_to_replace(block: Block, replacement: Replacement, partner_of: Mapping[int, int]) -> range | None:
    """Return the indices of the tags to replace with a part; None if the part cannot be replaced."""
    span = replacement.span
    inner_tags = _tags_inside(block, span, partner_of)
    if inner_tags is None or replacement.restored is not None or not _is_in_word(block.text, span):
        return inner_tags
    return _with_enclosing(block.tags, span, partner_of, inner_tags)


def _offset_of(block: Block, span: Span, inner_tags: range) -> int:
    """Return the offset in the document of a placeholder that stands for a part and these tags."""
    if inner_tags and block.tags[inner_tags.start].position == span.start:
        return block.tag_offset(inner_tags.start)
    return block.offsets[span.start]


def _tags_inside(block: Block, span: Span, partner_of: Mapping[int, int]) -> range | None:
    """Return the indices of the tags inside a part, and of their partners at its edges.

    Returns None if a partner is outside the part. partner_of: maps the index of a tag to that of its partner.
    """
    first = bisect_right(block.tags, span.start, key=lambda tag: tag.position)
    last = bisect_left(block.tags, span.end, key=lambda tag: tag.position)
    if last <= first:
        return range(first, first)
    ends = [partner_of.get(index, index) for index in range(first, last)]
    inner_tags = range(min(first, *ends), max(last - 1, *ends) + 1)
    for index in inner_tags:
        position = block.tags[index].position
        if not span.start <= position <= span.end or partner_of.get(index, index) not in inner_tags:
            return None
    return inner_tags


def _is_in_word(text: str, span: Span) -> bool:
    """Whether a letter or digit is next to a part. Letters of scripts without spaces do not count."""
    neighbours = (text[max(span.start - 1, 0) : span.start], text[span.end : span.end + 1])
    return any(each.isalnum() and not is_unspaced(each) for each in neighbours)


def _is_before_word(text: str, span: Span) -> bool:
    """Whether three letters or more follow a part. Letters of scripts that need no spaces do not count."""
    following = text[span.end : span.end + 3]
    return len(following) == 3 and all(each.isalpha() and not in_unspaced(each) for each in following)


def _with_enclosing(
    tags: Sequence[Tag], span: Span, partner_of: Mapping[int, int], inner_tags: range
) -> range:
    """Return the indices of the tags to replace, with those of the elements that begin and end with the span.

    If such an element has a tag whose partner is outside or missing, only `inner_tags` are returned.
    """
    first = bisect_left(tags, span.start, key=lambda tag: tag.position)
    last = bisect_right(tags, span.end, key=lambda tag: tag.position)
    for index in range(first, last):
        if tags[index].position > span.start:
            break
        if index < partner_of.get(index, index) < last and tags[partner_of[index]].position == span.end:
            found = range(index, partner_of[index] + 1)
            is_whole = all(
                tags[each].kind is TagKind.POINT or partner_of.get(each) in found for each in found
            )
            return found if is_whole else inner_tags
    return inner_tags


def _written(block: Block, replacement: Replacement, inner_tags: range) -> str:
    """Return what a placeholder or tag stands for: the restored markup or the part, with the tags inside."""
    if replacement.restored is not None:
        return _between(replacement.restored, block.tags[inner_tags.start : inner_tags.stop])
    parts: list[str] = []
    done = replacement.span.start
    for index in inner_tags:
        tag = block.tags[index]
        parts += (block.raw(done, tag.position), tag.markup)
        done = tag.position
    return "".join([*parts, block.raw(done, replacement.span.end)])


def _between(restored: str, tags: Sequence[Tag]) -> str:
    """Return a part's new markup with its tags: those before the first closing tag precede it, the others follow it."""
    kinds = [tag.kind for tag in tags]
    place = kinds.index(TagKind.CLOSE) if TagKind.CLOSE in kinds else len(tags)
    markup = [tag.markup for tag in tags]
    return "".join([*markup[:place], restored, *markup[place:]])
