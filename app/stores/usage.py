"""Counts what each caller uses, and refuses what is beyond a limit of its key.

A count belongs to a caller, a kind and a period, such as the characters of `sales` on one day. A store (`usage_store`)
keeps the counts across restarts and shares them with other servers. `usage_saver` exchanges counts with it.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple

from app.errors import DeadlineExceeded, PayloadTooLarge, QuotaExceeded, RequestCancelled, UsageUnavailable
from app.stores.key_limits import CONCURRENT, KINDS, NO_LIMITS, KeyLimits, Kind, Period, Unit, format_time
from app.stores.usage_saver import UsageSaver
from app.stores.usage_store import Count, UsageStore

# Seconds that a scrape of the metrics waits for the store. If smaller, a slow disk leaves older counts in the metrics.
# If larger, all metrics are late while the store does not answer.
SCRAPE_WAIT_S = 0.5


class LimitUsage(NamedTuple):
    """What one caller has used of one limit in the current period."""

    kind: Kind
    limit: int
    used: int
    period: Period

    @property
    def remaining(self) -> int:
        """What is left; 0 if servers that share the counts have together used more than the limit."""
        return max(0, self.limit - self.used)


@dataclass
class KeyTotals:
    """What a caller with a named key has used since the process started or its name was added.

    refused: requests beyond a limit, by the limit's name.
    """

    num_requests: int = 0
    num_characters: int = 0
    refused: Counter[str] = field(default_factory=Counter)


class Usage:
    """The counts of all callers. For use on the event loop only.

    saver: None if the counts are in memory only.
    """

    def __init__(self, store: UsageStore | None = None, *, clock: Callable[[], float] = time.time) -> None:
        """store: None to keep the counts in memory only. clock: seconds since 1970."""
        self.limits: Mapping[str, KeyLimits] = {}
        self.totals: dict[str, KeyTotals] = {}
        self.saver = None if store is None else UsageSaver(store, clock, self._take)
        self.clock = clock
        self._used: Counter[Count] = Counter()  # in the current periods, by all servers as far as known
        self._in_progress: Counter[str] = Counter()
        self._periods: dict[Kind, Period] = {}
        # All of `_periods` are current between these times, the latest start and the earliest end.
        self._periods_start_at = self._periods_end_at = 0

    def set_limits(self, limits: Mapping[str, KeyLimits]) -> None:
        """Replace the limits of all keys, by name. Forgets the totals of names that are not in `limits`."""
        self.limits = limits
        self.totals = {name: totals for name, totals in self.totals.items() if name in limits}

    async def begin(self, caller: str, num_characters: int) -> Spending:
        """Count a request with this many code points. `Spending.end` must follow.

        Raises PayloadTooLarge if the request alone exceeds a limit. Raises QuotaExceeded if it exceeds what is left of
        a limit, or if too many requests are in progress. In both cases only the refusal is counted. Raises
        UsageUnavailable; then nothing is counted.
        """
        limits = await self._limits_of(caller)
        self._check_in_progress(caller, limits)
        counts = self._count(caller, limits, {Unit.REQUESTS: 1, Unit.CHARACTERS: num_characters})
        self._in_progress[caller] += 1
        return Spending(self, caller, num_characters, counts)

    async def count_characters(self, spending: Spending, num_characters: int) -> None:
        """Count further code points of a request in progress. If it raises as `begin` does, none of them is counted."""
        caller = spending.caller
        limits = await self._limits_of(caller)
        spending.counts += self._count(caller, limits, {Unit.REQUESTS: 0, Unit.CHARACTERS: num_characters})
        spending.num_characters += num_characters

    async def _limits_of(self, caller: str) -> KeyLimits:
        """Return the caller's limits, after a refresh if they need counts. Raises UsageUnavailable."""
        if self.limits.get(caller, NO_LIMITS).counted:
            await self.refresh()
        return self.limits.get(caller, NO_LIMITS)  # they may have changed meanwhile

    async def refresh(self) -> None:
        """Read the counts of other servers, unless the last exchange is fresh. Raises UsageUnavailable."""
        if self.saver is not None:
            await self.saver.ensure_fresh()

    async def refresh_for_scrape(self) -> None:
        """Do as `refresh`, but keep the counts of the last exchange if the store fails or is slow (SCRAPE_WAIT_S)."""
        if self.saver is not None:
            with contextlib.suppress(UsageUnavailable):
                await self.saver.ensure_fresh(wait_s=SCRAPE_WAIT_S)

    async def close(self) -> None:
        """Save all counts."""
        if self.saver is not None:
            await self.saver.close()

    def limit_usages(self, caller: str) -> list[LimitUsage]:
        """Return what the caller has used of each limit of its key.

        The limit on concurrent requests is not in the list.
        """
        limits, periods = self.limits.get(caller, NO_LIMITS), self._update_periods()
        return [
            LimitUsage(kind, most, self.used(caller, kind), periods[kind]) for kind, most in limits.counted
        ]

    def used(self, caller: str, kind: Kind) -> int:
        """Return what the caller has used in the current period."""
        return self._used[Count(caller, kind.name, self._update_periods()[kind].starts_at)]

    def num_in_progress(self, caller: str) -> int:
        """Return the number of the caller's requests in progress in this process."""
        return self._in_progress[caller]

    def finish(self, spending: Spending, *, is_kept: bool) -> None:
        """End a spending. is_kept: whether its counts stay."""
        caller = spending.caller
        self._in_progress[caller] -= 1
        if not self._in_progress[caller]:
            del self._in_progress[caller]
        if is_kept:
            if caller in self.limits:  # it may have been removed since the request began
                totals = self.totals.setdefault(caller, KeyTotals())
                totals.num_requests += 1
                totals.num_characters += spending.num_characters
        else:
            self._add(spending.counts, -1)

    def _add(self, counts: Sequence[tuple[Count, int]], sign: int) -> None:
        for count, amount in counts:
            self._used[count] += sign * amount
            if self.saver is not None:
                self.saver.add(count, sign * amount)

    def _take(self, counts: Counter[Count]) -> None:
        self._used = counts

    def _count(self, caller: str, limits: KeyLimits, amounts: Mapping[Unit, int]) -> list[tuple[Count, int]]:
        """Count the amounts in the current periods. Raises as `_check`; then nothing is counted."""
        self._check(caller, limits, amounts)
        counts = [
            (Count(caller, kind.name, period.starts_at), amounts[kind.unit])
            for kind, period in self._update_periods().items()
            if amounts[kind.unit]
        ]
        self._add(counts, 1)
        return counts

    def _check_in_progress(self, caller: str, limits: KeyLimits) -> None:
        """Raise QuotaExceeded if the limit on concurrent requests is reached."""
        most = limits.concurrent_requests
        if most is not None and self._in_progress[caller] >= most:
            self._count_refusal(caller, CONCURRENT)
            raise QuotaExceeded(
                f"the limit of this API key is {most} requests in progress; send the next one when one has ended",
                retry_after_s=1.0,
            )

    def _check(self, caller: str, limits: KeyLimits, amounts: Mapping[Unit, int]) -> None:
        """Raise QuotaExceeded or PayloadTooLarge if the amounts are beyond a limit of a period."""
        if not limits.counted:
            return
        exceeded = [
            each
            for each in self.limit_usages(caller)
            if (amount := amounts[each.kind.unit]) and each.used + amount > each.limit
        ]
        if exceeded:
            # A limit that is smaller than the request refuses it in every period. Without such a limit, the request is
            # refused until the period of every exceeded limit has ended.
            worst = max(
                exceeded, key=lambda each: (amounts[each.kind.unit] > each.limit, each.period.ends_at)
            )
            self._count_refusal(caller, worst.kind.name)
            raise self._refusal(worst, amounts[worst.kind.unit])

    def _refusal(self, exceeded: LimitUsage, amount: int) -> QuotaExceeded | PayloadTooLarge:
        kind, period = exceeded.kind, exceeded.period
        limit = f"the limit of this API key is {exceeded.limit} {kind.unit} a {kind.length}"
        if amount > exceeded.limit:
            return PayloadTooLarge(f"{limit}; this request needs {amount}")
        return QuotaExceeded(
            f"{limit}: {exceeded.used} are used, and this request needs {amount}; "
            f"the next {kind.length} begins at {format_time(period.ends_at)}",
            retry_after_s=period.ends_at - self.clock(),
            is_of_characters=kind.unit is Unit.CHARACTERS,
        )

    def _count_refusal(self, caller: str, limit: str) -> None:
        self.totals.setdefault(caller, KeyTotals()).refused[limit] += 1

    def _update_periods(self) -> dict[Kind, Period]:
        """Return the current period of each kind. If one has changed, forget the counts of the other periods.

        A period also changes if the clock is set back.
        """
        now = self.clock()
        if not self._periods_start_at <= now < self._periods_end_at:
            self._periods = {kind: kind.period_at(now) for kind in KINDS.values()}
            self._periods_start_at = max(period.starts_at for period in self._periods.values())
            self._periods_end_at = min(period.ends_at for period in self._periods.values())
            starts = {kind.name: period.starts_at for kind, period in self._periods.items()}
            for count in [count for count in self._used if count.starts_at != starts[count.kind]]:
                del self._used[count]
        return self._periods


class Spending:
    """The counts of one request in progress, which `end` keeps or gives back. A context manager that calls `end`.

    is_delivered: whether a streamed response has begun. If so, a request whose deadline passes keeps its counts.
    """

    def __init__(
        self, usage: Usage, caller: str, num_characters: int, counts: list[tuple[Count, int]]
    ) -> None:
        self.caller = caller
        self.num_characters = num_characters
        self.counts = counts
        self.is_delivered = False
        self._usage: Usage | None = usage

    def end(self, error: BaseException | None) -> None:
        """Keep the counts after a success, if the client gave up, or at a deadline if `is_delivered`.

        After other errors, give them back. Later calls do nothing.
        """
        usage, self._usage = self._usage, None
        if usage is None:
            return
        is_kept = error is None or isinstance(error, RequestCancelled)
        if self.is_delivered and isinstance(error, DeadlineExceeded):
            is_kept = True
        usage.finish(self, is_kept=is_kept)

    def __enter__(self) -> Spending:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(error)
