"""Creates the files of stores, which only their owner may read and write."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


class NotPlainFile(Exception):
    """The path is a folder or a device."""


def create_private(path: Path) -> None:
    """Create a file that only its owner may read and write. SQLite gives its journals the mode of the file.

    An existing file keeps its mode. Raises NotPlainFile. SQLite reports other errors when it opens the file.
    """
    with suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    with suppress(OSError):
        if path.exists() and not path.is_file():
            raise NotPlainFile(f"{path.name} is not a plain file")
