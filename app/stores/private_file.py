"""Creates the files of stores, which only their owner may read and write, and says how SQLite opens them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


class UnusableFile(Exception):
    """The path is a folder or a device, or the process may not create or write the file."""


def create_private(path: Path) -> None:
    """Create a file that only its owner may read and write. SQLite gives its journals the mode of the file.

    An existing file keeps its mode. Raises UnusableFile. SQLite reports other errors when it opens the file.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        pass
    except OSError as error:
        raise UnusableFile(f"{path.name} cannot be created in its folder: {error.strerror}") from error
    with suppress(OSError):
        if path.exists() and not path.is_file():
            raise UnusableFile(f"{path.name} is not a plain file")
        if path.exists() and not os.access(path, os.W_OK):
            raise UnusableFile(f"{path.name} may not be written")


def uri_of(path: Path) -> str:
    """Return the URI with which SQLite opens a file. If the file is missing, SQLite does not create it.

    If SQLite created the file, all users could read it, and it would have no tables.
    """
    return f"{path.absolute().as_uri()}?mode=rw"
