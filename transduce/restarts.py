"""Whether a server has restarted between two readings of its metrics, so that its counters have begun anew."""

from __future__ import annotations

import math
from collections.abc import Callable

# The Unix time of the server's start. A server without /proc does not report it.
START = "process_start_time_seconds"
REQUESTS = "http_requests_total"


def has_restarted(before: Callable[[str], float], now: Callable[[str], float]) -> bool:
    """Whether START has changed or, on a server without it, the number of requests is lower.

    before, now: the sum of a metric's samples at each reading, by the metric's name without `transduce_`; NaN without
    samples.
    """
    starts = before(START), now(START)
    if any(map(math.isnan, starts)):
        return now(REQUESTS) < before(REQUESTS)
    return starts[0] != starts[1]
