"""HTML to blocks. The scanner says where every tag stands; what it stands for is taken from the text itself, so that
whatever is not translated comes out byte for byte, malformed or not.

Never translated: attributes, comments, `script`, `style`, `pre`, `code` and their like, `translate="no"`, the class
`notranslate`, and the tags that a caller names. An element that is not closed ends with the text.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from app.text.blocks import BlockBuilder, Document
from app.text.html_scanner import Event, scan_html
from app.text.tags import TagKind

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
    """Whether an element's attributes say that its content stays as it is."""
    says = attributes.get("translate", attributes.get("its:translate"))
    return (says or "").strip().lower() == "no" or "notranslate" in attributes.get("class", "").split()


def read_html(text: str, ignore_tags: Collection[str] = ()) -> Document:
    """A page or a fragment. Never fails.

    ignore_tags: names of elements, in lower case, whose content is not translated.
    """
    builder = BlockBuilder()
    untouched_from = depth = 0
    skipped = ""
    for event in scan_html(text):
        if skipped:
            depth += (event.name == skipped) * ((event.kind == "open") - (event.kind == "close"))
            if depth == 0:
                _untouched(builder, text[untouched_from : event.end], skipped)
                skipped = ""
        elif _begins_untouched(event, ignore_tags):
            untouched_from, depth, skipped = event.start, 1, event.name
        else:
            _add(builder, event, text[event.start : event.end])
    if skipped:
        _untouched(builder, text[untouched_from:], skipped)
    return Document(builder.finish(), is_markup=True)


def _untouched(builder: BlockBuilder, raw: str, name: str) -> None:
    if name in _UNTOUCHED_BLOCKS or name in _BLOCKS:
        builder.boundary(raw)
    else:
        builder.untouched(raw)


def _begins_untouched(event: Event, ignore_tags: Collection[str]) -> bool:
    """Whether nothing is translated from this event to its element's end."""
    if event.kind != "open" or event.name in _VOID:
        return False
    return event.name in _UNTOUCHED or event.name in ignore_tags or is_not_translated(event.attributes)


def _add(builder: BlockBuilder, event: Event, raw: str) -> None:
    """raw: the event as it stands."""
    if event.kind == "text":
        builder.text(raw)
    elif event.kind == "declaration" or event.name in _BLOCKS:
        builder.boundary(raw)
    elif event.kind in {"open", "close"} and event.name not in _VOID:
        builder.tag(raw, TagKind(event.kind), event.name)
    else:
        builder.tag(raw, TagKind.POINT, event.name)
