"""Arrival times: the due time of every request is drawn from a seed before the first request is sent.

The gaps of `bursty` arrivals follow a gamma distribution with shape `burstiness` (below 1: bursts; 1: Poisson), as in
common serving benchmarks. Times are scaled within each phase, so that it has as many requests as its rate says.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

ArrivalKind = Literal["poisson", "constant", "bursty"]
KINDS: tuple[ArrivalKind, ...] = ("poisson", "constant", "bursty")
# Shape of the gamma distribution; smaller values give burstier arrivals.
DEFAULT_BURSTINESS = 0.2
# With smaller shapes all gaps are drawn as 0. With larger shapes the arrivals are even, as with `constant`.
MIN_BURSTINESS, MAX_BURSTINESS = 0.001, 1000
# The shortest gap, if the mean is 1. Small shapes draw many gaps of 0, and gaps that are all 0 cannot be scaled.
MIN_GAP = 1e-100


@dataclass(frozen=True)
class Phase:
    """A period at one rate. rate: requests/s, above 0. duration_s: above 0."""

    rate: float
    duration_s: float


@dataclass(frozen=True)
class Arrivals:
    """An open loop: requests are sent at their due times, whether or not earlier ones are answered.

    Attributes:
        phases: successive phases; several of them can model overload and recovery.
        kind: distribution of the gaps.
        burstiness: shape of the gamma distribution of `bursty` gaps; their coefficient of variation is 1 /
            sqrt(burstiness).
    """

    phases: tuple[Phase, ...]
    kind: ArrivalKind = "poisson"
    burstiness: float = DEFAULT_BURSTINESS

    def __post_init__(self) -> None:
        """Raises ValueError without phases, if a rate or duration is not above 0, or for a burstiness out of range."""
        if not self.phases or any(phase.rate <= 0 or phase.duration_s <= 0 for phase in self.phases):
            raise ValueError("the rate and duration of every phase must be above 0")
        if not MIN_BURSTINESS <= self.burstiness <= MAX_BURSTINESS:
            raise ValueError(f"burstiness must be {MIN_BURSTINESS} to {MAX_BURSTINESS}")

    @classmethod
    def at(cls, rate: float, duration_s: float, kind: ArrivalKind = "poisson") -> Arrivals:
        """Arrivals of one phase."""
        return cls((Phase(rate, duration_s),), kind)

    @property
    def duration_s(self) -> float:
        """Total seconds of all phases."""
        return sum(phase.duration_s for phase in self.phases)

    def starts_s(self) -> list[float]:
        """The start of each phase, in seconds from the run's start."""
        return list(itertools.accumulate((phase.duration_s for phase in self.phases[:-1]), initial=0.0))

    def times_s(self, seed: int) -> list[float]:
        """The due times of all requests, ascending, in seconds from the run's start; the same for the same seed."""
        random_gap = self._gap(random.Random(seed))
        times: list[float] = []
        for start_s, phase in zip(self.starts_s(), self.phases, strict=True):
            count = max(1, round(phase.rate * phase.duration_s))
            # One more gap than requests: the last gap reaches the end of the phase.
            offsets = list(itertools.accumulate(random_gap() for _ in range(count + 1)))
            scale = phase.duration_s / offsets[-1]
            # With tiny gaps rounding could move the last request beyond the end of its phase.
            last_s = math.nextafter(start_s + phase.duration_s, 0.0)
            times += [min(start_s + offset * scale, last_s) for offset in offsets[:-1]]
        return times

    def _gap(self, draw: random.Random) -> Callable[[], float]:
        """A function that draws gaps with mean 1."""
        if self.kind == "constant":
            return lambda: 1.0
        if self.kind == "poisson":
            return lambda: draw.expovariate(1.0)
        return lambda: max(MIN_GAP, draw.gammavariate(self.burstiness, 1.0 / self.burstiness))


@dataclass(frozen=True)
class ClosedLoop:
    """A closed loop: each client waits for the response to its request before it sends the next one.

    It measures the highest throughput, not the latency that users see.

    Attributes:
        num_clients: number of concurrent clients.
        duration_s: length of the run.
        num_requests: if set, the run ends after this many requests, those of the warm-up included, or after
            `duration_s` if that is earlier.
    """

    num_clients: int
    duration_s: float
    num_requests: int | None = None

    def __post_init__(self) -> None:
        """Raises ValueError without clients, or if the duration is not above 0."""
        if self.num_clients < 1 or self.duration_s <= 0:
            raise ValueError("a closed loop needs at least one client and a duration above 0")
