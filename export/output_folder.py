"""The folder of a new bundle: checks its place, and moves the complete bundle there."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.bundle import MANIFEST
from model import output_folders


class ExportError(ValueError):
    """The bundle cannot be made, for the reason in the message."""


def folder_behind(output: Path) -> Path:
    """The folder to write: `output`, or the folder to which a symbolic link `output` leads. The link itself stays.

    Raises ExportError for `.` and `..`, for a link that leads to itself, and if the current folder does not exist.
    """
    try:
        return output_folders.folder_behind(output)
    except ValueError as error:
        raise ExportError(str(error)) from error
    except OSError as error:
        raise ExportError(f"{output} cannot be resolved ({error.strerror})") from error


def check_output(output: Path) -> Path:
    """The folder to replace, as `folder_behind` returns it.

    Raises ExportError as `folder_behind` does. Also raises it if the folder is neither new, empty nor a bundle, or if a
    parent is a file.
    """
    folder = folder_behind(output)
    if (
        folder.exists()
        and not (folder / MANIFEST).is_file()
        and (not folder.is_dir() or any(folder.iterdir()))
    ):
        raise ExportError(f"{output} exists and is not a bundle: it is left as it is")
    parent = next(each for each in folder.parents if each.exists())
    if not parent.is_dir():
        raise ExportError(f"{parent} is not a folder")
    return folder


@contextmanager
def new_folder_beside(output: Path) -> Iterator[Path]:
    """Yield the path of a folder that the caller makes, and renames to `output`. Missing parents are made.

    The path is in a hidden folder `.NAME.RANDOM` beside `output`, so two exports to one output never share it. The
    hidden folder is removed at the end. Only a killed process leaves it.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.parent) as hidden:
        yield Path(hidden) / output.name


def sync_folder(folder: Path) -> None:
    """Make all files readable for everyone and flush them to the disk, before the rename makes the folder visible."""
    for path in [*sorted(folder.rglob("*")), folder]:
        path.chmod(0o755 if path.is_dir() else 0o644)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def replace_folder(temporary: Path, output: Path) -> None:
    """Replace the old folder with the new one. If that fails, the old one is restored. output: no symbolic link.

    If the process is killed meanwhile, the old folder is `.NAME.RANDOM.old`.
    """
    if not output.exists():
        temporary.replace(output)
        return
    old = output.with_name(f".{output.name}.{secrets.token_hex(4)}.old")
    output.replace(old)
    try:
        temporary.replace(output)
    except BaseException:  # also Ctrl-C
        old.replace(output)
        raise
    shutil.rmtree(old)
