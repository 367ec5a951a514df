"""The metrics of each API key by its name, read at each scrape. Only the operator chooses the names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class KeyFigures(NamedTuple):
    """What the keys of one name use.

    num_requests, num_characters: since the process started.
    refused: requests beyond a limit since the process started, by the limit's name.
    used_share: the used part of each limit in its current period, 0 to 1; more if servers that share the counts have
        together used more than the limit.
    """

    num_requests: int
    num_characters: int
    num_in_progress: int
    refused: dict[str, int]
    used_share: dict[str, float]


class KeyCollector(Collector):
    """The figures of all keys as samples."""

    def __init__(
        self,
        read: Callable[[], dict[str, KeyFigures]],
        *,
        num_failures: Callable[[], int],
        num_reloads: Mapping[str, int],
    ) -> None:
        """read: returns the figures by name. num_reloads: reloads of the file of API keys, by outcome.

        num_failures: returns how often the keys' counts could not be saved or read.
        """
        self._read = read
        self._num_reloads = num_reloads
        self._num_failures = num_failures

    def collect(self) -> Iterable[Metric]:
        """The samples of each name, of each name and limit, of the reloads, and of the store's failures."""
        requests = CounterMetricFamily("transduce_key_requests", "Requests of an API key", labels=["key"])
        characters = CounterMetricFamily(
            "transduce_key_characters", "Code points translated for an API key", labels=["key"]
        )
        inflight = GaugeMetricFamily(
            "transduce_key_inflight_requests", "Requests of an API key in progress", labels=["key"]
        )
        refused = CounterMetricFamily(
            "transduce_key_refused", "Requests refused by a limit of an API key", labels=["key", "limit"]
        )
        shares = GaugeMetricFamily(
            "transduce_key_limit_used_ratio", "Used part of a limit of an API key", labels=["key", "limit"]
        )
        for name, figures in self._read().items():
            requests.add_metric([name], figures.num_requests)
            characters.add_metric([name], figures.num_characters)
            inflight.add_metric([name], figures.num_in_progress)
            for limit, count in figures.refused.items():
                refused.add_metric([name, limit], count)
            for limit, share in figures.used_share.items():
                shares.add_metric([name, limit], share)
        yield from (requests, characters, inflight, refused, shares)
        reloads = CounterMetricFamily(
            "transduce_key_reloads", "Reloads of the file of API keys, by outcome", labels=["outcome"]
        )
        for outcome, count in self._num_reloads.items():
            reloads.add_metric([outcome], count)
        yield reloads
        yield CounterMetricFamily(
            "transduce_usage_store_failures",
            "Failures to save or read the counts of the API keys",
            value=self._num_failures(),
        )
