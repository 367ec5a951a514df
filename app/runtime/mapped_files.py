"""Releases memory-mapped pages that are no longer read (Linux)."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from pathlib import Path

import numpy as np

# /proc/self/pagemap has a 64-bit entry for each page. Bit 63 is set if the page is in memory, and bit 62 if it is
# swapped out. Bit 61 is set if the page belongs to a file or is shared. A private copy has bit 63 or bit 62 set and bit
# 61 unset. IN_FILE is bit 61 of entries shifted by SHIFT.
ENTRY_BYTES, SHIFT, IN_FILE = 8, np.uint64(61), np.uint64(1)


def release_pages(folder: Path) -> None:
    """Release the pages of a folder's mapped files, except mappings that were written to and so have private copies.

    After kernels have copied the weights of all products to their own layout, few of the pages are read, such as those
    of embedding tables. A page that is read again comes from the system's file cache. Does nothing on a system without
    /proc/self/pagemap.
    """
    with contextlib.suppress(OSError, AttributeError):
        advise = ctypes.CDLL(None).madvise
        with open("/proc/self/pagemap", "rb", buffering=0) as pages:  # noqa: PTH123
            for start, end in _mappings(folder):
                num_bytes = (end - start) // mmap.PAGESIZE * ENTRY_BYTES
                entries = os.pread(pages.fileno(), num_bytes, start // mmap.PAGESIZE * ENTRY_BYTES)
                if not has_copies(entries):
                    advise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_DONTNEED)


def has_copies(entries: bytes) -> bool:
    """Whether one of some pages is a private copy. entries: what /proc/self/pagemap holds for these pages."""
    states = np.frombuffer(entries, np.uint64) >> SHIFT  # 0: the page is nowhere yet
    return bool(((states != 0) & (states & IN_FILE == 0)).any())


def _mappings(folder: Path) -> list[tuple[int, int]]:
    """The address ranges [start, end) of a folder's mapped files. Raises OSError."""
    prefix = f" {folder.resolve()}{os.sep}"
    ranges = []
    for line in Path("/proc/self/maps").read_text("utf-8", errors="replace").splitlines():
        if prefix in line:
            start, _, end = line.partition(" ")[0].partition("-")
            ranges.append((int(start, 16), int(end, 16)))
    return ranges
