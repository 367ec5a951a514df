"""The journal of a long translation: finished texts are kept beside the output, so that the same command can resume.

The journal is a file of JSON lines. The first line identifies the file and the options. Each further line holds a
text's number and its translation. It is written as soon as its batch is translated. An incomplete last line is ignored.
Only its owner may read a new journal.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from transduce.errors import CommandError
from transduce.file_lock import open_locked

VERSION = 1
# The first bytes of every journal: its first line has sorted keys.
BEGINNING = b'{"file": "'


class Journal:
    """A context manager over the journal file. `done` maps text numbers to translations.

    Call `remove` after the output is written.
    """

    def __init__(self, output: Path, data: bytes, options: Mapping[str, object]) -> None:
        """data: the input file. options: JSON values on which its translations depend, such as the languages."""
        self.path = output.with_name(output.name + ".journal")
        self._head = {"journal": VERSION, "file": _digest(data), "options": _digest(_encoded(options))}
        self.done: dict[int, str] = {}
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        """Read the existing journal, or begin one. A journal of another file or of other options is overwritten.

        Until the end of the block no other run can write the journal.

        Raises OSError, and CommandError if the file is no journal or another run is writing it.
        """
        self._file = open_locked(self.path, mode=0o600)
        try:
            kept = self._read()
            self._file.truncate(kept)
            if not kept:
                self._write([self._head])
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the journal file and keep it."""
        if self._file is not None:
            self._file.close()

    def add(self, translations: Mapping[int, str]) -> None:
        """Append translations, by text number. Raises OSError."""
        self._write({"n": number, "text": text} for number, text in translations.items())
        self.done.update(translations)

    def remove(self) -> None:
        """Delete the journal file."""
        self.path.unlink(missing_ok=True)

    def _write(self, lines: Iterable[Mapping[str, object]]) -> None:
        if self._file is None:
            raise ValueError("the journal is not open")
        self._file.write(b"".join(_encoded(line) + b"\n" for line in lines))
        self._file.flush()

    def _read(self) -> int:
        """Load the entries of a journal with the same first line. Returns the number of bytes to keep.

        Raises OSError, and CommandError if the file is no journal.
        """
        content = self.path.read_bytes()
        if not content.startswith(BEGINNING[: len(content)]):  # an interrupted write may have left less
            raise CommandError(f"{self.path} is not a journal of `transduce translate`; move it away")
        lines = content.split(b"\n")[:-1]
        if not lines or _parsed(lines[0]) != self._head:
            return 0
        kept = len(lines[0]) + 1
        for line in lines[1:]:
            entry = _parsed(line)
            if (
                not isinstance(entry, dict)
                or not isinstance(entry.get("n"), int)
                or not isinstance(entry.get("text"), str)
            ):
                break
            self.done[entry["n"]] = entry["text"]
            kept += len(line) + 1
        return kept


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _encoded(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, sort_keys=True).encode("utf-8", "surrogatepass")


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None
