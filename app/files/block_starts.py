"""Tells which lines of Markdown begin another kind of block than running text."""

from __future__ import annotations

import re

from markdown_it.common.html_blocks import block_names

# Characters that, at the beginning of a line, would turn running text into another kind of block.
_BLOCK_START = re.compile(
    r"(\s{0,3})(#{1,6}(?=\s|$)|[-+*](?=\s|$)|>|\d{1,9}(?=[.)](?:\s|$))|(?:=+|-+)\s*$|```|~~~"
    r"|(?:(?:\*\s*){3,}|(?:_\s*){3,}|(?:-\s*){3,})$"
    rf"|</?(?:{'|'.join(block_names)})(?=\s|/?>|$)|<(?:pre|script|style|textarea)(?=\s|>|$)"
    r"|<!--|<\?|<![A-Z]|<!\[CDATA\[)",
    re.IGNORECASE,
)
# A link definition. It can begin only at the first line of a block.
_DEFINITION = re.compile(r"\s{0,3}\[[^\[\]]+\]:")


def begins_block(line: str) -> bool:
    """Whether a line of running text would begin another kind of block."""
    return _BLOCK_START.match(line) is not None or begins_definition(line)


def begins_definition(line: str) -> bool:
    """Whether the first line of a block would be a link definition."""
    return _DEFINITION.match(line) is not None


def as_text(line: str) -> str:
    """The line with a leading block marker escaped."""
    match = _BLOCK_START.match(line)
    if match is None:
        return line
    offset = match.end() if match[2].isdecimal() else match.start(2)
    return f"{line[:offset]}\\{line[offset:]}"
