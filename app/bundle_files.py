"""Reads the files of a bundle. A pipe or a device in the place of a file is an error."""

from __future__ import annotations

import hashlib
import io
import os
import stat
from pathlib import Path

# The maximum bytes of a manifest or golden.jsonl, hundreds of times the usual size.
MAX_TEXT_BYTES = 8_000_000


def open_file(path: Path) -> io.BufferedReader:
    """Open a regular file for reading. Raises OSError for any other kind, without waiting on a pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path.name} is not a plain file")
    return os.fdopen(descriptor, "rb")


def sha256_of(path: Path) -> str:
    """SHA-256 of a regular file, in hexadecimal. Raises OSError."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_text(path: Path) -> bytes:
    """A whole file of at most MAX_TEXT_BYTES. Raises OSError."""
    with open_file(path) as file:
        content = file.read(MAX_TEXT_BYTES + 1)
    if len(content) > MAX_TEXT_BYTES:
        raise OSError(f"more than {MAX_TEXT_BYTES} bytes")
    return content
