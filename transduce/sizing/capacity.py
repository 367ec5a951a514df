"""The highest rate at which a server meets an objective, and the number of servers that a load needs."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from transduce.errors import CommandError
from transduce.loadtest.slo import Slo
from transduce.sizing.costs import Costs
from transduce.sizing.simulation import latencies_s, poisson_times_s, saturated_rate

# Requests of a simulated run. With fewer, a few requests decide the 99th percentile. Besides, a run begins with an
# empty server, and a short run ends before the queue has its normal length. With more, a run takes longer.
NUM_REQUESTS = 6000
# Seeds of the runs that must all meet the objective. With fewer, a run without a long queue decides by chance.
SEEDS = (1, 2, 3, 4)
# Upper limit of `Capacity.rate`, as a share of `Capacity.saturated`. Above it, the queue reaches its normal length only
# after many times NUM_REQUESTS, so a run finds latencies that are too low.
MAX_SHARE = 0.95
# Minimum number of closed-loop clients in the run that gives `Capacity.saturated`. With fewer, a server has idle rows.
SATURATING_CLIENTS = 128
# Requests of a run for each closed-loop client. With fewer, a run is little more than its start and its end.
REQUESTS_PER_CLIENT = 6
PRECISION = 0.01  # of the rate, as a share


@dataclass(frozen=True)
class Capacity:
    """What one server can do.

    saturated: its answers a second with `num_saturating_clients` closed-loop clients. rate: the highest rate, in
    requests a second, at which it meets the objective; at most MAX_SHARE of `saturated`.
    """

    saturated: float
    rate: float


@dataclass(frozen=True)
class Plan:
    """The servers for a load.

    price_per_hour: of all servers. price_per_million: of a million source characters. Both are None without a price.
    """

    num_servers: int
    price_per_hour: float | None
    price_per_million: float | None


def num_saturating_clients(costs: Costs) -> int:
    """Closed-loop clients that saturate the server: at least twice the number of sentences that its rows hold."""
    return max(SATURATING_CLIENTS, 2 * costs.num_workers * costs.max_rows // costs.beam_size)


def lengths_of(words: Sequence[int], costs: Costs, *, seed: int = 1) -> list[int]:
    """Lengths in subwords of the sentences of a run, in random order. words: lengths in words, which are repeated."""
    num_requests = max(NUM_REQUESTS, REQUESTS_PER_CLIENT * num_saturating_clients(costs))
    repeated = [words[number % len(words)] for number in range(num_requests)]
    random.Random(seed).shuffle(repeated)
    return [costs.num_subwords(number) for number in repeated]


def capacity(costs: Costs, words: Sequence[int], slo: Slo) -> Capacity:
    """The capacity of one server by simulation. Raises CommandError if it misses the objective at almost no load."""
    lengths = lengths_of(words, costs)
    saturated = saturated_rate(costs, lengths, num_clients=num_saturating_clients(costs))

    @functools.cache  # the last run of the bisection is also the first of all seeds
    def is_met(rate: float, seed: int) -> bool:
        found = latencies_s(costs, lengths, poisson_times_s(len(lengths), rate=rate, seed=seed))
        return slo.judge(sum(one <= slo.limit_s for one in found), len(found)).is_met

    low, high = saturated / 100, saturated * MAX_SHARE
    if not is_met(low, SEEDS[0]):
        raise CommandError(f"even a server without load misses {slo}: allow more time, or shorten the texts")
    low = high if is_met(high, SEEDS[0]) else low
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        low, high = (middle, high) if is_met(middle, SEEDS[0]) else (low, middle)
    # The bisection uses one seed, because all four would take four times as long. The others can only lower its result.
    while not all(is_met(low, seed) for seed in SEEDS):
        low *= 1 - PRECISION
    return Capacity(saturated, low)


def plan(found: Capacity, *, rate: float, characters: float, price: float | None, spare: int) -> Plan:
    """The servers for a rate.

    characters: of one request. price: of one server for an hour. spare: servers that may fail.
    """
    num_servers = math.ceil(rate / found.rate) + spare
    if price is None:
        return Plan(num_servers, None, None)
    return Plan(num_servers, price * num_servers, price * num_servers / (3600 * rate * characters) * 1e6)
