"""The output of a long run, which the same command resumes after an interruption.

`OUTPUT.part` has one line for each sentence so far. The line of a sentence without a translation is empty.
`OUTPUT.part.json` identifies the run. At the end the lines that are not empty become OUTPUT, compressed according to
its suffix, and both files are deleted.
"""

from __future__ import annotations

import gzip
import json
import lzma
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self, cast

from transduce.errors import CommandError
from transduce.file_lock import open_locked
from transduce.translate_output import check_folder


class ResumableOutput:
    """The unfinished output of a run, as a context manager. It has the lines of the first `num_done` sentences.

    has_lines: whether an earlier run has written a translation.
    """

    def __init__(self, path: Path, key: Mapping[str, object], *, batch_size: int) -> None:
        """key: JSON values that determine the lines. batch_size: sentences that are written together."""
        self._path, self._key, self._batch_size = path, json.loads(json.dumps(key)), batch_size
        self._part = path.with_name(f"{path.name}.part")
        self._head = path.with_name(f"{path.name}.part.json")
        self.num_done = 0
        self.has_lines = False
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        """Open the file, lock it against other runs, and keep the complete batches of an earlier run.

        Raises:
            CommandError: the earlier run had other options, or another run is writing the file now; also as in
                `check_output`.
            OSError: a file cannot be written.
        """
        self._file = open_locked(self._part, mode=0o666)
        try:
            self._check_output()
            self._file.truncate(self._resume_or_begin())
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close `OUTPUT.part`. It is kept if the run is not finished."""
        if self._file is not None:
            self._file.close()

    def write(self, lines: Iterable[str]) -> None:
        """Append the lines of a batch, empty ones for sentences without a translation. Raises OSError."""
        if self._file is None:
            raise ValueError("the output is not open")
        content = [line.encode("utf-8") + b"\n" for line in lines]
        self._file.write(b"".join(content))
        self._file.flush()
        self.num_done += len(content)

    def finish(self) -> int:
        """Write the non-empty lines to the output, delete the two files, and return the number of lines.

        Raises OSError.
        """
        temporary = self._path.with_name(f".{self._path.name}.tmp")
        count = 0
        try:
            with self._part.open("rb") as lines, _opened(temporary, self._path.suffix) as output:
                for line in lines:
                    if line != b"\n":
                        output.write(line)
                        count += 1
            temporary.replace(self._path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        self._head.unlink()
        self._part.unlink()  # deleted last, because its lock keeps other runs away until then
        return count

    def _check_output(self) -> None:
        """Raise CommandError as `check_output`, for instance if another run has finished just before the lock.

        Then `OUTPUT.part` is deleted if it is empty, because `open_locked` may have made it.
        """
        try:
            check_output(self._path)
        except CommandError:
            if not self._part.stat().st_size:
                self._part.unlink()
            raise

    def _resume_or_begin(self) -> int:
        """The size in bytes of the lines to keep. Writes the head of a new run. Raises CommandError, OSError."""
        if self._head.exists():
            self._check_head()
            return self._count_complete_batches()
        self._head.write_text(json.dumps(self._key, indent=1, ensure_ascii=False) + "\n", "utf-8")
        return 0

    def _check_head(self) -> None:
        """Raise CommandError if the earlier run had other options."""
        try:
            earlier = json.loads(self._head.read_text("utf-8"))
        except ValueError:
            earlier = {}
        if not isinstance(earlier, dict) or earlier != self._key:
            known = earlier if isinstance(earlier, dict) else {}
            changed = [name for name in self._key if known.get(name) != self._key[name]]
            raise CommandError(
                f"{self._part} belongs to a run with another {', '.join(changed) or 'command'}; "
                f"delete it and {self._head.name} to start again"
            )

    def _count_complete_batches(self) -> int:
        """The size in bytes of the complete batches; sets `num_done` and `has_lines`.

        A killed run may leave an incomplete batch.
        """
        end = position = count = 0
        with self._part.open("rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                position += len(line)
                count += 1
                self.has_lines |= line != b"\n"
                if count % self._batch_size == 0:
                    end, self.num_done = position, count
        return end


def check_output(path: Path) -> None:
    """Raise CommandError if the output is not named as a TSV file, exists already, or as in `check_folder`."""
    if not path.name.endswith((".tsv", ".tsv.gz", ".tsv.xz")):
        raise CommandError(f"{path} does not end with .tsv, .tsv.gz or .tsv.xz")
    if os.path.lexists(path):
        raise CommandError(f"{path} exists already")
    check_folder(path.parent)


def _opened(path: Path, suffix: str) -> IO[bytes]:
    """Open a file for writing, compressed for the suffixes .gz and .xz."""
    if suffix == ".gz":
        return cast(IO[bytes], gzip.open(path, "wb"))
    if suffix == ".xz":
        return lzma.open(path, "wb", preset=2)
    return path.open("wb")
