"""Reads the metrics of a server."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import httpx
from prometheus_client.parser import text_string_to_metric_families

from transduce.client.connections import http_client
from transduce.client.wire import Endpoint

Labels = dict[str, str]
Keep = Callable[[Labels], bool]


class Away(Exception):
    """The server gives no metrics. The message says why."""


def _all(_labels: Labels) -> bool:
    return True


@dataclass(frozen=True)
class Scrape:
    """The samples of one moment. at: seconds of time.monotonic. why_not_ready: None if the server is ready.

    samples: labels and value of each sample, by its name without `transduce_`.
    """

    at: float
    samples: dict[str, list[tuple[Labels, float]]] = field(default_factory=dict)
    why_not_ready: str | None = None

    def of(self, name: str, keep: Keep = _all) -> Iterator[tuple[Labels, float]]:
        """The samples of a metric for whose labels `keep` returns True."""
        return ((labels, value) for labels, value in self.samples.get(name, ()) if keep(labels))

    def total(self, name: str, keep: Keep = _all) -> float:
        """The sum of a metric's samples; NaN without any."""
        values = [value for _, value in self.of(name, keep)]
        return sum(values) if values else math.nan

    def by(self, label: str, name: str, keep: Keep = _all) -> dict[str, float]:
        """The sums of a metric's samples by the values of a label."""
        sums: dict[str, float] = {}
        for labels, value in self.of(name, keep):
            sums[labels[label]] = sums.get(labels[label], 0.0) + value
        return sums


class Scraper:
    """Reads the metrics of one server over one connection. A context manager."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._client = http_client(httpx.Client, endpoint)

    def __enter__(self) -> Scraper:
        return self

    def __exit__(self, *_raised: object) -> None:
        self._client.close()

    def scrape(self) -> Scrape:
        """Read all metrics now. Raises Away."""
        answer = self._get("/metrics")
        if answer.status_code != httpx.codes.OK:
            hint = " (set TRANSDUCE_API_KEY)" if answer.status_code in {401, 403} else ""
            raise Away(f"{self._endpoint.url}/metrics answers {answer.status_code}{hint}")
        found: dict[str, list[tuple[Labels, float]]] = {}
        try:
            for family in text_string_to_metric_families(answer.text):
                for sample in family.samples:
                    name = sample.name.removeprefix("transduce_")
                    found.setdefault(name, []).append((sample.labels, sample.value))
        except ValueError:
            found = {}
        if "ready" not in found:
            raise Away(f"{self._endpoint.url} is not a Transduce server: its /metrics has no transduce_ready")
        scrape = Scrape(time.monotonic(), found)
        return scrape if scrape.total("ready") else Scrape(scrape.at, found, self._why_not_ready())

    def _why_not_ready(self) -> str:
        with contextlib.suppress(ValueError, AttributeError):
            return str(self._get("/readyz").json().get("status"))
        return "not ready"

    def _get(self, path: str) -> httpx.Response:
        try:
            return self._client.get(path)
        except httpx.HTTPError as error:
            raise Away(str(self._endpoint.failure(error))) from error
