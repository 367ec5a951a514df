"""Retries of a call after 429, 503, a lost answer or a failed connection, bounded in number and time, with jitter."""

from __future__ import annotations

import random
from dataclasses import dataclass
from time import monotonic

from transduce.client.errors import AnswerLost, ConnectionFailed, NotReady, Overloaded, TransduceError
from transduce.client.wire import is_number

# Seconds to wait after 429 or 503 without a Retry-After header.
DEFAULT_RETRY_AFTER_S = 1.0
# Minimum seconds to wait after 429 or 503, so that `Retry-After: 0` does not repeat the request without a pause.
MIN_RETRY_AFTER_S = 0.1
# Retries after failed connections. A server that restarts is back after a moment. If none runs, more would only delay
# the error.
MAX_CONNECTION_RETRIES = 2
# Seconds to wait after a lost answer or the first failed connection. After the second failure the wait doubles.
CONNECTION_RETRY_S = 0.2
# Retries after lost answers. If the retry loses its answer too, the request itself may be what ends the servers.
MAX_LOST_ANSWERS = 1
# The largest random share that is added to a wait, so that callers that were rejected together do not retry together.
JITTER = 0.25


@dataclass(frozen=True)
class RetryLimits:
    """max_retries: retries of one call. max_wait_s: the last retry begins within these seconds of the first failure.

    Raises ValueError if one of them is negative or no number.
    """

    max_retries: int = 5
    max_wait_s: float = 60.0

    def __post_init__(self) -> None:
        for name, value in (("max_retries", self.max_retries), ("max_wait_s", self.max_wait_s)):
            if not is_number(value) or not value >= 0:  # also NaN
                raise ValueError(f"{name} is {value!r}, not a number of at least 0")


class RetryState:
    """The attempts of one call so far."""

    def __init__(self, limits: RetryLimits) -> None:
        self._limits = limits
        self._num_retries = 0
        self._num_failed_connections = 0
        self._num_lost_answers = 0
        self._first_failure: float | None = None

    def wait_after(self, error: TransduceError) -> float:
        """Seconds to wait before the next attempt. Raises `error` if there is no further attempt."""
        now = monotonic()
        if self._first_failure is None:
            self._first_failure = now
        wait_s = self._wait_s(error) * (1 + random.uniform(0, JITTER))
        next_s = now - self._first_failure + wait_s
        if self._num_retries >= self._limits.max_retries or next_s > self._limits.max_wait_s:
            raise error
        self._num_retries += 1
        return wait_s

    def _wait_s(self, error: TransduceError) -> float:
        if isinstance(error, Overloaded | NotReady):
            wanted_s = DEFAULT_RETRY_AFTER_S if error.retry_after_s is None else error.retry_after_s
            return max(wanted_s, MIN_RETRY_AFTER_S)
        if isinstance(error, ConnectionFailed) and self._num_failed_connections < MAX_CONNECTION_RETRIES:
            self._num_failed_connections += 1
            return CONNECTION_RETRY_S * self._num_failed_connections
        if isinstance(error, AnswerLost) and self._num_lost_answers < MAX_LOST_ANSWERS:
            self._num_lost_answers += 1
            return CONNECTION_RETRY_S
        raise error
