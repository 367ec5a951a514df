"""Character references of HTML, such as `&amp;` and `&#39;`."""

from __future__ import annotations

import re
from html.entities import html5

_REFERENCE = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|(?P<name>[A-Za-z][A-Za-z0-9]{1,31}));")


def has_reference(text: str) -> bool:
    """Whether the text has a character reference with its semicolon. A name counts if HTML defines it."""
    return "&" in text and any(
        match["name"] is None or f"{match['name']};" in html5 for match in _REFERENCE.finditer(text)
    )
