"""Writes a Safetensors file that has the mode of other new files."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor


def save_tensors(
    path: Path, tensors: Mapping[str, Tensor], *, metadata: dict[str, str] | None = None
) -> None:
    """Write contiguous tensors by name. An existing file keeps its mode, and a new one has that of the umask.

    `save_file` itself gives every file the mode 0600, which stays where a mount refuses changes of a mode. Raises
    OSError.
    """
    path.touch()
    mode = stat.S_IMODE(path.stat().st_mode)
    try:
        save_file(dict(tensors), path, metadata=metadata)
    except SafetensorError as error:  # such as a full disk
        raise OSError(f"{path.name}: {error}") from error
    with contextlib.suppress(PermissionError):
        path.chmod(mode)
