"""Reads the file of API keys: TOML with a table for each name. A table has the keys of the name and their limits."""

from __future__ import annotations

import difflib
import hashlib
import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from app.api.http.auth import NamedKeys
from app.errors import SettingsError
from app.settings import PREFIX, SHA256_TEXT
from app.stores.key_limits import LIMIT_NAMES, KeyLimits

VARIABLE = f"{PREFIX}API_KEYS_FILE"
# The maximum number of keys. A request's key is compared with all of them, which takes 0.1 us a key. Each name has
# series in the metrics.
MAX_KEYS = 1_000
MAX_FILE_BYTES = 1_000_000
# The minimum number of characters of a secret. A shorter secret could be found by trying all.
MIN_SECRET_CHARACTERS = 16
# The largest limit: RateLimit headers hold integers of 15 digits.
MAX_LIMIT = 10**15 - 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


_Strings = Annotated[list[str], BeforeValidator(_as_list)]
_Limit = Annotated[int | None, Field(ge=1, le=MAX_LIMIT)]


class KeyEntry(BaseModel):
    """One table of the file. key, sha256: a string or an array of strings; at least one of the two."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    key: _Strings = []
    sha256: _Strings = []
    requests_per_minute: _Limit = None
    requests_per_day: _Limit = None
    characters_per_day: _Limit = None
    characters_per_month: _Limit = None
    concurrent_requests: _Limit = None

    @model_validator(mode="after")
    def _check_keys(self) -> KeyEntry:
        if not self.key and not self.sha256:
            raise ValueError("it has neither key nor sha256")
        if not all(is_secret(key) for key in self.key):
            raise ValueError(f"key {SECRET_RULE}")
        if not all(SHA256_TEXT.fullmatch(digest) for digest in self.sha256):
            raise ValueError("sha256 is not a SHA-256 in lower-case hexadecimal")
        return self

    def named(self, name: str) -> NamedKeys:
        """The keys of this entry, under its name."""
        hashed = [hashlib.sha256(key.encode()).hexdigest() for key in self.key]
        limits = KeyLimits(**{limit: getattr(self, limit) for limit in LIMIT_NAMES})
        return NamedKeys(name, (*self.sha256, *hashed), limits)


SECRET_RULE = f"must be at least {MIN_SECRET_CHARACTERS} characters of ASCII without spaces"


def is_secret(text: str) -> bool:
    """Whether a text is long enough for a secret, and fits a header."""
    is_plain = text.isascii() and text.isprintable() and " " not in text
    return is_plain and len(text) >= MIN_SECRET_CHARACTERS


def read_keys_file(path: Path) -> list[NamedKeys]:
    """The keys of a file. Raises SettingsError with one line for each problem.

    No line repeats a value of `key` or `sha256`. A line repeats the name of a field, or of a value outside of a table,
    only if the name resembles a known field. Any other name may be a key.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise SettingsError([f"{VARIABLE}: the file has more than {MAX_FILE_BYTES} bytes"])
        tables = tomllib.loads(content.decode("utf-8-sig"))  # Windows editors write a byte order mark
    except OSError as error:
        raise SettingsError([f"{VARIABLE}: the file cannot be read ({type(error).__name__})"]) from error
    except UnicodeDecodeError as error:
        raise SettingsError([f"{VARIABLE}: the file is not UTF-8"]) from error
    except (ValueError, RecursionError) as error:  # a plain ValueError: an integer of too many digits
        position = re.search(r"at (line \d+, column \d+|end of document)", str(error))
        where = f" at {position[1]}" if position else ""
        raise SettingsError([f"{VARIABLE}: the file is not TOML{where}"]) from None
    problems: list[str] = []
    found = [
        keys
        for number, (name, table) in enumerate(tables.items(), start=1)
        if (keys := _entry(number, name, table, problems)) is not None
    ]
    if not tables:
        problems.append("the file holds no key, so the server would be open to everyone")
    problems += problems_of(found)
    if problems:
        raise SettingsError([f"{VARIABLE}: {problem}" for problem in problems])
    return found


def problems_of(found: list[NamedKeys]) -> list[str]:
    """A message for each name with several entries, for each key of two names, and for too many keys."""
    names = Counter(keys.name for keys in found)
    problems = [f"the name {name} has two entries" for name, times in names.items() if times > 1]
    owners: dict[str, str] = {}
    for keys in found:
        for digest in keys.hashes:
            other = owners.setdefault(digest, keys.name)
            if other != keys.name:
                problems.append(f"[{keys.name}] has a key of [{other}]")
    if len(owners) > MAX_KEYS:
        problems.append(f"there are {len(owners)} keys, more than {MAX_KEYS}")
    return problems


def _entry(number: int, name: str, table: Any, problems: list[str]) -> NamedKeys | None:
    """The keys of one table; None if it has problems, which are appended to `problems`.

    number: the place among the file's top-level entries, from 1. Messages have it instead of a name that may be an API
    key: TOML reads an unquoted `abc.def` as the table `abc` with the field `def`.
    """
    if not _NAME.fullmatch(name):
        problems.append(
            f"entry {number}: its name must be 1 to 64 ASCII letters, digits, - and _, and must not begin with - or _"
        )
        return None
    if isinstance(table, list) and table and all(isinstance(each, dict) for each in table):
        problems.append(f"entry {number}: write [name], not [[name]]")
        return None
    if not isinstance(table, dict):
        shown = name if _nearest(name) else "a value"
        problems.append(f"{shown} is outside of a table; each key needs a table such as [sales]")
        return None
    try:
        return KeyEntry.model_validate(table).named(name)
    except ValidationError as error:
        shown = f"[{name}]" if table.keys() & KeyEntry.model_fields else f"entry {number}:"
        findings = error.errors(include_input=False, include_url=False)
        problems += dict.fromkeys(f"{shown} {_line(finding)}" for finding in findings)
        return None


def _line(finding: Any) -> str:
    """One of Pydantic's errors as a line, without the value, which may be a key."""
    message = str(finding["msg"]).removeprefix("Value error, ")
    if not finding["loc"]:
        return message
    field = str(finding["loc"][0])
    if finding["type"] == "extra_forbidden":
        if (near := _nearest(field)) is None:
            return f"a field is not known; the known fields are {', '.join(KeyEntry.model_fields)}"
        return f"{field} is not known; did you mean {near}?"
    if finding["type"] in {"list_type", "string_type"}:
        return f"{field} must be a string or an array of strings"
    return f"{field}: {message}"


def _nearest(name: str) -> str | None:
    """The field that a name resembles; None if it resembles none, so that it may be a key."""
    return next(iter(difflib.get_close_matches(name, KeyEntry.model_fields, n=1)), None)
