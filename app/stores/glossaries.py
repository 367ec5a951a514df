"""Stores glossaries in SQLite, each visible to its owner only, and reads and writes their text formats.

A glossary is immutable. To change one, create another and delete the first.
"""

from __future__ import annotations

import csv
import io
import logging
import sqlite3
import threading
import time
import uuid
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path

from app.observability.logging import log_event
from app.stores.private_file import UnusableFile, create_private, uri_of
from app.stores.sqlite_errors import sqlite_error_name
from app.text.control_characters import control_character_problem
from app.text.glossary import Glossary, Term
from app.text.language_codes import base_language

logger = logging.getLogger("app.glossaries")
# Seconds to wait for another process's lock. If larger, a request hangs for longer. If smaller, requests fail under
# load.
_BUSY_TIMEOUT_S = 5.0
# Version of the tables below, stored as SQLite's user_version.
_FORMAT = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS glossaries (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, name TEXT NOT NULL, source_language TEXT NOT NULL,
    target_language TEXT NOT NULL, created_at_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS glossaries_by_owner ON glossaries (owner, created_at_ms);
CREATE TABLE IF NOT EXISTS terms (
    glossary_id TEXT NOT NULL REFERENCES glossaries (id) ON DELETE CASCADE,
    place INTEGER NOT NULL, source TEXT NOT NULL, target TEXT NOT NULL,
    PRIMARY KEY (glossary_id, place)
) STRICT, WITHOUT ROWID;
"""
_COLUMNS = (
    "id, name, source_language, target_language, created_at_ms, "
    "(SELECT COUNT(*) FROM terms WHERE glossary_id = glossaries.id)"
)


class EntriesFormat(Enum):
    """Format of entries. TSV: a line has a term, a tab and the translation. CSV: comma-separated values."""

    TSV = "tsv"
    CSV = "csv"


class EntriesError(ValueError):
    """Entries or a name that cannot be used. problems: messages, one for each bad line, without the line's content."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class GlossaryNotFound(LookupError):
    """The owner has no glossary with this id."""


class GlossaryStoreFull(Exception):
    """The owner has the maximum number of glossaries."""


class GlossaryStoreError(Exception):
    """The file cannot be read or written. For example, it is no database, it is locked, or the disk is full."""


@dataclass(frozen=True)
class GlossaryLimits:
    """Limits of one store. Lengths are code points.

    max_glossaries: maximum number of glossaries of one owner. max_problems: maximum number of problems that one error
    reports. max_cached: maximum number of glossaries that are kept in memory for lookups.
    """

    max_glossaries: int = 1000
    max_terms: int = 10_000
    max_term_length: int = 512
    max_name_length: int = 256
    max_problems: int = 20
    max_cached: int = 16


@dataclass(frozen=True)
class StoredGlossary:
    """A glossary without its terms. Languages are codes of served languages, such as `de` or `pt-BR`."""

    glossary_id: str
    name: str
    source_language: str
    target_language: str
    created_at: datetime
    num_terms: int


def parse_entries(
    text: str, entries_format: EntriesFormat, languages: tuple[str, str], limits: GlossaryLimits
) -> tuple[Term, ...]:
    """Return the terms of a text with one entry on each line. Blank lines are ignored.

    languages: the codes of the source and the target. CSV may name them in columns three and four. Raises EntriesError
    with all problems, up to `limits.max_problems`; if there are too many terms, with this problem only.
    """
    problems: list[str] = []
    terms: list[Term] = []
    first_lines: dict[str, int] = {}
    for line, columns in _rows(text, entries_format, problems):
        problem = _problem(columns, entries_format, languages, limits)
        if problem is None:
            term = Term(columns[0].strip(), columns[1].strip())
            first_line = first_lines.setdefault(term.source, line)
            if first_line == line:
                terms.append(term)
                if len(terms) > limits.max_terms:
                    raise EntriesError([f"entries: more than {limits.max_terms}"])
                continue
            problem = f"it repeats the term of line {first_line}"
        problems.append(f"line {line}: {problem}")
        if len(problems) >= limits.max_problems:
            break
    if not terms and not problems:
        problems.append("entries: there are none")
    if problems:
        raise EntriesError(problems)
    return tuple(terms)


def _rows(text: str, entries_format: EntriesFormat, problems: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the last line, and the columns, of every entry that is not blank.

    If a line cannot be read as CSV, adds this to `problems` and ends.
    """
    if entries_format is EntriesFormat.TSV:
        for line, content in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
            if content.strip():
                yield line, content.split("\t")
        return
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    try:
        for columns in reader:
            if any(column.strip() for column in columns):
                yield reader.line_num, columns
    except csv.Error as error:
        problems.append(f"line {reader.line_num}: not comma-separated values ({error})")


def _problem(
    columns: Sequence[str], entries_format: EntriesFormat, languages: tuple[str, str], limits: GlossaryLimits
) -> str | None:
    """Return what is wrong with an entry; None if it is valid."""
    is_tsv = entries_format is EntriesFormat.TSV
    allowed, separator = ((2,), "tabs") if is_tsv else ((2, 4), "commas")
    if len(columns) not in allowed:
        return f"{len(columns)} columns between {separator}, not {' or '.join(map(str, allowed))}"
    for number, (column, language) in enumerate(zip(columns[2:], languages, strict=False), start=3):
        if column.strip() and base_language(column.strip().replace("_", "-")) != base_language(language):
            return f"column {number} names another language than {base_language(language)}"
    for name, value in (("term", columns[0].strip()), ("translation", columns[1].strip())):
        problem = term_problem(value, limits.max_term_length)
        if problem is not None:
            return f"the {name} {problem}"
    return None


def term_problem(text: str, max_length: int) -> str | None:
    """Return what is wrong with a term or a translation, as a predicate; None if it is valid.

    text: without white space at its ends. max_length: in code points.
    """
    if not text:
        return "is empty"
    if len(text) > max_length:
        return f"has {len(text)} characters, more than {max_length}"
    return control_character_problem(text)


def format_tsv(terms: Sequence[Term]) -> str:
    """Return the terms as tab-separated lines."""
    return "".join(f"{term.source}\t{term.target}\n" for term in terms)


class GlossaryStore:
    """Glossaries in a file or in memory. Any thread may call any method.

    Every method takes an owner and handles only that owner's glossaries. Every method raises GlossaryStoreError if the
    file cannot be read or written, and logs why.
    """

    def __init__(self, path: Path | None, limits: GlossaryLimits | None = None) -> None:
        """path: a file; if it is missing, it is created with mode 0600. With None the store is only in memory.

        Raises GlossaryStoreError.
        """
        self._path = path
        self.limits = limits or GlossaryLimits()
        self._cached: OrderedDict[tuple[str, str], tuple[StoredGlossary, Glossary]] = OrderedDict()
        self._lock = threading.Lock()
        self._memory: sqlite3.Connection | None = None
        if path is None:
            self._memory = sqlite3.connect(":memory:", check_same_thread=False)
            weakref.finalize(self, self._memory.close)
        if path is not None:
            try:
                create_private(path)
            except UnusableFile as error:
                raise GlossaryStoreError(str(error)) from error
        with self._connected() as connection:
            if path is not None:
                connection.execute("PRAGMA journal_mode = WAL")
            (stored_format,) = connection.execute("PRAGMA user_version").fetchone()
            if stored_format not in {0, _FORMAT}:
                raise GlossaryStoreError(f"the glossary store has format {stored_format}, not {_FORMAT}")
            if not stored_format:  # else nothing is written here, so another process's lock does not matter
                connection.executescript(f"{_SCHEMA} PRAGMA user_version = {_FORMAT};")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Run one transaction, which is rolled back if the body raises. Raises GlossaryStoreError, after logging it."""
        try:
            with self._connected() as connection:
                yield connection
        except GlossaryStoreError as error:
            log_event(logger, logging.ERROR, "glossary_store_failed", fields={"problem": str(error)})
            raise

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """Do as `_transaction`, without the log.

        Only the store in memory takes the lock here, because each transaction on a file opens a connection of its own.
        """
        try:
            if self._memory is not None:
                with self._lock, self._memory:
                    self._memory.execute("PRAGMA foreign_keys = ON")
                    yield self._memory
                return
            assert self._path is not None
            with (
                closing(sqlite3.connect(uri_of(self._path), timeout=_BUSY_TIMEOUT_S, uri=True)) as connection,
                connection,
            ):
                connection.execute("PRAGMA foreign_keys = ON")
                yield connection
        except sqlite3.Error as error:
            raise GlossaryStoreError(f"the glossary store failed: {sqlite_error_name(error)}") from error

    def create(
        self, owner: str, name: str, languages: tuple[str, str], terms: Sequence[Term]
    ) -> StoredGlossary:
        """Store a new glossary. languages: codes of source and target.

        Raises EntriesError if the length of the name or the number of terms is not allowed, and GlossaryStoreFull.
        """
        name = name.strip()
        if not 1 <= len(name) <= self.limits.max_name_length:
            raise EntriesError([f"name: {len(name)} characters, not 1 to {self.limits.max_name_length}"])
        if not 1 <= len(terms) <= self.limits.max_terms:
            raise EntriesError([f"entries: {len(terms)}, not 1 to {self.limits.max_terms}"])
        glossary_id = str(uuid.uuid4())
        with self._transaction() as connection:
            connection.execute("BEGIN IMMEDIATE")
            (count,) = connection.execute(
                "SELECT COUNT(*) FROM glossaries WHERE owner = ?", (owner,)
            ).fetchone()
            if count >= self.limits.max_glossaries:
                raise GlossaryStoreFull(f"there are {count} glossaries, as many as may be kept")
            created_at_ms = int(time.time() * 1000)
            connection.execute(
                "INSERT INTO glossaries VALUES (?, ?, ?, ?, ?, ?)",
                (glossary_id, owner, name, *languages, created_at_ms),
            )
            connection.executemany(
                "INSERT INTO terms VALUES (?, ?, ?, ?)",
                ((glossary_id, place, term.source, term.target) for place, term in enumerate(terms)),
            )
        return _stored((glossary_id, name, *languages, created_at_ms, len(terms)))

    def list(self, owner: str) -> list[StoredGlossary]:
        """Return all glossaries of an owner, the oldest first."""
        with self._transaction() as connection:
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM glossaries WHERE owner = ? ORDER BY created_at_ms, rowid",  # noqa: S608
                (owner,),
            )
            return [_stored(row) for row in rows]

    def get(self, owner: str, glossary_id: str) -> StoredGlossary:
        """Return one glossary. Raises GlossaryNotFound."""
        with self._transaction() as connection:
            row = connection.execute(
                f"SELECT {_COLUMNS} FROM glossaries WHERE id = ? AND owner = ?",  # noqa: S608
                (glossary_id, owner),
            ).fetchone()
        if row is None:
            raise GlossaryNotFound("there is no glossary with this id")
        return _stored(row)

    def entries(self, owner: str, glossary_id: str) -> tuple[Term, ...]:
        """Return the terms of a glossary in their original order. Raises GlossaryNotFound."""
        with self._transaction() as connection:
            rows = connection.execute(
                "SELECT terms.source, terms.target FROM terms JOIN glossaries ON id = glossary_id "
                "WHERE id = ? AND owner = ? ORDER BY place",
                (glossary_id, owner),
            ).fetchall()
        if not rows:
            raise GlossaryNotFound("there is no glossary with this id")
        return tuple(Term(source, target) for source, target in rows)

    def delete(self, owner: str, glossary_id: str) -> None:
        """Delete a glossary. Raises GlossaryNotFound."""
        with self._transaction() as connection:
            deleted = connection.execute(
                "DELETE FROM glossaries WHERE id = ? AND owner = ?", (glossary_id, owner)
            ).rowcount
        with self._lock:
            self._cached.pop((owner, glossary_id), None)
        if not deleted:
            raise GlossaryNotFound("there is no glossary with this id")

    def load(self, owner: str, glossary_id: str) -> tuple[StoredGlossary, Glossary]:
        """Return a glossary, compiled for lookups. Raises GlossaryNotFound.

        The most recently used glossaries are cached. The file is still read each time, because another process may have
        deleted the glossary. While the file cannot be read, a cached glossary is returned.
        """
        key = (owner, glossary_id)
        with self._lock:
            loaded = self._cached.get(key)
        if loaded is None:
            stored = self.get(owner, glossary_id)
            loaded = stored, Glossary(self.entries(owner, glossary_id), stored.source_language)
        with self._lock:
            self._cached[key] = loaded
            self._cached.move_to_end(key)
            while len(self._cached) > self.limits.max_cached:
                self._cached.popitem(last=False)
        try:
            # After the caching: if the glossary is deleted meanwhile, this or `delete` removes it from the cache.
            self.get(owner, glossary_id)
        except GlossaryStoreError:
            return loaded
        except GlossaryNotFound:
            with self._lock:
                self._cached.pop(key, None)
            raise
        return loaded


def _stored(row: tuple[str, str, str, str, int, int]) -> StoredGlossary:
    glossary_id, name, source_language, target_language, created_at_ms, num_terms = row
    created_at = datetime.fromtimestamp(created_at_ms / 1000, UTC)
    return StoredGlossary(glossary_id, name, source_language, target_language, created_at, num_terms)
