"""The RateLimit headers of a key: what is left, and when the next period begins. Unknown counts have no headers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.api.http.dialect import Dialects
from app.api.http.middleware import RequestScope
from app.api.spending import begin_spending, spend_characters
from app.errors import (
    DeadlineExceeded,
    EngineFailure,
    Overloaded,
    QuotaExceeded,
    UnsupportedLanguages,
    UsageUnavailable,
)
from app.observability.metrics import Metrics
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


def test_the_next_period_has_begun_after_the_seconds_in_the_header() -> None:
    time_s = 1_800_000_049.1  # 10.9 s before the next minute
    usage = Usage(clock=lambda: time_s)
    usage.set_limits({"sales": KeyLimits(requests_per_minute=1)})
    scope = scope_of("sales")
    asyncio.run(begin_spending(scope, usage, 1))
    expected = [(b"ratelimit-policy", b'"requests_per_minute";q=1;w=60')]
    expected.append((b"ratelimit", b'"requests_per_minute";r=0;t=11'))
    assert scope["state"]["limit_headers"]() == expected
    refused = scope_of("sales")
    with pytest.raises(QuotaExceeded):
        asyncio.run(begin_spending(refused, usage, 1))
    assert refused["state"]["limit_headers"]() == expected


def test_unknown_counts_are_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.stores.usage_saver.FRESH_S", 0.0)

    async def scenario() -> None:
        store = Store()
        usage = Usage(store)
        usage.set_limits({"sales": KeyLimits(characters_per_month=100)})
        scope = scope_of("sales")
        with await begin_spending(scope, usage, 1) as spending:
            assert len(scope["state"]["limit_headers"]()) == 2
            store.fails = True
            with pytest.raises(UsageUnavailable):
                await spend_characters(scope, usage, spending, 1)
        assert scope["state"]["limit_headers"]() == []
        refused = scope_of("sales")
        with pytest.raises(UsageUnavailable):
            await begin_spending(refused, usage, 1)
        assert refused["state"]["limit_headers"]() == []
        await usage.close()

    asyncio.run(scenario())


def rest_after(work: Callable[[Usage], None], *, num_characters: int | None = 20) -> tuple[int, str | None]:
    """The status and the header RateLimit of a request that does this work. Its key has 100 characters a day.

    num_characters: the characters that the request spends; None if its route counts nothing.
    """
    usage = Usage(clock=lambda: 86_390.0)
    usage.set_limits({"sales": KeyLimits(requests_per_day=9, characters_per_day=100)})

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"]["caller"] = "sales"
        if num_characters is not None:
            with await begin_spending(scope, usage, num_characters):
                work(usage)
        await Response()(scope, receive, send)

    async def request() -> httpx.Response:
        transport = httpx.ASGITransport(RequestScope(app, metrics=Metrics(), dialects=Dialects()))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.get("/")

    answer = asyncio.run(request())
    return answer.status_code, answer.headers.get("ratelimit")


def raising(error: Exception) -> Callable[[Usage], None]:
    def work(usage: Usage) -> None:
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (DeadlineExceeded("late"), 504),
        (Overloaded("the queue is full", retry_after_s=1), 429),
        (UnsupportedLanguages("no such pair"), 422),
        (EngineFailure("broken"), 500),
        (ZeroDivisionError(), 500),
    ],
)
def test_what_is_left_after_an_error_includes_what_is_given_back(error: Exception, status: int) -> None:
    expected = '"requests_per_day";r=9;t=10, "characters_per_day";r=100;t=10'
    assert rest_after(raising(error)) == (status, expected)


def test_what_is_left_after_a_success_is_less() -> None:
    expected = '"requests_per_day";r=8;t=10, "characters_per_day";r=80;t=10'
    assert rest_after(lambda _: None) == (200, expected)


def test_a_request_that_spends_nothing_has_no_headers_of_limits() -> None:
    assert rest_after(lambda _: None, num_characters=None) == (200, None)
