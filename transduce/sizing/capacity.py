"""The highest rate at which a server meets an objective, and the number of servers that a load needs."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from transduce.errors import CommandError
from transduce.loadtest.slo import Slo
from transduce.sizing.costs import Costs
from transduce.sizing.simulation import latencies_s, poisson_times_s, saturated_rate

# Requests of a simulated run. With fewer, the 99th percentile is that of few requests. With more, a run takes longer.
NUM_REQUESTS = 6000
# Closed-loop clients of the run that gives `Capacity.saturated`. With fewer, a large server has idle rows.
SATURATING_CLIENTS = 128
PRECISION = 0.01  # of the rate, as a share


@dataclass(frozen=True)
class Capacity:
    """What one server can do.

    saturated: its answers a second with SATURATING_CLIENTS closed-loop clients. rate: the most requests a second at
    which it meets the objective.
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


def lengths_of(words: Sequence[int], costs: Costs, *, seed: int = 1) -> list[int]:
    """Lengths in subwords of NUM_REQUESTS sentences, in random order. words: lengths in words, which are repeated."""
    repeated = [words[number % len(words)] for number in range(NUM_REQUESTS)]
    random.Random(seed).shuffle(repeated)
    return [costs.num_subwords(number) for number in repeated]


def capacity(costs: Costs, words: Sequence[int], slo: Slo) -> Capacity:
    """The capacity of one server by simulation. Raises CommandError if it misses the objective at almost no load."""
    lengths = lengths_of(words, costs)
    saturated = saturated_rate(costs, lengths, num_clients=SATURATING_CLIENTS)

    def is_met(rate: float) -> bool:
        found = latencies_s(costs, lengths, poisson_times_s(len(lengths), rate=rate))
        return slo.judge(sum(one <= slo.limit_s for one in found), len(found)).is_met

    low, high = saturated / 100, saturated
    if not is_met(low):
        raise CommandError(f"even a server without load misses {slo}: allow more time, or shorten the texts")
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        low, high = (middle, high) if is_met(middle) else (low, middle)
    return Capacity(saturated, low)


def plan(found: Capacity, *, rate: float, characters: float, price: float | None, spare: int) -> Plan:
    """The servers for a rate.

    characters: of one request. price: of one server for an hour. spare: servers that may fail.
    """
    num_servers = math.ceil(rate / found.rate) + spare
    if price is None:
        return Plan(num_servers, None, None)
    return Plan(num_servers, price * num_servers, price * num_servers / (3600 * rate * characters) * 1e6)
