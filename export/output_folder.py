"""The folder of a new bundle: checks its place, and moves the complete bundle there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from app.bundle import MANIFEST, load_bundle
from model import output_folders
from model.file_lock import locked
from model.output_files import naming


class ExportError(ValueError):
    """The bundle cannot be made, for the reason in the message."""


def folder_behind(output: Path) -> Path:
    """The folder to write: `output`, or the folder to which a symbolic link `output` leads. The link itself stays.

    Raises ExportError for `.` and `..`, for a link to `/`, for a link that leads to itself, and if the current folder
    does not exist.
    """
    try:
        return output_folders.folder_behind(output)
    except ValueError as error:
        raise ExportError(str(error)) from error
    except OSError as error:
        raise ExportError(f"{output} cannot be resolved ({error.strerror})") from error


def is_new_or_empty(folder: Path) -> bool:
    """Whether the folder does not exist yet, or is empty."""
    return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))


def check_output(output: Path) -> Path:
    """The folder to replace, as `folder_behind` returns it.

    Raises ExportError as `folder_behind` does. Also raises it if the folder is neither new, empty nor a bundle, or if a
    parent is a file.
    """
    folder = folder_behind(output)
    if not is_new_or_empty(folder) and not (folder / MANIFEST).is_file():
        raise ExportError(f"{output} exists and is not a bundle: it is left as it is")
    parent = next(each for each in folder.parents if each.exists())
    if not parent.is_dir():
        raise ExportError(f"{parent} is not a folder")
    return folder


@contextmanager
def new_folder_beside(output: Path) -> Iterator[Path]:
    """Yield the path of a folder that the caller makes, and renames to `output`. Missing parents are made.

    The path is `.NAME.export.tmp` beside `output`. Until the block ends, a lock on `.NAME.export.lock` refuses a second
    export to `output`. On a file system without locks, two exports to `output` at the same time mix their files.

    A killed export may have left `.NAME.export.tmp` and `.NAME.export.old`. They are removed first, but if `output` is
    missing or empty, the old folder becomes `output` again. No other program may use these names.

    Raises ExportError if the parents cannot be made, if the lock file cannot be opened, and if a folder that is left
    cannot be removed. Raises LockedError if another export has the lock. Raises OSError that names a file or `output`.
    """
    new, lock = _hidden(output, "tmp"), _hidden(output, "lock")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExportError(f"{output.parent} cannot be made ({error.strerror})") from error
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(lock, output))
        except OSError as error:
            raise ExportError(f"{lock} cannot be opened ({error.strerror})") from error
        _finish_killed(output)
        try:
            with naming(output):
                yield new
        finally:
            shutil.rmtree(new, ignore_errors=True)


def publish_bundle(folder: Path, output: Path) -> None:
    """Check a new bundle, and replace `output` by it. Its files are readable for everyone, and flushed to the disk.

    Raises BundleError if it is no bundle, and as `replace_folder` does.
    """
    load_bundle(folder)
    make_readable(folder)
    sync_folder(folder)
    replace_folder(folder, output)


def make_readable(folder: Path) -> None:
    """Make a folder and its files readable for everyone, so that a server of another user can serve the bundle."""
    for path in [*folder.rglob("*"), folder]:
        path.chmod(0o755 if path.is_dir() else 0o644)


def sync_folder(folder: Path) -> None:
    """Flush a folder and its files to the disk, before the rename makes the folder visible."""
    for path in [*sorted(folder.rglob("*")), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def replace_folder(temporary: Path, output: Path) -> None:
    """Replace the old folder with the new one. If that fails, the old one is restored. output: no symbolic link.

    If the process is killed between the two renames, the old folder is `.NAME.export.old`. It gets the name `temporary`
    before it is removed, so that `.NAME.export.old` always has all its files.
    """
    if not output.exists():
        temporary.replace(output)
        return
    old = _hidden(output, "old")
    output.replace(old)
    try:
        temporary.replace(output)
    except BaseException:  # also Ctrl-C
        old.replace(output)
        raise
    old.replace(temporary)
    shutil.rmtree(temporary)


def _finish_killed(output: Path) -> None:
    """Remove the folders that a killed export has left. If `output` is missing or empty, the old one becomes `output`.

    Raises ExportError if a folder cannot be removed.
    """
    new, old = _hidden(output, "tmp"), _hidden(output, "old")
    if old.exists() and is_new_or_empty(output):
        old.replace(output)
    try:
        if new.exists():
            shutil.rmtree(new)
        if old.exists():
            old.replace(new)  # as in `replace_folder`
            shutil.rmtree(new)
    except OSError as error:
        left = new if new.exists() else old
        message = f"{left} is left by a killed export and cannot be removed ({error.strerror})"
        raise ExportError(message) from error


def _hidden(output: Path, kind: str) -> Path:
    return output.with_name(f".{output.name}.export.{kind}")
