"""The interface of stores of counts, and a store in a SQLite file, which several servers of one machine may share."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, Protocol

from app.stores.key_limits import KINDS
from app.stores.private_file import UnusableFile, create_private, uri_of
from app.stores.sqlite_errors import sqlite_error_name

# Seconds to wait for another process's lock. If larger, a locked file is noticed later. If smaller, servers that share
# the file refuse requests under load.
_BUSY_TIMEOUT_S = 0.5
# Seconds for which counts are kept after their period has ended. It must exceed the difference of the servers' clocks.
KEPT_S = 3_600
# Version of the table below, stored as SQLite's user_version.
_FORMAT = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS counts (
    caller TEXT NOT NULL, kind TEXT NOT NULL, starts_at INTEGER NOT NULL, ends_at INTEGER NOT NULL,
    used INTEGER NOT NULL, PRIMARY KEY (kind, starts_at, caller)
) STRICT, WITHOUT ROWID;
"""
_ADD = """
INSERT INTO counts VALUES (?, ?, ?, ?, ?)
ON CONFLICT (kind, starts_at, caller) DO UPDATE SET used = used + excluded.used
"""


class UsageStoreError(Exception):
    """The store cannot be read or written: it is locked, full, unreachable or not a database."""


class Count(NamedTuple):
    """The key of a count: its caller, kind (a name of KINDS) and period (by its start in Unix seconds)."""

    caller: str
    kind: str
    starts_at: int


class Batch(NamedTuple):
    """Amounts to add to counts. number: 1 for the first batch of a server process, 2 for the second, and so on.

    A batch that is sent again keeps its number, so that the store can add it once.
    """

    number: int
    amounts: Mapping[Count, int]


class UsageStore(Protocol):
    """Keeps counts. One thread at a time calls the methods."""

    def exchange(self, batch: Batch | None, time_s: float) -> dict[Count, int]:
        """Add a batch, all of it or nothing. Return all counts of the periods that contain the Unix time `time_s`.

        A batch whose exchange has failed is sent again before any other. Raises UsageStoreError.
        """

    def close(self) -> None:
        """Close the file or the connection."""


def starts_at(time_s: float) -> dict[str, int]:
    """Return the beginning of the period at a Unix time, by kind."""
    return {name: kind.period_at(time_s).starts_at for name, kind in KINDS.items()}


def ends_at(count: Count) -> int:
    """Return the end of a count's period in Unix seconds."""
    return KINDS[count.kind].period_at(count.starts_at).ends_at


class SqliteUsageStore:
    """A UsageStore in a file."""

    def __init__(self, path: Path) -> None:
        """path: a file; if it is missing, it is created with access for its owner only. Raises UsageStoreError."""
        self._path = path
        try:
            create_private(path)
            with closing(self._connect()) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                (found,) = connection.execute("PRAGMA user_version").fetchone()
                if found not in {0, _FORMAT}:
                    raise UsageStoreError(f"the file has format {found}, not {_FORMAT}")
                if not found:  # else nothing is written here, so another process's lock does not matter
                    connection.executescript(f"{_SCHEMA} PRAGMA user_version = {_FORMAT};")
        except UnusableFile as error:
            raise UsageStoreError(str(error)) from error
        except sqlite3.Error as error:
            raise _failure(error) from error
        self._connection: sqlite3.Connection | None = None

    def exchange(self, batch: Batch | None, time_s: float) -> dict[Count, int]:
        """Add a batch and read the counts, in one transaction. Raises UsageStoreError."""
        try:
            if self._connection is None:
                self._connection = self._connect()
            with self._connection as connection:
                connection.execute("BEGIN" if batch is None else "BEGIN IMMEDIATE")
                if batch is not None:
                    rows = [(*count, ends_at(count), amount) for count, amount in batch.amounts.items()]
                    connection.executemany(_ADD, rows)
                    connection.execute("DELETE FROM counts WHERE ends_at < ?", (time_s - KEPT_S,))
                return _read(connection, time_s)
        except sqlite3.Error as error:
            self.close()
            raise _failure(error) from error

    def close(self) -> None:
        """Close the connection. The next exchange opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            uri_of(self._path),
            timeout=_BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
            uri=True,
        )
        try:
            connection.execute("PRAGMA synchronous = FULL")  # a commit is on the disk
        except sqlite3.Error:
            connection.close()
            raise
        return connection


def _read(connection: sqlite3.Connection, time_s: float) -> dict[Count, int]:
    counts = {}
    for kind, start in starts_at(time_s).items():
        query = "SELECT caller, used FROM counts WHERE kind = ? AND starts_at = ?"
        for caller, used in connection.execute(query, (kind, start)):
            counts[Count(caller, kind, start)] = used
    return counts


def _failure(error: sqlite3.Error) -> UsageStoreError:
    return UsageStoreError(f"the usage store failed: {sqlite_error_name(error)}")
