"""The name of an SQLite error, for messages."""

from __future__ import annotations

import sqlite3


def sqlite_error_name(error: sqlite3.Error) -> str:
    """SQLite's name, such as `SQLITE_BUSY`. Errors of Python's own module have none: then the exception's class."""
    return getattr(error, "sqlite_errorname", type(error).__name__)
