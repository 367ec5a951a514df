"""Tells whether files have changed, for those that poll them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

# Seconds between two polls. Larger: a change is noticed later. Smaller: more calls of the file system.
POLL_S = 2.0
# Path, size, modification time in nanoseconds and inode of each file. A file that is replaced has another inode.
Signature = tuple[tuple[str, int, int, int], ...]


def signature_of(files: Iterable[Path]) -> Signature:
    """The signature of files. A file that is missing or cannot be reached is left out."""
    entries = []
    for file in files:
        with contextlib.suppress(OSError):
            status = file.stat()
            entries.append((str(file), status.st_size, status.st_mtime_ns, status.st_ino))
    return tuple(entries)
