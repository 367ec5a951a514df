"""When a call is made again: after 429 and 503 and where the connection failed, never for long, never in step."""

from __future__ import annotations

import random
from dataclasses import dataclass

from transduce.client.errors import ConnectionFailed, NotReady, Overloaded, TransduceError

DEFAULT_RETRY_AFTER_S = 1.0
# A server that is started anew is back after a moment; one that is not there stays away.
MAX_CONNECTION_RETRIES = 2
CONNECTION_RETRY_S = 0.2
# What is added to a wait at random, as a share of it: callers that were refused together do not come back together.
JITTER = 0.25


@dataclass(frozen=True)
class RetryLimits:
    """max_retries: repetitions of one call. max_wait_s: seconds that it may wait between them, altogether."""

    max_retries: int = 5
    max_wait_s: float = 60.0


class RetryState:
    """The attempts of one call."""

    def __init__(self, limits: RetryLimits) -> None:
        self._limits = limits
        self._num_retries = 0
        self._num_connections = 0
        self._waited_s = 0.0

    def wait_after(self, error: TransduceError) -> float:
        """Seconds to wait before the next attempt. Raises `error` where there is to be none."""
        wait_s = self._wait_s(error) * (1 + random.uniform(0, JITTER))
        if self._num_retries == self._limits.max_retries or self._waited_s + wait_s > self._limits.max_wait_s:
            raise error
        self._num_retries += 1
        self._waited_s += wait_s
        return wait_s

    def _wait_s(self, error: TransduceError) -> float:
        if isinstance(error, Overloaded | NotReady):
            return DEFAULT_RETRY_AFTER_S if error.retry_after_s is None else error.retry_after_s
        if isinstance(error, ConnectionFailed) and self._num_connections < MAX_CONNECTION_RETRIES:
            self._num_connections += 1
            return CONNECTION_RETRY_S * self._num_connections
        raise error
