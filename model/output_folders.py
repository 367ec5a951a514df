"""The folder that a command replaces when its output is complete."""

from __future__ import annotations

import os
from pathlib import Path


def folder_behind(output: Path) -> Path:
    """The folder to write. For a symbolic link, this is the folder that it leads to, so that the link stays.

    Raises ValueError for `.` and `..`, for a link to `/`, and for a link that leads to itself. Raises OSError if the
    current folder does not exist.
    """
    # Not Path.resolve, which raises an error for a loop only before Python 3.13.
    folder = Path(os.path.realpath(output))
    if output.name in ("", "..") or not folder.name:
        raise ValueError(f"{output} cannot be replaced: name another folder")
    if loop := next((each for each in (folder, *folder.parents) if each.is_symlink()), None):
        raise ValueError(f"{output} cannot be resolved: the symbolic link {loop} leads to itself")
    return folder
