"""Writes parallel text to a folder of compressed TSV files, the shards. A complete folder is renamed into place."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import shutil
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, Self, cast

from model.corpus import CorpusError, Pair
from model.file_lock import locked
from model.output_folders import folder_behind

Compression = Literal["gz", "xz"]


class ShardWriter:
    """Writes `part-00000.tsv.gz` and so on into a folder. Use it as a context manager.

    The folder has a temporary name until the `with` block ends without an error. An error in the block, or in closing
    the files at its end, removes the temporary folder. After a killed run, the next run removes it. If the folder
    cannot be renamed, it keeps its temporary name, and the error names it. The same pairs give the same bytes.
    """

    def __init__(self, folder: Path, *, pairs_per_shard: int, compression: Compression = "gz") -> None:
        """Raises CorpusError if `folder` is a file, not empty, a mount point, `.` or `..`, or if a link loops."""
        if folder.name in ("", ".."):
            raise CorpusError(f"{folder} cannot be replaced; name a new folder")
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise CorpusError(f"{folder} exists and is not an empty folder; name a new folder")
        try:
            folder = folder_behind(folder)
        except ValueError as error:
            raise CorpusError(str(error)) from error
        if os.path.ismount(folder):
            raise CorpusError(f"{folder} is a mount point and cannot be replaced; name a new folder in it")
        self._folder, self._pairs_per_shard, self._compression = folder, pairs_per_shard, compression
        self._temporary = folder.with_name(f".{folder.name}.tmp")
        self._lock = ExitStack()
        self._stack = ExitStack()
        self._file: IO[str] | None = None
        self._count = 0
        self.shard_names: list[str] = []

    def __enter__(self) -> Self:
        """Make the folder under its temporary name, and remove the files of a killed run.

        Raises LockedError if another run writes the folder, and OSError.
        """
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as lock:
            lock.enter_context(locked(self._folder.with_name(f".{self._folder.name}.lock"), self._folder))
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary.mkdir()
            self._lock = lock.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        is_complete = False
        with self._lock:
            try:
                self._stack.close()
                is_complete = error is None
            finally:  # if the disk is full, closing the files fails, too
                if not is_complete:
                    shutil.rmtree(self._temporary, ignore_errors=True)
            if is_complete:
                self._rename()

    def _rename(self) -> None:
        """Give the complete folder its name. Raises CorpusError."""
        try:
            if self._folder.exists():
                self._folder.rmdir()
            self._temporary.replace(self._folder)
        except OSError as error:
            raise CorpusError(
                f"{self._folder} cannot be replaced ({error.strerror}); the shards are in {self._temporary}"
            ) from error

    def write(self, pairs: Iterable[Pair]) -> None:
        """Append pairs as lines of domain, source and target. Raises OSError."""
        for pair in pairs:
            if self._file is None or self._count % self._pairs_per_shard == 0:
                self._file = self._next_file()
            self._file.write(f"{pair.domain}\t{pair.source}\t{pair.target}\n")
            self._count += 1

    def write_file(self, name: str, content: str) -> None:
        """Write a further file into the folder. Raises OSError."""
        (self._temporary / name).write_text(content, "utf-8")

    def _next_file(self) -> IO[str]:
        """Close the shard that is open and open the next one."""
        self._stack.close()
        name = f"part-{len(self.shard_names):05}.tsv.{self._compression}"
        self.shard_names.append(name)
        raw = self._stack.enter_context((self._temporary / name).open("wb"))
        packed: IO[bytes]
        if self._compression == "gz":
            # The gzip header has no name and no time, so that equal pairs give equal bytes.
            packed = cast(IO[bytes], gzip.GzipFile("", "wb", 6, raw, mtime=0))
        else:
            packed = lzma.open(raw, "wb", preset=2)  # noqa: SIM115 - closed by the stack
        self._stack.enter_context(packed)
        return self._stack.enter_context(io.TextIOWrapper(packed, "utf-8", newline="\n"))
