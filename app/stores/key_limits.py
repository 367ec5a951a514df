"""The limits of an API key, and the calendar periods in which its requests and characters are counted."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple


class Unit(StrEnum):
    """What is counted. Characters are the Unicode code points of the texts to translate or to score."""

    REQUESTS = "requests"
    CHARACTERS = "characters"


class Period(NamedTuple):
    """Unix seconds. The end is the beginning of the next period."""

    starts_at: int
    ends_at: int


@dataclass(frozen=True)
class Kind:
    """A unit that is counted in one sort of period. length: minute, day or month, in UTC."""

    name: str
    unit: Unit
    length: str

    def period_at(self, time_s: float) -> Period:
        """Return the period at a Unix time."""
        start = datetime.fromtimestamp(time_s, UTC).replace(second=0, microsecond=0)
        if self.length == "minute":
            end = start + timedelta(minutes=1)
        elif self.length == "day":
            start = start.replace(hour=0, minute=0)
            end = start + timedelta(days=1)
        else:
            start = start.replace(day=1, hour=0, minute=0)
            end = (start + timedelta(days=31)).replace(day=1)
        return Period(int(start.timestamp()), int(end.timestamp()))


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("requests_per_minute", Unit.REQUESTS, "minute"),
        Kind("requests_per_day", Unit.REQUESTS, "day"),
        Kind("characters_per_day", Unit.CHARACTERS, "day"),
        Kind("characters_per_month", Unit.CHARACTERS, "month"),
    )
}
CONCURRENT = "concurrent_requests"


@dataclass(frozen=True)
class KeyLimits:
    """The limits that all API keys of one name share; None: no limit.

    concurrent_requests: requests in progress at once in one server. Every other field is named as in KINDS.
    """

    requests_per_minute: int | None = None
    requests_per_day: int | None = None
    characters_per_day: int | None = None
    characters_per_month: int | None = None
    concurrent_requests: int | None = None

    @functools.cached_property
    def counted(self) -> tuple[tuple[Kind, int], ...]:
        """The limits that are set, each with its kind. The limit on concurrent requests is left out."""
        limits = ((kind, getattr(self, name)) for name, kind in KINDS.items())
        return tuple((kind, limit) for kind, limit in limits if limit is not None)


LIMIT_NAMES = tuple(field.name for field in fields(KeyLimits))
NO_LIMITS = KeyLimits()


def format_time(time_s: float) -> str:
    """Return a Unix time in UTC by RFC 3339, to the second."""
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
