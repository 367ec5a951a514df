"""The inline codes of XLIFF as marks: which are pairs, which are words of a sentence, and which end it.

A code stands for markup of the original document. What it stands for is known from its native code: the content of
`ph`, `bpt`, `ept` and `it`, the attributes `equiv-text`, `disp` and `equiv`, or the data that `dataRef` names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from app.files.string_text import takes_next_argument
from app.files.tagged_text import Mark, MarkKind
from app.files.xml_tree import Node
from app.text.protected_spans import protected_spans
from app.text.segmentation import Span

# Elements that enclose text.
ELEMENTS = frozenset({"g", "mrk", "pc"})
# Codes at the start and the end of a pair, each with the attributes that name the pair. The first one found counts.
_STARTS = {"bpt": ("rid", "id"), "bx": ("rid", "id"), "sc": ("id",), "sm": ("id",)}
_ENDS = {"ept": ("rid", "id"), "ex": ("rid", "id"), "ec": ("startRef", "id"), "em": ("startRef",)}
_START_OF = {"ept": "bpt", "ex": "bx", "ec": "sc", "em": "sm"}
# The values of `ctype` and `subType` of a code that is a line break.
_BREAKS = frozenset({"lb", "pb", "x-br", "xlf:lb", "xlf:pb"})
# A tag of HTML or XML as native code.
_TAG = re.compile(r"<(?P<close>/?)(?P<name>[A-Za-z][\w:.-]*+)[^<>]*+>")
# Angular's names of codes. The start of a pair may have a number that its end lacks.
_ANGULAR_PAIR = re.compile(r"(?P<kind>START|CLOSE)_(?P<name>[A-Z][A-Z0-9_]*?)(?:_\d+)?")
_ANGULAR_WORD = re.compile(r"(?:INTERPOLATION|PH|ICU)(?:_\d+)?")
# The name of a code that stands for a conversion of printf without a number.
CONVERSION = "conversion"
# The maximum number of characters of a native code that is read. A longer one is no variable and no simple tag.
_MAX_NATIVE = 2_000


def is_protected(node: Node) -> bool:
    """Whether the text in an element, or in the range that it begins, must not be translated."""
    attributes = node.attributes
    return attributes.get("translate") == "no" or attributes.get("mtype") == "protected"


def keeps_order(node: Node) -> bool:
    """Whether the order of this code and of its neighbours must stay."""
    return node.attributes.get("canReorder", "yes") != "yes"


def code_mark(node: Node, local: str, data: Mapping[str, str], place: str) -> Mark[str]:
    """The mark of a code that encloses no text.

    local: the element's name without a prefix. data: native codes by the ids that `dataRef` names. place: the name of
    the element around it; codes of different places form no pair.
    """
    attributes = node.attributes
    if local in _STARTS or local in _ENDS:
        names = _STARTS.get(local) or _ENDS[local]
        number = next((attributes[name] for name in names if name in attributes), "")
        kind = MarkKind.OPEN if local in _STARTS else MarkKind.CLOSE
        return Mark(kind, node.raw, f"{place} {_START_OF.get(local, local)} {number}")
    native = _native(node, attributes, data)
    kind, name = _standalone(attributes, native)
    if kind is MarkKind.PLACEHOLDER:
        return Mark(kind, node.raw, CONVERSION if takes_next_argument(native) else "")
    return Mark(kind, node.raw, f"{place} {name}" if name else "")


def _native(node: Node, attributes: Mapping[str, str], data: Mapping[str, str]) -> str:
    """The native code that a code stands for; empty if it is not known."""
    known = (data.get(attributes.get("dataRef", ""), ""), node.text, attributes.get("equiv-text", ""))
    native = next(filter(None, (*known, attributes.get("disp", ""), attributes.get("equiv", ""))), "")
    return native.strip() or ("\n" if "\n" in native else "")


def _standalone(attributes: Mapping[str, str], native: str) -> tuple[MarkKind, str]:
    """The kind of a single code, and the name of its pair.

    The name is empty if the code stands for neither a start tag nor an end tag.
    """
    if _BREAKS.intersection((attributes.get("ctype"), attributes.get("subType"))) or native in {"\n", "\\n"}:
        return MarkKind.BREAK, ""
    if len(native) > _MAX_NATIVE:
        return MarkKind.POINT, ""
    if tag := _TAG.fullmatch(native):
        return _of_tag(tag["name"].lower(), is_close=bool(tag["close"]), is_empty=native.endswith("/>"))
    name = attributes.get("equiv") or attributes.get("id", "")
    if pair := _ANGULAR_PAIR.fullmatch(name):
        return MarkKind.OPEN if pair["kind"] == "START" else MarkKind.CLOSE, pair["name"]
    if _ANGULAR_WORD.fullmatch(name) or attributes.get("subType") == "xlf:var":
        return MarkKind.PLACEHOLDER, ""
    is_variable = native != "" and protected_spans(native) == [Span(0, len(native))]
    return MarkKind.PLACEHOLDER if is_variable else MarkKind.POINT, ""


def _of_tag(name: str, *, is_close: bool, is_empty: bool) -> tuple[MarkKind, str]:
    if name == "br":
        return MarkKind.BREAK, ""
    if is_empty:
        return MarkKind.POINT, ""
    return MarkKind.CLOSE if is_close else MarkKind.OPEN, f"<{name}>"
