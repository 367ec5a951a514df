"""A lock that keeps two runs from writing the same files. The operating system frees it when the run's process ends.

Some network file systems have no locks. There the runs go on without one.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

NO_LOCKS = frozenset({errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK})


class LockedError(ValueError):
    """Another run has the lock."""


@contextmanager
def locked(path: Path, output: Path) -> Iterator[None]:
    """Make and lock the file `path` for the block, then remove it. The file of a killed run is used again.

    output: what the run writes, for the message. Raises LockedError if another run has the lock, and OSError.
    """
    with _locked_file(path, output):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _lock(file: IO[bytes], output: Path) -> None:
    """Lock an open file until it is closed. output: what the run writes, for the message. Raises as `locked`."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise LockedError(f"another run is writing {output}") from error
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise


def _locked_file(path: Path, output: Path) -> IO[bytes]:
    """The locked file. Raises as `locked`."""
    while True:
        file = path.open("ab")
        try:
            _lock(file, output)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except FileNotFoundError:
            pass
        except BaseException:
            file.close()
            raise
        file.close()  # the run that had the lock has removed this file
