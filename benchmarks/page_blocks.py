"""Rebuilds the blocks of a documentation page that come from results."""

from __future__ import annotations

import re
from collections.abc import Callable

BLOCK = re.compile(r"(<!-- figures: ([a-z0-9-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill_blocks(page: str, text_of: Callable[[str], str]) -> str:
    """The page with every block rebuilt. text_of: returns the text of a block by its name."""
    return BLOCK.sub(lambda block: f"{block[1]}{text_of(block[2])}\n{block[3]}", page)
