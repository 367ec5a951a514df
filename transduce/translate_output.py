"""Where a command writes its output file. The path is checked before the work, and replaced at its end."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from transduce.errors import CommandError


def output_file(path: Path) -> Path:
    """The file to write for this path, with symbolic links resolved.

    Raises:
        CommandError: the path is not that of a regular file, or as in `check_folder`.
    """
    resolved = Path(os.path.realpath(path))
    if resolved.is_dir():
        raise CommandError(f"{path} is a folder")
    # If the resolved path is still a symbolic link, the links form a loop.
    if resolved.is_symlink() or (path.exists() and not path.is_file()):
        raise CommandError(f"{path} is not a regular file; without -o the translation goes to stdout")
    check_folder(resolved.parent)
    return resolved


def check_folder(folder: Path) -> None:
    """Raise CommandError unless files can be created in the folder."""
    if not folder.is_dir():
        raise CommandError(f"the folder {folder} does not exist")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise CommandError(f"the folder {folder} is not writable")


def write_output(output: Path | None, content: bytes) -> None:
    """Write the content to stdout, or to a file completely or not at all. A file keeps its mode. Raises OSError.

    output: as `output_file` returns it, or None for stdout.
    """
    if output is None:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    handle, name = tempfile.mkstemp(dir=output.parent, prefix=f".{output.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).chmod(_mode_of(output))
        Path(name).replace(output)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _mode_of(path: Path) -> int:
    """The permissions of the file; those of a new file if there is none."""
    try:
        return path.stat().st_mode & 0o777
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
