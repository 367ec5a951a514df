"""The arrays of the language detector's model, in files of the environment from which each process maps them.

    python -m app.text.detector_arrays

py3langid has its model as one packed file. Unpacking it takes a third of a second of each start, and 60 MB of memory.
This command unpacks it once, when an environment is built. Of the two large arrays (`ptc`, `nextmove`), a process then
reads only the parts that its texts need. If a file is missing or truncated, each process unpacks the model itself, with
the same results.
"""

from __future__ import annotations

import io
import lzma
import shutil
import sys
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

NAMES = ("ptc", "pc", "classes", "nextmove", "nextmove_row", "out_feat")
# Bytes unpacked at a time. If smaller, the thread waits for the GIL more often. If larger, unpacking takes more memory.
PIECE_BYTES = 4_000_000


def folder_of_environment() -> Path:
    """The folder of the files. Another version of py3langid has another folder."""
    return Path(sys.prefix) / "share" / "transduce" / f"py3langid-{metadata.version('py3langid')}"


def read_arrays(folder: Path) -> Mapping[str, Any]:
    """The model's arrays by name: mapped from `folder`, or unpacked if a file cannot be mapped."""
    import numpy as np

    try:
        return {name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in NAMES}
    except (OSError, ValueError, EOFError):  # EOFError: an empty file
        return unpack()


def unpack() -> Mapping[str, Any]:
    """The model's arrays by name, from py3langid's file. Raises EOFError if the file is truncated.

    The file is unpacked in memory, in large pieces. py3langid's own reader writes 68 MB to a temporary file, in small
    pieces. But /tmp may have less space, and after each piece this thread waits for the GIL while other threads load
    the rest of the server.
    """
    import numpy as np
    from py3langid import langid  # type: ignore[import-untyped]

    decompressor, unpacked = lzma.LZMADecompressor(), io.BytesIO()
    packed = (langid.MODEL_DIR / langid.MODEL_FILE).read_bytes()
    unpacked.write(decompressor.decompress(packed, max_length=PIECE_BYTES))
    while not decompressor.eof:
        if decompressor.needs_input:
            raise EOFError("py3langid's model file is truncated")
        unpacked.write(decompressor.decompress(b"", max_length=PIECE_BYTES))
    unpacked.seek(0)
    arrays: Mapping[str, Any] = np.load(unpacked, allow_pickle=False)
    return arrays


def write_arrays(folder: Path) -> None:
    """Unpack the model into `folder`, which is replaced. Raises OSError."""
    import numpy as np

    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        temporary.chmod(0o755)  # other users may run the server
        arrays = unpack()
        for name in NAMES:
            np.save(temporary / f"{name}.npy", arrays[name], allow_pickle=False)
        shutil.rmtree(folder, ignore_errors=True)
        temporary.replace(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


if __name__ == "__main__":
    write_arrays(folder_of_environment())
