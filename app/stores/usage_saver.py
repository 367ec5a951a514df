"""Exchanges counts with a store in a thread, in batches, and lets a request wait for fresh counts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from app.errors import UsageUnavailable
from app.observability.logging import log_event
from app.stores.usage_store import Batch, Count, UsageStore, UsageStoreError

logger = logging.getLogger("app.usage")
# Seconds from the first unsaved count until it is saved. If smaller, more writes. It must be below FRESH_S, so that the
# requests of a busy server find the counts fresh and do not wait.
SAVE_S = 0.5
# A successful exchange counts as fresh for this many seconds from its start. While it is fresh, requests of keys with
# limits start no other one. So a crash loses at most the counts of these seconds, and other servers' counts are at most
# this old.
FRESH_S = 1.0
# Seconds that a request waits for an exchange. If smaller, a slow disk causes refusals.
WAIT_S = 2.0
# Seconds after a failure until a request starts another exchange. Requests of keys with limits are refused meanwhile,
# unless the counts are still fresh.
RETRY_S = 1.0


class UsageSaver:
    """Saves counts. For use on the event loop only. A thread calls the store.

    num_failures: exchanges that have failed.
    """

    def __init__(
        self, store: UsageStore, clock: Callable[[], float], on_counts: Callable[[Counter[Count]], None]
    ) -> None:
        """clock: seconds since 1970. on_counts: receives the counts of all servers after each exchange."""
        self.num_failures = 0
        self._store = store
        self._clock = clock
        self._on_counts = on_counts
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="usage")
        self._unsaved: Counter[Count] = Counter()
        self._num_batches = 0
        self._batch: Batch | None = None  # the last one, while it is being saved or after a failure
        self._exchange: asyncio.Task[bool] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        # Seconds of time.monotonic.
        self._fresh_until = 0.0
        self._retry_at = 0.0

    def add(self, count: Count, amount: int) -> None:
        """Save this amount within SAVE_S."""
        self._unsaved[count] += amount
        self._save_after(SAVE_S)

    async def ensure_fresh(self, *, wait_s: float = WAIT_S) -> None:
        """Exchange counts unless the last exchange is fresh. Raises UsageUnavailable.

        wait_s: maximum number of seconds to wait for the exchange. An exchange that takes longer is not cancelled.
        """
        now = time.monotonic()
        if now < self._fresh_until:
            return
        if now < self._retry_at:
            raise _unavailable(self._retry_at - now)
        exchange = self._started_exchange()
        done, _ = await asyncio.wait({exchange}, timeout=wait_s)
        if not done or not exchange.result():
            raise _unavailable(RETRY_S)

    async def close(self) -> None:
        """Save all counts, and close the store. A failure is logged.

        Waits for the exchange that runs, and for one more, each at most WAIT_S. Counts that are not saved then may be
        lost.
        """
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._exchange is not None:  # it may lack the last counts
            await asyncio.wait({self._exchange}, timeout=WAIT_S)
        if self._exchange is None and (self._unsaved or self._batch is not None):
            await asyncio.wait({self._started_exchange()}, timeout=WAIT_S)
        self._thread.submit(self._store.close)
        self._thread.shutdown(wait=False)

    def _save_after(self, seconds: float) -> None:
        """Start an exchange in some seconds, unless a timer runs already or the saver is closed."""
        if self._timer is not None or self._is_closed:
            return

        def save() -> None:
            self._timer = None
            self._started_exchange()

        self._timer = asyncio.get_running_loop().call_later(seconds, save)

    def _started_exchange(self) -> asyncio.Task[bool]:
        """Return the exchange that runs, or start one."""
        if self._exchange is None:
            self._exchange = asyncio.get_running_loop().create_task(self._run())
        return self._exchange

    async def _run(self) -> bool:
        """Send a batch and take the store's counts. Returns whether that succeeded; a failed batch is sent again."""
        started = time.monotonic()
        try:
            if self._batch is None:
                amounts = {count: amount for count, amount in self._unsaved.items() if amount}
                self._unsaved = Counter()
                if amounts:
                    self._num_batches += 1
                    self._batch = Batch(self._num_batches, amounts)
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self._thread, self._store.exchange, self._batch, self._clock())
        except Exception as error:  # noqa: BLE001 - whatever the store raises, requests wait for its next success
            self._note_failure(error)
            return False
        else:
            self._take(found, started)
            return True
        finally:
            self._exchange = None
            if self._batch is not None or self._unsaved:
                self._save_after(RETRY_S if self._batch is not None else SAVE_S)

    def _take(self, found: dict[Count, int], started: float) -> None:
        """Take the counts of a successful exchange. started: seconds of time.monotonic."""
        self._batch = None
        counts = Counter(found)
        counts.update(self._unsaved)
        self._on_counts(counts)
        self._fresh_until = started + FRESH_S
        if self._retry_at:
            self._retry_at = 0.0
            log_event(logger, logging.WARNING, "usage_store_works_again")

    def _note_failure(self, error: Exception) -> None:
        self.num_failures += 1
        if not self._retry_at:
            is_expected = isinstance(error, UsageStoreError)
            fields = {"problem": str(error) if is_expected else type(error).__name__}
            cause = None if is_expected else error
            log_event(logger, logging.ERROR, "usage_store_failed", error=cause, fields=dict(fields))
        self._retry_at = time.monotonic() + RETRY_S


def _unavailable(seconds: float) -> UsageUnavailable:
    return UsageUnavailable(
        "the counts of this API key cannot be read or saved; come back later", retry_after_s=seconds
    )
