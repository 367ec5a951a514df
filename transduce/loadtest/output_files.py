"""The files that a command writes at its end. It checks before its work that they can be written."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def prepare(path: Path) -> None:
    """Make the folder of a file that is written later. Raises OSError if the file cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def write(path: Path, content: bytes) -> None:
    """Write a file into a folder that exists. Raises OSError, which names the file also if its disk is full."""
    try:
        path.write_bytes(content)
    except OSError as error:
        error.filename = str(path)
        raise
