"""Splits HTML into text, inline tags, block boundaries and content that is not translated.

Attributes, comments, `script`, `style`, `pre`, `code` and similar elements, `translate="no"`, the class `notranslate`
and tags that the caller names are not translated. The elements of `_END_RULES` end without their end tags as in a
browser. Another element that is not closed ends with the text.

Between elements that a page shows apart there may be no white space. Then `app.text.word_borders` finds where a block
ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from app.text.html_scanner import Event, scan_html
from app.text.word_borders import is_between_words, is_word_border, may_end_word

_BLOCK_NAMES = """
    address article aside audio blockquote body br button canvas caption center col colgroup datalist dd details dialog
    dir div dl dt embed fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr
    html iframe input label legend li link main map menu meta nav noframes noscript object ol optgroup option p param
    picture search section select source summary table tbody td template tfoot th thead title tr track ul video
"""
_BLOCKS = frozenset(_BLOCK_NAMES.split())
_POINTS = frozenset({"area", "base", "img", "input", "wbr"})
_VOID = _POINTS | {"br", "col", "embed", "frame", "hr", "link", "meta", "param", "source", "track"}
_UNTOUCHED_BLOCKS = frozenset(
    {"iframe", "math", "noembed", "noframes", "pre", "script", "style", "svg", "textarea", "xmp"}
)
_UNTOUCHED = _UNTOUCHED_BLOCKS | frozenset({"code", "kbd", "samp", "var"})
# Blocks that a paragraph may contain.
_IN_PARAGRAPH_NAMES = """
    audio br button canvas datalist embed iframe input label link map meta noframes noscript object optgroup option
    param picture select source template title track video
"""


class _EndRule(NamedTuple):
    """Where an element without an end tag ends, outside of the elements named `around` that it contains.

    next: elements whose start or end ends it. around: elements whose end ends it if they contain it.
    """

    next: frozenset[str]
    around: frozenset[str]


_LISTS = frozenset({"dir", "menu", "ol", "ul"})
_SELECTS = frozenset({"datalist", "select"})
_TABLE = frozenset({"table"})
_ROWS = frozenset({"tbody", "tfoot", "thead", "tr"})
# Most of the elements whose end tag HTML allows to omit (HTML standard, 13.1.2.4). `rt`, `rp`, `caption`, `colgroup`,
# `head`, `body` and `html` are not among them.
_END_RULES = {
    "li": _EndRule(frozenset({"li"}), _LISTS),
    "option": _EndRule(frozenset({"optgroup", "option"}), _SELECTS),
    "optgroup": _EndRule(frozenset({"optgroup"}), _SELECTS),
    "p": _EndRule(
        _BLOCKS - frozenset(_IN_PARAGRAPH_NAMES.split()) | {"pre", "xmp"},
        frozenset({"button", "iframe", "math", "object", "svg", "template", "textarea"}),
    ),
    "tr": _EndRule(_ROWS, _TABLE),
}
_END_RULES |= dict.fromkeys(("dd", "dt"), _EndRule(frozenset({"dd", "dt"}), frozenset({"dl"})))
_END_RULES |= dict.fromkeys(("td", "th"), _EndRule(_ROWS | {"td", "th"}, _TABLE))
_END_RULES |= dict.fromkeys(("tbody", "tfoot", "thead"), _EndRule(_ROWS - {"tr"}, _TABLE))


def is_not_translated(attributes: Mapping[str, str]) -> bool:
    """Whether an element's attributes exclude its content from translation."""
    translate = attributes.get("translate", attributes.get("its:translate"))
    return (translate or "").strip().lower() == "no" or "notranslate" in attributes.get("class", "").split()


class Part(NamedTuple):
    """A part of an HTML text. raw: its characters. name: of an inline tag.

    kind: `boundary` separates blocks, and `untouched` is inline content that is not translated. `open` and `close` are
    inline tags. `point` is an inline tag without content, a comment or unended markup.
    """

    raw: str
    kind: Literal["text", "boundary", "untouched", "open", "close", "point"]
    name: str = ""


