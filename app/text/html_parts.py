"""Splits HTML into text, inline tags, block boundaries and content that is not translated.

Attributes, comments, `script`, `style`, `pre`, `code` and similar elements, the readings of `ruby`, `translate="no"`,
the class `notranslate` and tags that the caller names are not translated. The elements of `_END_RULES` end without
their end tags as in a browser. Another element that is not closed ends with the text.

Between elements that a page shows apart there may be no white space. Then a block ends between them, if a word ends
there by `app.text.word_borders`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from html import unescape
from typing import Literal, NamedTuple

from app.text.element_rows import ElementRows
from app.text.html_scanner import RAW_TEXTS, Event, scan_html
from app.text.word_borders import continues_sentence, has_word, is_between_words, is_word_border

_VOID_NAMES = "area base br col embed frame hr img input link meta param source track wbr"
_VOID = frozenset(_VOID_NAMES.split())
_UNTOUCHED_BLOCKS = (RAW_TEXTS - {"title"}) | {"pre", "script", "svg"}
# The readings of `ruby`, with brackets. They are moved like a tag, because a placeholder would divide their word.
_READINGS = frozenset({"rp", "rt"})
_UNTOUCHED = _UNTOUCHED_BLOCKS | _READINGS | {"code", "kbd", "math", "samp", "var"}
_BLOCK_NAMES = """
    address article aside audio blockquote body br button canvas caption center col colgroup datalist dd details dialog
    dir div dl dt embed fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr
    html input label legend li link main map menu meta nav noscript object ol optgroup option p param picture search
    section select source summary table tbody td template tfoot th thead title tr track ul video
"""
# Elements that end a block, and so a sentence.
BLOCKS = _UNTOUCHED_BLOCKS | frozenset(_BLOCK_NAMES.split())
# Blocks that a paragraph may contain, beside most of _UNTOUCHED_BLOCKS.
_IN_PARAGRAPH_NAMES = """
    audio br button canvas datalist embed input label link map meta noscript object optgroup option param picture select
    source template title track video
"""


class _EndRule(NamedTuple):
    """Which tags end an element E that has no end tag of its own.

    next: names of elements whose start tag or end tag ends E. around: names of elements whose end tag ends E if they
    contain E. If E contains an element of these names, the tags inside that element do not end E.
    """

    next: frozenset[str]
    around: frozenset[str]


_LISTS = frozenset({"dir", "menu", "ol", "ul"})
_SELECTS = frozenset({"datalist", "select"})
_TABLE = frozenset({"table"})
_ROWS = frozenset({"tbody", "tfoot", "thead", "tr"})
# Most of the elements whose end tag HTML allows to omit (HTML standard, 13.1.2.4). `caption`, `colgroup`, `head`,
# `body` and `html` are not among them.
_END_RULES = {
    "li": _EndRule(frozenset({"li"}), _LISTS),
    "option": _EndRule(frozenset({"optgroup", "option"}), _SELECTS),
    "optgroup": _EndRule(frozenset({"optgroup"}), _SELECTS),
    "p": _EndRule(
        (BLOCKS - _UNTOUCHED_BLOCKS - frozenset(_IN_PARAGRAPH_NAMES.split())) | {"pre", "xmp"},
        frozenset({"button", "iframe", "math", "object", "svg", "template", "textarea"}),
    ),
    "tr": _EndRule(_ROWS, _TABLE),
}
# A block ends a reading, too, because without an end tag the rest of the text would be in it.
_END_RULES |= dict.fromkeys(_READINGS, _EndRule(_END_RULES["p"].next | _READINGS, frozenset({"ruby"})))
_END_RULES |= dict.fromkeys(("dd", "dt"), _EndRule(frozenset({"dd", "dt"}), frozenset({"dl"})))
_END_RULES |= dict.fromkeys(("td", "th"), _EndRule(_ROWS | {"td", "th"}, _TABLE))
_END_RULES |= dict.fromkeys(("tbody", "tfoot", "thead"), _EndRule(_ROWS - {"tr"}, _TABLE))


def is_not_translated(attributes: Mapping[str, str]) -> bool:
    """Whether an element's attributes exclude its content from translation."""
    translate = attributes.get("translate", attributes.get("its:translate"))
    return (translate or "").strip().lower() == "no" or "notranslate" in attributes.get("class", "").split()


class Part(NamedTuple):
    """A part of an HTML text. raw: its characters. name: of an inline tag or an element that is not translated.

    kind: `boundary` separates blocks, and `untouched` is inline content that is not translated. `open` and `close` are
    inline tags. `point` is an inline tag without content, a reading of `ruby`, a comment or unended markup.
    """

    raw: str
    kind: Literal["text", "boundary", "untouched", "open", "close", "point"]
    name: str = ""


