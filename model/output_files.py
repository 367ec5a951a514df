"""Writes a file atomically."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path


def write_file(output: Path, content: bytes) -> None:
    """Write the content to a hidden file beside `output`, then rename that file to `output`. Missing parents are made.

    A file keeps its mode, unless its mount refuses changes of a mode, as vfat may. If `output` is a symbolic link, the
    file to which it leads is replaced. So is the file to which /dev/stdout is redirected. A pipe or a device is written
    directly. After an error no hidden file is left. A killed process may leave `.NAME.PID.tmp`.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    if output.exists() and not output.is_file():
        output.write_bytes(content)
        return
    target = Path(os.path.realpath(output))
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    is_new = not target.exists()
    try:
        temporary.touch(0o666 if is_new else 0o600)
        temporary.write_bytes(content)
        if not is_new:
            with contextlib.suppress(PermissionError):
                shutil.copymode(target, temporary)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