def html_parts(text: str, ignore_tags: Collection[str] = ()) -> Iterator[Part]:
    """Return all parts of a page or a fragment, in order. A boundary may be empty. Malformed HTML is no error.

    ignore_tags: names of elements, in lower case, whose content is not translated.
    """
    return _with_word_borders(_parts(text, ignore_tags))


def _parts(text: str, ignore_tags: Collection[str]) -> Iterator[Part]:
    """Yield the parts of a text, without boundaries between words."""
    skipped: _Untouched | None = None
    for event in scan_html(text):
        if skipped is not None:
            end = skipped.end(event)
            if end is None:
                continue
            yield skipped.part(text[skipped.start : end])
            skipped = None
            if end == event.end:
                continue
        if begins_untouched(event, ignore_tags):
            skipped = _Untouched(event)
        else:
            yield _part(event, text[event.start : event.end])
    if skipped is not None:
        yield skipped.part(text[skipped.start :])


def begins_untouched(event: Event, ignore_tags: Collection[str] = ()) -> bool:
    """Whether an element begins here whose content is not translated. ignore_tags: as in `html_parts`."""
    if event.kind != "open" or event.name in _VOID:
        return False
    return event.name in _UNTOUCHED or event.name in ignore_tags or is_not_translated(event.attributes)


class _Untouched:
    """An element that is not translated. start: where it begins."""

    def __init__(self, event: Event) -> None:
        self.start, self._name = event.start, event.name
        self._next, self._around = _END_RULES.get(event.name, _EndRule(frozenset(), frozenset({event.name})))
        self._depth = 0  # the open elements in it that are named `around`

    def end(self, event: Event) -> int | None:
        """Where the element ends, if this event ends it: before or after the event."""
        is_close = event.kind == "close"
        if self._depth == 0 and is_close and event.name == self._name:
            return event.end
        if self._depth == 0 and (event.name in self._next or (is_close and event.name in self._around)):
            return event.start
        if event.name in self._around:
            self._depth += (event.kind == "open") - is_close
        return None

    def part(self, raw: str) -> Part:
        """The element as a part. raw: its characters."""
        is_block = self._name in _UNTOUCHED_BLOCKS or self._name in _BLOCKS
        return Part(raw, "boundary" if is_block else "untouched")


def _with_word_borders(parts: Iterator[Part]) -> Iterator[Part]:
    """Yield the parts, with a boundary between two texts that a page shows apart but no white space separates."""
    before = ""  # the text before `tags`, if these directly follow one
    tags: list[Part] = []
    for part in parts:
        if before and part.kind in {"open", "close", "point"}:
            tags.append(part)
            continue
        yield from _divided(before, tags, part.raw) if tags and part.kind == "text" else tags
        tags.clear()
        before = part.raw if part.kind == "text" else ""
        yield part
    yield from tags


def _divided(before: str, tags: Sequence[Part], after: str) -> Iterator[Part]:
    """Yield the tags between two texts, with a boundary where a word ends."""
    closed = ""  # the name of the element that ends directly before the tag
    for tag in tags:
        if tag.name == "img" and is_between_words(before, after):
            tag = Part(tag.raw, "boundary")
        elif tag.kind == "open" and tag.name == closed and is_word_border(before, after, closed):
            yield Part("", "boundary")
        yield tag
        if tag.name or tag.kind == "boundary":
            closed = tag.name if tag.kind == "close" and may_end_word(tag.name) else ""


def _part(event: Event, raw: str) -> Part:
    if event.kind == "text":
        return Part(raw, "text")
    if event.name == "input" and event.attributes.get("type", "").lower() == "hidden":
        return Part(raw, "point", event.name)
    if event.kind == "declaration" or event.name in _BLOCKS:
        return Part(raw, "boundary")
    if event.kind == "open" and event.name not in _VOID:
        return Part(raw, "open", event.name)
    if event.kind == "close" and event.name not in _VOID:
        return Part(raw, "close", event.name)
    return Part(raw, "point", event.name)
