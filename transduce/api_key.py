"""Reads the API key that a command sends to a server."""

from __future__ import annotations

import os
from pathlib import Path

from transduce.client.wire import is_api_key
from transduce.errors import CommandError


def find_api_key(path: Path | None) -> str | None:
    """The API key in the file at `path`, else in TRANSDUCE_API_KEY, else None; white space around it is removed.

    Raises:
        CommandError: the key is empty or holds characters that a header cannot carry.
        OSError: the file cannot be read.
    """
    text = path.read_text("utf-8") if path else os.environ.get("TRANSDUCE_API_KEY")
    if text is None:
        return None
    key = text.strip()
    if not is_api_key(key):
        raise CommandError(f"{path or 'TRANSDUCE_API_KEY'} does not hold an API key of printable ASCII")
    return key
