"""Which elements of a Word paragraph draw a check box. A check box separates options, so that a sentence ends at it."""

from __future__ import annotations

import re

from app.files.xml_tree import Node

_FONT = re.compile(r"""\sw:font\s*=\s*["']([^"']*)["']""")
# A character of a font with symbols is in the private use area from F000 on, or is written without this offset.
_CHARACTER = re.compile(r"""\sw:char\s*=\s*["'](?:[fF]0|00)?([0-9a-fA-F]{2})["']""")
# The characters of the two fonts that are boxes: empty, with a tick or with a cross.
_BOXES = {
    "Wingdings": {"6F", "70", "71", "72", "A8", "FD", "FE"},
    "Wingdings 2": {"52", "53", "54", "A3"},
}


def is_check_box(node: Node) -> bool:
    """Whether the content of a run is a symbol that looks like a check box."""
    if node.name != "w:sym":
        return False
    font, character = _FONT.search(node.opening), _CHARACTER.search(node.opening)
    return font is not None and character is not None and character[1].upper() in _BOXES.get(font[1], ())


def begins_check_box(part: Node) -> bool:
    """Whether a field character begins a form field with a check box. part: as `field_character` takes it."""
    return "<w:checkBox" in part.raw
