"""Writes a file atomically, and names the path of a failed write."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def naming(output: Path) -> Iterator[None]:
    """Make an error of the block that names no file name `output`. A write to a full disk raises such an error.

    Raises OSError.
    """
    try:
        yield
    except shutil.Error as error:  # of `copytree`, with the source, the copy and the reason for each file
        raise OSError(f"{output} cannot be written ({error.args[0][0][2]})") from error
    except OSError as error:
        if error.filename is not None:
            raise
        if error.errno is None:  # NumPy says only how many numbers it has written
            raise OSError(f"{output} cannot be written ({error})") from error
        raise OSError(error.errno, error.strerror, str(output)) from error


def write_file(output: Path, content: bytes) -> None:
    """Write the content to a hidden file beside `output`, then rename that file to `output`. Missing parents are made.

    A file keeps its mode, unless its mount refuses changes of a mode, as vfat may. If `output` is a symbolic link, the
    file to which it leads is replaced. So is the file to which /dev/stdout is redirected. A pipe or a device is written
    directly. After an error no hidden file is left. A killed process may leave `.NAME.PID.tmp`.
    Raises OSError that names a file.
    """
    with naming(output):
        _write_file(output, content)


def _write_file(output: Path, content: bytes) -> None:
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
