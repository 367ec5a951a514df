"""A temporary folder that a process holds a lock on, so that others see whether its owner still runs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path


class LockedFolder:
    """A new folder that only this user may read. The lock is the process's: it ends with it, however it ends."""

    def __init__(self, prefix: str) -> None:
        """Make it. Raises OSError."""
        handle = None
        while handle is None:  # one that another process has removed before it was locked is made anew
            self.path = Path(tempfile.mkdtemp(prefix=prefix))
            handle = _locked(self.path)
        self._handle = handle

    def remove(self) -> None:
        """Remove it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._handle)


def remove_left_folders(prefix: str) -> int:
    """Remove this user's folders whose owners have ended, and return how many there were."""
    num_removed = 0
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            if path.lstat().st_uid != os.geteuid() or (handle := _locked(path)) is None:
                continue
            shutil.rmtree(path, ignore_errors=True)
            os.close(handle)
            num_removed += 1
    return num_removed


def _locked(path: Path) -> int | None:
    """A descriptor that holds the folder's lock; None where another process does, or where the folder is gone."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.exists():
            return handle
    except OSError:
        pass
    os.close(handle)
    return None
