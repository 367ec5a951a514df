"""The headers of a key's limits: when the next period begins, and none while the counts are unknown."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.api.spending import begin_spending, spend_characters
from app.errors import QuotaExceeded, UsageUnavailable
from app.stores.key_limits import KeyLimits
from app.stores.usage import Usage
from app.stores.usage_store import Batch, Count, UsageStoreError


class Store:
    """A store in memory. fails: whether exchanges fail."""

    fails = False

    def exchange(self, batch: Batch | None, time_s: float) -> dict[Count, int]:
        if self.fails:
            raise UsageStoreError("no disk")
        return {}

    def close(self) -> None:
        """Nothing is open."""


def scope_of(caller: str) -> dict[str, Any]:
    return {"type": "http", "state": {"caller": caller}}


def test_the_next_period_has_begun_after_the_seconds_of_the_header() -> None:
    time_s = 1_800_000_049.1  # 10.9 s before the next minute
    usage = Usage(clock=lambda: time_s)
    usage.set_limits({"sales": KeyLimits(requests_per_minute=1)})
    scope = scope_of("sales")
    asyncio.run(begin_spending(scope, usage, 1))
    expected = [(b"ratelimit-policy", b'"requests_per_minute";q=1;w=60')]
    expected.append((b"ratelimit", b'"requests_per_minute";r=0;t=11'))
    assert scope["state"]["limit_headers"] == expected
    refused = scope_of("sales")
    with pytest.raises(QuotaExceeded):
        asyncio.run(begin_spending(refused, usage, 1))
    assert refused["state"]["limit_headers"] == expected


def test_unknown_counts_are_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.stores.usage_saver.FRESH_S", 0.0)

    async def scenario() -> None:
        store = Store()
        usage = Usage(store)
        usage.set_limits({"sales": KeyLimits(characters_per_month=100)})
        scope = scope_of("sales")
        with await begin_spending(scope, usage, 1) as spending:
            assert len(scope["state"]["limit_headers"]) == 2
            store.fails = True
            with pytest.raises(UsageUnavailable):
                await spend_characters(scope, usage, spending, 1)
        assert scope["state"]["limit_headers"] == []
        refused = scope_of("sales")
        with pytest.raises(UsageUnavailable):
            await begin_spending(refused, usage, 1)
        assert refused["state"]["limit_headers"] == []
        await usage.close()

    asyncio.run(scenario())
