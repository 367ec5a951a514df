"""A lock that keeps two runs of a command from writing the same file. The operating system frees it when a run ends.

Some network file systems have no locks. There the runs go on without one.

`model.file_lock` has such a lock, too. `transduce translate` may not import `model` (the contract
`translate-reads-files` in pyproject.toml).
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import IO

from transduce.errors import CommandError

NO_LOCKS = frozenset({errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK})


def open_locked(path: Path, *, mode: int) -> IO[bytes]:
    """Open a file for appending, and lock it until it is closed. mode: the permissions of a new file.

    A run that has the lock may remove the file. Raises OSError, and CommandError if another run has the lock.
    """
    while True:
        file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, mode), "ab")
        try:
            _lock(file, path)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except FileNotFoundError:
            pass
        except BaseException:
            file.close()
            raise
        file.close()  # the run that had the lock has removed this file


def _lock(file: IO[bytes], path: Path) -> None:
    """Lock an open file until it is closed. Raises as `open_locked`."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise CommandError(f"another run is writing {path}") from error
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
