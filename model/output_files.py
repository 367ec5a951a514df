"""Writes a file so that it is complete, or as it was before."""

from __future__ import annotations

import os
from pathlib import Path


def write_file(output: Path, content: bytes) -> None:
    """Write the content to a hidden file beside `output`, then rename that file to `output`. Missing parents are made.

    If `output` is a symbolic link, the file to which it leads is replaced. What is no file, such as /dev/stdout, is
    written directly. After an error no hidden file is left. A killed process may leave `.NAME.PID.tmp`.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    if output.exists() and not output.is_file():
        output.write_bytes(content)
        return
    target = Path(os.path.realpath(output))
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
