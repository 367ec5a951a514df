"""The blocks of a documentation page that are made from results."""

from __future__ import annotations

import re
from collections.abc import Callable

BLOCK = re.compile(r"(<!-- figures: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill_blocks(page: str, text_of: Callable[[str], str]) -> str:
    """The page with every block made anew. text_of: a block's text by its name; what it raises is raised."""
    return BLOCK.sub(lambda block: f"{block[1]}{text_of(block[2])}\n{block[3]}", page)
