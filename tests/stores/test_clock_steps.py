"""A clock that is set back: requests count in the periods that the clock shows, with a store and without."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.errors import QuotaExceeded
from app.stores import usage_saver
from app.stores.key_limits import KINDS, KeyLimits
from app.stores.usage import Usage
from app.stores.usage_store import SqliteUsageStore
from tests.stores.test_usage import Clock


@pytest.mark.parametrize("limit", ["requests_per_minute", "requests_per_day"])
@pytest.mark.parametrize("has_store", [False, True])
def test_a_limit_holds_after_the_clock_is_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_store: bool, limit: str
) -> None:
    monkeypatch.setattr(usage_saver, "FRESH_S", 0.0)  # each request exchanges the counts

    async def scenario() -> None:
        clock = Clock("2027-03-02T01:00:20")
        usage = Usage(SqliteUsageStore(tmp_path / "usage") if has_store else None, clock=clock)
        usage.set_limits({"sales": KeyLimits(**{limit: 2})})
        for time in ("2027-03-02T01:00:20", "2027-03-01T23:00:30"):
            clock.set(time)
            for number in (1, 2):
                with await usage.begin("sales", 1):
                    assert usage.used("sales", KINDS[limit]) == number
            with pytest.raises(QuotaExceeded) as caught:
                await usage.begin("sales", 1)
            length_s = 60 if limit == "requests_per_minute" else 86_400
            assert caught.value.retry_after_s < length_s
        await usage.close()

    asyncio.run(scenario())
