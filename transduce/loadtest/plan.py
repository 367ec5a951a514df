"""The plan of one run: target server, workload and schedule."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import urlsplit

import httpx

from transduce.client.wire import is_server_url
from transduce.loadtest.arrivals import Arrivals, ClosedLoop, Phase
from transduce.loadtest.dialects import DIALECTS, Dialect
from transduce.loadtest.slo import Slo
from transduce.loadtest.workload import Workload

# Defaults of RunPlan.
DEFAULT_TIMEOUT_S = 30.0
DEFAULT_WARM_UP_S = 5.0
DEFAULT_MAX_LAG_S = 0.002
# The default port of each scheme.
PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Target:
    """The server under test.

    Attributes:
        url: its root, http or https.
        dialect: the API that requests use.
        source: language of the texts.
        target: language to translate into.
        api_key: sent as the dialect defines.
    """

    url: str
    dialect: Dialect = DIALECTS["native"]
    source: str = "en"
    target: str = "de"
    api_key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Raises ValueError for an invalid URL."""
        if not is_server_url(self.url):
            raise ValueError("the server's URL must look like http://127.0.0.1:8000")

    @cached_property
    def host(self) -> str:
        """Host name or address, in ASCII."""
        return httpx.URL(self.url).raw_host.decode("ascii")

    @property
    def port(self) -> int:
        """The URL's port, or the default of its scheme."""
        parts = urlsplit(self.url)
        return parts.port or PORTS[parts.scheme]

    @property
    def has_tls(self) -> bool:
        """Whether the URL is https."""
        return urlsplit(self.url).scheme == "https"

    @cached_property
    def path(self) -> str:
        """The URL's own path, percent-encoded, followed by the path of the dialect's route."""
        return httpx.URL(self.url).raw_path.decode("ascii").rstrip("/") + self.dialect.path


@dataclass(frozen=True)
class RunPlan:
    """One run.

    Attributes:
        target: the server.
        workload: the requests.
        load: when they are sent: arrivals on a schedule, or clients that wait for their responses.
        warm_up_s: seconds of load before the run, at the first rate or with all clients. Requests that are due in
            this time do not belong to the run.
        seed: determines the times, the texts and the disconnects.
        timeout_s: a response that takes longer, from its request's due time, is a timeout.
        max_connections: None for no limit; at the limit requests wait for a free connection, and the wait counts as
            latency.
        slos: the objectives; the last one defines goodput.
        max_lag_s: the run is not valid if the tester's lag (p99) exceeds both this and a hundredth of the median
            latency, because the figures are then the tester's own.
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
        """Raises ValueError if warm_up_s is below 0, timeout_s or max_lag_s not above 0, or max_connections below 1."""
        if self.warm_up_s < 0 or min(self.timeout_s, self.max_lag_s) <= 0:
            raise ValueError(
                "the warm-up must not be negative; the time limit and the permitted lag must be above 0"
            )
        if self.max_connections is not None and self.max_connections < 1:
            raise ValueError("at least one connection is required")

    @property
    def duration_s(self) -> float:
        """Seconds of the measured run, without the warm-up."""
        return self.load.duration_s

    def warm_up_arrivals(self) -> Arrivals | None:
        """The arrivals of the warm-up; None if there is no warm-up, and in a closed loop."""
        if self.warm_up_s <= 0 or isinstance(self.load, ClosedLoop):
            return None
        return Arrivals(
            (Phase(self.load.phases[0].rate, self.warm_up_s),), self.load.kind, self.load.burstiness
        )

    def times_s(self) -> list[float]:
        """The due times of all requests in seconds from the start, negative in the warm-up; empty in a closed loop."""
        if isinstance(self.load, ClosedLoop):
            return []
        warm_up = self.warm_up_arrivals()
        before = [] if warm_up is None else warm_up.times_s(self.seed + 1)
        return [moment - self.warm_up_s for moment in before] + self.load.times_s(self.seed)
