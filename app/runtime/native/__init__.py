"""Where the library of native operators is, and whether this processor can run it (docs/native-kernels.md).

It is optional: built where there is a C++ compiler when the package is installed.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path


def library_path() -> Path | None:
    """The library's file; None where it was not built."""
    return next(iter(sorted(Path(__file__).parent.glob("_kernels.*so"))), None)


@cache
def _library() -> ctypes.CDLL | None:
    path = library_path()
    return None if path is None else ctypes.CDLL(str(path))


def is_supported() -> bool:
    """Whether the library is there and this processor has the instructions that it is made of."""
    library = _library()
    return library is not None and bool(library.transduce_is_supported())


def set_num_threads(num_threads: int) -> None:
    """Threads that share an operator's work, the caller's among them; for the whole process. At least 1."""
    library = _library()
    if library is not None:
        library.transduce_set_num_threads(num_threads)
