"""A temporary folder that its process locks. The lock shows other processes whether that process still runs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path


class LockedFolder:
    """A new folder that only this user may read. The operating system frees the lock when the process ends."""

    def __init__(self, prefix: str) -> None:
        """Create the folder. Raises OSError."""
        handle = None
        while handle is None:  # another process may remove it before it is locked
            self.path = Path(tempfile.mkdtemp(prefix=prefix))
            try:
                handle = _try_lock(self.path)
            except OSError:
                self.path.rmdir()
                raise
        self._handle = handle

    def remove(self) -> None:
        """Remove the folder and its contents."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._handle)


def remove_abandoned_folders(prefix: str) -> int:
    """Remove this user's folders with this prefix whose processes have ended. Returns how many were removed."""
    num_removed = 0
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            if path.lstat().st_uid != os.geteuid() or (handle := _try_lock(path)) is None:
                continue
            shutil.rmtree(path, ignore_errors=True)
            os.close(handle)
            num_removed += 1
    return num_removed


def _try_lock(path: Path) -> int | None:
    """A file descriptor that holds the folder's lock; None if another process has the lock or the folder is removed.

    Raises OSError if the folder cannot be opened or locked, for example without a free file descriptor.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    is_locked = False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_locked = path.exists()
    except BlockingIOError:
        pass
    finally:
        if not is_locked:
            os.close(handle)
    return handle if is_locked else None
