"""Splits HTML into text, inline tags, block boundaries and content that is not translated.

Attributes, comments, `script`, `style`, `pre`, `code` and similar elements, `translate="no"`, the class `notranslate`
and tags that the caller names are not translated. An element that is not closed ends with the text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Literal, NamedTuple

from app.text.html_scanner import Event, scan_html

_BLOCK_NAMES = """
    address article aside audio blockquote body br canvas caption center col colgroup datalist dd details dialog dir
    div dl dt embed fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr
    html iframe legend li link main map menu meta nav noframes noscript object ol optgroup option p param picture
    search section select source summary table tbody td template tfoot th thead title tr track ul video
"""
_BLOCKS = frozenset(_BLOCK_NAMES.split())
_POINTS = frozenset({"area", "base", "img", "input", "wbr"})
_VOID = _POINTS | {"br", "col", "embed", "frame", "hr", "link", "meta", "param", "source", "track"}
_UNTOUCHED_BLOCKS = frozenset({"math", "pre", "script", "style", "svg", "textarea", "xmp"})
_UNTOUCHED = _UNTOUCHED_BLOCKS | frozenset({"code", "kbd", "samp", "var"})


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
    """Yield all parts of a page or a fragment, in order. Malformed HTML is no error.

    ignore_tags: names of elements, in lower case, whose content is not translated.
    """
    untouched_from = depth = 0
    skipped = ""
    for event in scan_html(text):
        if skipped:
            depth += (event.name == skipped) * ((event.kind == "open") - (event.kind == "close"))
            if depth == 0:
                yield _untouched(text[untouched_from : event.end], skipped)
                skipped = ""
        elif begins_untouched(event, ignore_tags):
            untouched_from, depth, skipped = event.start, 1, event.name
        else:
            yield _part(event, text[event.start : event.end])
    if skipped:
        yield _untouched(text[untouched_from:], skipped)


def begins_untouched(event: Event, ignore_tags: Collection[str] = ()) -> bool:
    """Whether an element begins here whose content is not translated. ignore_tags: as in `html_parts`."""
    if event.kind != "open" or event.name in _VOID:
        return False
    return event.name in _UNTOUCHED or event.name in ignore_tags or is_not_translated(event.attributes)


def _untouched(raw: str, name: str) -> Part:
    is_block = name in _UNTOUCHED_BLOCKS or name in _BLOCKS
    return Part(raw, "boundary" if is_block else "untouched")


def _part(event: Event, raw: str) -> Part:
    if event.kind == "text":
        return Part(raw, "text")
    if event.kind == "declaration" or event.name in _BLOCKS:
        return Part(raw, "boundary")
    if event.kind == "open" and event.name not in _VOID:
        return Part(raw, "open", event.name)
    if event.kind == "close" and event.name not in _VOID:
        return Part(raw, "close", event.name)
    return Part(raw, "point", event.name)
