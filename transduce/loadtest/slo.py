"""Service level objectives: the share of all requests that must be answered within a time limit."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Self

UNITS_S = {"ms": 1e-3, "s": 1.0}
# Tolerance of the comparison: 99.9 / 100 is slightly more than 0.999 in floating point.
ROUNDING = 1e-9
PATTERN = re.compile(r"(first\.)?p(\d+(?:\.\d+)?)=(\d+(?:\.\d+)?)(ms|s)")


@dataclass(frozen=True)
class Slo:
    """`p99=500ms`: at least 99 % of all requests must be answered with status 200 within 500 ms of their due time.

    A request that is refused, fails or times out counts like one that is too slow. So does one that the tester gave up
    after the limit. A request that the tester gave up earlier does not count. There is one exception: it counts for an
    objective of the first text if its first text came in time.

    Attributes:
        percentile: above 0, below 100.
        limit_s: seconds.
        is_first_text: applies to the time to a stream's first text (`first.p99=200ms`).
    """

    percentile: float
    limit_s: float
    is_first_text: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `p99=500ms`, `p99.9=2s`, `first.p95=150ms`. Raises ValueError."""
        match = PATTERN.fullmatch(text.strip().lower())
        if not match or not 0 < float(match[2]) < 100 or not 0 < float(match[3]) < math.inf:
            raise ValueError(f"{text!r} is not an objective such as p99=500ms or first.p95=200ms")
        return cls(float(match[2]), float(match[3]) * UNITS_S[match[4]], match[1] is not None)

    def __str__(self) -> str:
        """The text that `parse` accepts."""
        limit = f"{_plain(self.limit_s)}s" if self.limit_s >= 10 else f"{_plain(self.limit_s * 1e3)}ms"
        return f"{'first.' if self.is_first_text else ''}p{_plain(self.percentile)}={limit}"

    @property
    def needed_share(self) -> float:
        """The required share of all requests, 0 to 1."""
        return self.percentile / 100

    def judge(self, num_within: int, num_all: int) -> Attainment:
        """The attainment if num_within of num_all requests were answered in time."""
        share = num_within / num_all if num_all else 0.0
        return Attainment(str(self), share, self.needed_share, is_met=share >= self.needed_share - ROUNDING)


def _plain(number: float) -> str:
    """The number with at most 14 digits, without an exponent and without zeros at the end."""
    return f"{Decimal(f'{number:.14g}'):f}"


@dataclass(frozen=True)
class Attainment:
    """The share of requests answered in time, and whether it meets the objective."""

    slo: str
    share: float
    needed_share: float
    is_met: bool


@dataclass(frozen=True)
class Threshold:
    """A requirement for a run, with the required and the measured value as text for the report."""

    name: str
    needed: str
    found: str
    is_met: bool
