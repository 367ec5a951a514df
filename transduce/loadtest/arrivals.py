"""When requests are sent: every time of a run is drawn from a seed before the first request goes out.

The gaps of `bursty` arrivals follow a gamma distribution with shape `burstiness` (below 1: in bursts; 1: Poisson),
as serving benchmarks draw them; times are scaled within each phase, so that the offered rate comes out exactly.
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
DEFAULT_BURSTINESS = 0.2


@dataclass(frozen=True)
class Phase:
    """A stretch of time at one rate. rate: requests/s, above 0. duration_s: above 0."""

    rate: float
    duration_s: float


@dataclass(frozen=True)
class Arrivals:
    """An open loop: requests come when they come, answered or not.

    Attributes:
        phases: one after another; several make overload and recovery.
        kind: how the gaps are drawn.
        burstiness: shape of the gamma distribution of `bursty` gaps; its coefficient of variation is
            1 / sqrt(burstiness).
    """

    phases: tuple[Phase, ...]
    kind: ArrivalKind = "poisson"
    burstiness: float = DEFAULT_BURSTINESS

    def __post_init__(self) -> None:
        """Raises ValueError: no phase, or a rate, duration or burstiness that is not above 0."""
        if not self.phases or any(phase.rate <= 0 or phase.duration_s <= 0 for phase in self.phases):
            raise ValueError("arrivals need phases whose rate and duration are above 0")
        if self.burstiness <= 0:
            raise ValueError("burstiness must be above 0")

    @classmethod
    def at(cls, rate: float, duration_s: float, kind: ArrivalKind = "poisson") -> Arrivals:
        """One phase."""
        return cls((Phase(rate, duration_s),), kind)

    @property
    def duration_s(self) -> float:
        """Of all phases together."""
        return sum(phase.duration_s for phase in self.phases)

    def starts_s(self) -> list[float]:
        """Where each phase begins, in seconds from the run's start."""
        return list(itertools.accumulate((phase.duration_s for phase in self.phases[:-1]), initial=0.0))

    def times_s(self, seed: int) -> list[float]:
        """When each request is due, ascending, in seconds from the run's start. The same seed draws the same."""
        random_gap = self._gap(random.Random(seed))
        times: list[float] = []
        for start_s, phase in zip(self.starts_s(), self.phases, strict=True):
            count = max(1, round(phase.rate * phase.duration_s))
            # One gap more than requests: the last one reaches to the end of the phase.
            offsets = list(itertools.accumulate(random_gap() for _ in range(count + 1)))
            scale = phase.duration_s / offsets[-1]
            # Gaps of bursts may be so small that the last one is lost in rounding, and its request with the phase.
            last_s = math.nextafter(start_s + phase.duration_s, 0.0)
            times += [min(start_s + offset * scale, last_s) for offset in offsets[:-1]]
        return times

    def _gap(self, draw: random.Random) -> Callable[[], float]:
        """Draws gaps with mean 1."""
        if self.kind == "constant":
            return lambda: 1.0
        if self.kind == "poisson":
            return lambda: draw.expovariate(1.0)
        return lambda: draw.gammavariate(self.burstiness, 1.0 / self.burstiness)


@dataclass(frozen=True)
class ClosedLoop:
    """Clients that each wait for their answer before they ask again: what saturates a server, never what users feel.

    Attributes:
        num_clients: that ask at a time.
        duration_s: how long.
        num_requests: where given, it ends after so many, before its time.
    """

    num_clients: int
    duration_s: float
    num_requests: int | None = None

    def __post_init__(self) -> None:
        """Raises ValueError: no client, or no time."""
        if self.num_clients < 1 or self.duration_s <= 0:
            raise ValueError("a closed loop needs at least one client and a duration above 0")
