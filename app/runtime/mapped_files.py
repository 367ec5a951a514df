"""Pages of files that a library has mapped and that nobody needs any more (Linux)."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from pathlib import Path

import numpy as np

# One number of 64 bits for each page of /proc/self/pagemap: the highest bit says that it is here, the one two below
# it that it is the file's own or shared, so no copy.
ENTRY_BYTES, SHIFT, MASK, IS_COPY = 8, np.uint64(61), np.uint64(0b101), np.uint64(0b100)


def release_pages(folder: Path) -> None:
    """Unmap the pages of a folder's files, but for mappings that somebody has written to.

    Kernels that keep weights in an order of their own have read them all once. What is read again comes from the
    system's file cache. Does nothing where the system does not tell.
    """
    with contextlib.suppress(OSError, AttributeError):
        advise = ctypes.CDLL(None).madvise
        with open("/proc/self/pagemap", "rb", buffering=0) as pages:  # noqa: PTH123
            for start, end in _mappings(folder):
                num_bytes = (end - start) // mmap.PAGESIZE * ENTRY_BYTES
                told = os.pread(pages.fileno(), num_bytes, start // mmap.PAGESIZE * ENTRY_BYTES)
                if not ((np.frombuffer(told, np.uint64) >> SHIFT) & MASK == IS_COPY).any():
                    advise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_DONTNEED)


def _mappings(folder: Path) -> list[tuple[int, int]]:
    """Where the files of a folder are mapped: first address, and the one after the last. Raises OSError."""
    prefix = f" {folder.resolve()}{os.sep}"
    found = []
    for line in Path("/proc/self/maps").read_text("utf-8", errors="replace").splitlines():
        if prefix in line:
            start, _, end = line.partition(" ")[0].partition("-")
            found.append((int(start, 16), int(end, 16)))
    return found
