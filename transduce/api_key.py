"""Reads the API key that a command sends to a server."""

from __future__ import annotations

import os
from pathlib import Path

from transduce.client.wire import is_api_key
from transduce.errors import CommandError


def find_api_key(path: Path | None) -> str | None:
    """The API key in the file at `path`, else in TRANSDUCE_API_KEY, else None; white space around it is removed.

    An empty variable counts as unset.

    Raises:
        CommandError: the key is empty or holds characters that a header cannot carry, or the file is not UTF-8.
        OSError: the file cannot be read.
    """
    try:
        text = path.read_text("utf-8").removeprefix("\ufeff") if path else os.environ.get("TRANSDUCE_API_KEY")
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} is not UTF-8 (byte {error.start + 1})") from error
    if text is None or not (path or text):
        return None
    key = text.strip()
    if not is_api_key(key):
        raise CommandError(f"{path or 'TRANSDUCE_API_KEY'} does not hold an API key of printable ASCII")
    return key
