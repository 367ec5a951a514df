"""What a run sends, where, and when."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from transduce.loadtest.arrivals import Arrivals, ClosedLoop, Phase
from transduce.loadtest.dialects import DIALECTS, Dialect
from transduce.loadtest.slo import Slo
from transduce.loadtest.workload import Workload

DEFAULT_TIMEOUT_S = 30.0
DEFAULT_WARM_UP_S = 5.0
DEFAULT_MAX_LAG_S = 0.002
PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Target:
    """The server that is asked.

    Attributes:
        url: its root, http or https.
        dialect: how it is asked.
        source: language of the texts.
        target: language to translate into.
        api_key: sent as the dialect sends one.
    """

    url: str
    dialect: Dialect = DIALECTS["native"]
    source: str = "en"
    target: str = "de"
    api_key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Raises ValueError: the URL names no server."""
        parts = urlsplit(self.url)
        if parts.scheme not in PORTS or not parts.hostname:
            raise ValueError("the server's URL must look like http://127.0.0.1:8000")

    @property
    def host(self) -> str:
        """Name or address."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """The URL's, or its scheme's."""
        parts = urlsplit(self.url)
        return parts.port or PORTS[parts.scheme]

    @property
    def has_tls(self) -> bool:
        """Whether the URL is https."""
        return urlsplit(self.url).scheme == "https"

    @property
    def path(self) -> str:
        """Of the route, below the path that the URL may have."""
        return urlsplit(self.url).path.rstrip("/") + self.dialect.path


@dataclass(frozen=True)
class RunPlan:
    """One run.

    Attributes:
        target: the server.
        workload: what is sent.
        load: when: arrivals on a schedule, or clients that wait.
        warm_up_s: seconds at the first rate before the run begins; their answers are left out.
        seed: draws the times, the texts and the disconnects.
        timeout_s: an answer that takes longer, from when its request was due, is a timeout.
        max_connections: where given, requests wait for a free connection; the wait is part of their latency.
        slos: what the run is held against; the last one decides what counts as goodput.
        max_lag_s: a tester that is later than this (p99), and than a hundredth of the median latency, has measured
            itself: the run is not valid.
        keeps_texts: whether samples keep the translations.
    """

    target: Target
    workload: Workload
    load: Arrivals | ClosedLoop
    warm_up_s: float = DEFAULT_WARM_UP_S
    seed: int = 1
    timeout_s: float = DEFAULT_TIMEOUT_S
    max_connections: int | None = None
    slos: tuple[Slo, ...] = ()
    max_lag_s: float = DEFAULT_MAX_LAG_S
    keeps_texts: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError: a negative warm-up, no time for an answer, or no connection."""
        if self.warm_up_s < 0 or min(self.timeout_s, self.max_lag_s) <= 0:
            raise ValueError("a warm-up is not negative; a time limit and a lag are above 0")
        if self.max_connections is not None and self.max_connections < 1:
            raise ValueError("at least one connection is needed")

    @property
    def duration_s(self) -> float:
        """Of what is measured."""
        return self.load.duration_s

    def warm_up_arrivals(self) -> Arrivals | None:
        """What is sent before the run begins; None without a warm-up, and in a closed loop."""
        if self.warm_up_s <= 0 or isinstance(self.load, ClosedLoop):
            return None
        return Arrivals(
            (Phase(self.load.phases[0].rate, self.warm_up_s),), self.load.kind, self.load.burstiness
        )