def html_parts(text: str, ignore_tags: Collection[str] = ()) -> Iterator[Part]:
    """Return all parts of a page or a fragment, in order. A boundary may be empty. Malformed HTML is no error.

    ignore_tags: names of elements, in lower case, whose content is not translated.
    """
    return _with_word_borders(_with_icons(_parts(text, ignore_tags)))


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
        # `display` is an attribute of `math`.
        self._is_block = event.name in BLOCKS or event.attributes.get("display") == "block"
        self._next, self._around = _END_RULES.get(event.name, _EndRule(frozenset(), frozenset({event.name})))
        self._depth = 0  # number of open elements in it whose name is in `_around`

    def end(self, event: Event) -> int | None:
        """Where the element ends: before or after this event; None if the event does not end it."""
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
        if self._name in _READINGS:
            return Part(raw, "point", self._name)
        return Part(raw, "boundary" if self._is_block else "untouched", self._name)


def _with_icons(parts: Iterator[Part]) -> Iterator[Part]:
    """Yield the parts, with each `svg` in the middle of a sentence as a point.

    An `svg` at the start of an element belongs to the words of that element, and ends the sentence before it.
    """
    before = ""  # the last text of the block; empty after a start tag
    held: list[Part] = []  # an `svg` and the parts after it
    for part in parts:
        is_icon = part.name == "svg" and part.kind == "boundary"
        is_text = part.kind == "text" and not part.raw.isspace()
        if held or (is_icon and has_word(before)):
            held.append(part)
            if is_icon or not (is_text or part.kind in {"boundary", "untouched"}):
                continue
            is_inside = is_text and continues_sentence(part.raw)
            for each in held:
                yield Part(each.raw, "point", "svg") if is_inside and each.name == "svg" else each
            held.clear()
        else:
            yield part
        if is_text:
            before = part.raw
        elif part.kind in {"boundary", "open"}:
            before = ""
    yield from held


def _with_word_borders(parts: Iterator[Part]) -> Iterator[Part]:
    """Yield the parts, with a boundary between two texts that a page shows apart but no white space separates."""
    block: list[Part] = []
    for part in parts:
        if part.kind == "boundary":
            yield from _divided_block(block)
            block.clear()
            yield part
        else:
            block.append(part)
    yield from _divided_block(block)


def _divided_block(block: Sequence[Part]) -> Iterator[Part]:
    """Yield the parts of a block, with a boundary where a word ends."""
    apart = _starts_apart(block)
    before = ""  # the text directly before `tags`; empty if another part is there
    tags: list[tuple[int, Part]] = []
    for index, part in enumerate(block):
        if before and part.kind in {"open", "close", "point"}:
            tags.append((index, part))
            continue
        if tags and part.kind == "text":
            yield from _divided(before, tags, part.raw, apart)
        else:
            yield from (tag for _, tag in tags)
        tags.clear()
        before = part.raw if part.kind == "text" else ""
        yield part
    yield from (tag for _, tag in tags)


def _divided(
    before: str, tags: Sequence[tuple[int, Part]], after: str, apart: Collection[int]
) -> Iterator[Part]:
    """Yield the tags between two texts, with a boundary where a word ends.

    tags: with their indices in the block. apart: as `_starts_apart` returns it.
    """
    closed = ""  # the name of the element that ends directly before the tag
    for index, tag in tags:
        if tag.name in {"img", "svg"} and is_between_words(before, after):
            tag = Part(tag.raw, "boundary")
        elif index in apart and tag.name == closed and is_word_border(before, after, closed):
            yield Part("", "boundary")
        yield tag
        if tag.name or tag.kind == "boundary":
            closed = tag.name if tag.kind == "close" else ""


def _starts_apart(block: Sequence[Part]) -> set[int]:
    """Return the indices of the opening tags before which a word may end, by `ElementRows`."""
    rows = ElementRows()
    for index, part in enumerate(block):
        if part.kind == "open":
            rows.open(index, part.name)
        elif part.kind == "close":
            rows.close(part.name)
        elif part.kind == "untouched":
            rows.text(has_word=True)
        elif part.kind == "text" and unescape(part.raw).strip():
            rows.text(has_word=has_word(part.raw))
    return rows.starts_apart()


def _part(event: Event, raw: str) -> Part:
    if event.kind == "text":
        return Part(raw, "text")
    if event.name == "input" and event.attributes.get("type", "").lower() == "hidden":
        return Part(raw, "point", event.name)
    if event.kind == "declaration" or event.name in BLOCKS:
        return Part(raw, "boundary")
    if event.kind == "open" and event.name not in _VOID:
        return Part(raw, "open", event.name)
    if event.kind == "close" and event.name not in _VOID:
        return Part(raw, "close", event.name)
    return Part(raw, "point", event.name)
