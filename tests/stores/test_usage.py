"""What callers use is counted by period, and what is beyond a limit is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest

from app.errors import (
    DeadlineExceeded,
    EngineFailure,
    Overloaded,
    PayloadTooLarge,
    QuotaExceeded,
    RequestCancelled,
)
from app.stores.key_limits import KINDS, KeyLimits
from app.stores.usage import Usage


class Clock:
    """A clock that tests set."""

    def __init__(self, text: str) -> None:
        self.set(text)

    def set(self, text: str) -> None:
        self.time_s = datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()

    def __call__(self) -> float:
        return self.time_s


def usage_of(clock: Clock, **limits: int) -> Usage:
    usage = Usage(clock=clock)
    usage.set_limits({"sales": KeyLimits(**limits)})
    return usage


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def spend(usage: Usage, num_characters: int = 1, caller: str = "sales") -> None:
    with run(usage.begin(caller, num_characters)):
        pass


def refusal(usage: Usage, num_characters: int = 1) -> QuotaExceeded:
    with pytest.raises(QuotaExceeded) as raised:
        spend(usage, num_characters)
    return raised.value


@pytest.mark.parametrize(
    ("kind", "time", "start", "end"),
    [
        ("requests_per_minute", "2027-12-31T23:59:59.9", "2027-12-31T23:59", "2028-01-01T00:00"),
        ("requests_per_day", "2028-02-29T12:00", "2028-02-29", "2028-03-01"),
        ("characters_per_day", "2028-02-29T00:00", "2028-02-29", "2028-03-01"),
        ("characters_per_month", "2028-01-31T12:00", "2028-01-01", "2028-02-01"),
        ("characters_per_month", "2028-02-29T23:59:59", "2028-02-01", "2028-03-01"),
        ("characters_per_month", "2028-12-01T00:00", "2028-12-01", "2029-01-01"),
    ],
)
def test_periods_follow_the_calendar_in_utc(kind: str, time: str, start: str, end: str) -> None:
    period = KINDS[kind].period_at(Clock(time)())
    assert period == (Clock(start)(), Clock(end)())


def test_a_limit_can_be_used_to_the_last_character_and_begins_anew_in_the_next_period() -> None:
    clock = Clock("2027-03-31T22:00:30")
    usage = usage_of(clock, characters_per_day=100)
    spend(usage, 60)
    error = refusal(usage, 41)
    assert error.message == (
        "the limit of this API key is 100 characters a day: 60 are used, and this request needs 41; "
        "the next day begins at 2027-04-01T00:00:00Z"
    )
    assert (error.retry_after_s, error.is_of_characters) == (7170, True)
    spend(usage, 40)
    refusal(usage, 1)
    clock.set("2027-03-31T23:59:59")
    refusal(usage, 1)
    clock.set("2027-04-01")
    spend(usage, 100)


def test_the_last_period_to_end_decides_when_to_retry() -> None:
    usage = usage_of(
        Clock("2027-03-30T23:59:50"), requests_per_minute=1, requests_per_day=1, characters_per_month=5
    )
    spend(usage, 4)
    assert refusal(usage, 1).retry_after_s == 10
    assert refusal(usage, 2).retry_after_s == 24 * 3600 + 10


def test_a_request_without_characters_passes_if_a_lowered_limit_is_already_exceeded() -> None:
    usage = usage_of(Clock("2027-01-01"), characters_per_day=120)
    spend(usage, 120)
    usage.set_limits({"sales": KeyLimits(characters_per_day=119)})
    spend(usage, 0)
    refusal(usage, 1)


def test_nothing_is_left_of_a_limit_that_was_lowered_below_what_is_used() -> None:
    usage = usage_of(Clock("2027-01-01"), characters_per_day=120)
    spend(usage, 120)
    usage.set_limits({"sales": KeyLimits(characters_per_day=100)})
    (of_limit,) = usage.limit_usages("sales")
    assert (of_limit.used, of_limit.remaining) == (120, 0)


def test_a_request_above_a_whole_limit_is_too_large() -> None:
    usage = usage_of(Clock("2027-01-01"), characters_per_day=100)
    with pytest.raises(
        PayloadTooLarge, match="the limit of this API key is 100 characters a day; this request needs 101"
    ):
        spend(usage, 101)


@pytest.mark.parametrize(
    "limits",
    [
        {"characters_per_day": 100, "characters_per_month": 120},
        {"characters_per_day": 100, "requests_per_day": 1},
        {"characters_per_day": 100, "characters_per_month": 101, "requests_per_minute": 1},
    ],
)
def test_a_request_above_one_whole_limit_is_too_large_whatever_others_it_exceeds(
    limits: dict[str, int],
) -> None:
    """Every period refuses the request, so the error names no time for another try."""
    usage = usage_of(Clock("2027-01-01"), **limits)
    spend(usage, 90)
    with pytest.raises(PayloadTooLarge, match="100 characters a day; this request needs 101"):
        spend(usage, 101)
    assert usage.totals["sales"].refused == {"characters_per_day": 1}


def test_a_refused_request_costs_nothing() -> None:
    usage = usage_of(Clock("2027-01-01"), requests_per_day=5, characters_per_day=10)
    spend(usage, 8)
    for _ in range(3):
        refusal(usage, 3)
    assert usage.used("sales", KINDS["requests_per_day"]) == 1
    assert usage.used("sales", KINDS["characters_per_month"]) == 8
    assert usage.totals["sales"].refused == {"characters_per_day": 3}


@pytest.mark.parametrize(
    ("error", "is_delivered", "used"),
    [
        (EngineFailure("x"), False, 0),
        (Overloaded("x", retry_after_s=1), False, 0),
        (DeadlineExceeded("x"), False, 0),
        (asyncio.CancelledError(), False, 0),
        (ZeroDivisionError(), False, 0),
        (RequestCancelled("x"), False, 7),
        (DeadlineExceeded("x"), True, 7),
        (EngineFailure("x"), True, 0),
    ],
)
def test_which_failures_give_the_counts_back(error: BaseException, is_delivered: bool, used: int) -> None:
    usage = usage_of(Clock("2027-01-01"))

    def fail() -> None:
        with run(usage.begin("sales", 7)) as spending:
            assert usage.used("sales", KINDS["characters_per_day"]) == 7
            spending.is_delivered = is_delivered
            raise error

    with pytest.raises(type(error)):
        fail()
    assert usage.used("sales", KINDS["characters_per_day"]) == used
    assert usage.used("sales", KINDS["requests_per_minute"]) == bool(used)
    assert usage.num_in_progress("sales") == 0


def test_counts_are_given_back_to_the_period_in_which_they_were_taken() -> None:
    clock = Clock("2027-01-01T23:59:59")
    usage = usage_of(clock, characters_per_day=10)
    spending = run(usage.begin("sales", 10))
    clock.set("2027-01-02")
    spend(usage, 10)
    spending.end(EngineFailure("x"))
    assert usage.used("sales", KINDS["characters_per_day"]) == 10
    refusal(usage)


def test_concurrent_requests_are_limited() -> None:
    usage = usage_of(Clock("2027-01-01"), concurrent_requests=2)
    first, second = run(usage.begin("sales", 1)), run(usage.begin("sales", 1))
    assert "2 requests in progress" in refusal(usage).message
    spend(usage, caller="others")
    first.end(None)
    first.end(None)  # a second end has no effect
    third = run(usage.begin("sales", 1))
    refusal(usage)
    second.end(None)
    third.end(None)
    assert usage.num_in_progress("sales") == 0


def test_characters_that_are_counted_later_are_given_back_with_the_request() -> None:
    usage = usage_of(Clock("2027-01-01"), concurrent_requests=1, requests_per_day=1, characters_per_day=10)

    def used() -> list[int]:
        kinds = ("requests_per_day", "characters_per_day", "characters_per_month")
        return [usage.num_in_progress("sales"), *(usage.used("sales", KINDS[kind]) for kind in kinds)]

    spending = run(usage.begin("sales", 2))
    run(usage.count_characters(spending, 5))
    assert used() == [1, 1, 7, 7]
    with pytest.raises(QuotaExceeded, match="10 characters a day: 7 are used, and this request needs 4"):
        run(usage.count_characters(spending, 4))
    assert used() == [1, 1, 7, 7]
    spending.end(EngineFailure("x"))
    assert used() == [0, 0, 0, 0]
    with run(usage.begin("sales", 0)) as spending:
        run(usage.count_characters(spending, 10))
    assert used() == [0, 1, 10, 10]
    assert (usage.totals["sales"].num_requests, usage.totals["sales"].num_characters) == (1, 10)


def test_the_totals_of_a_name_that_is_added_again_begin_at_zero() -> None:
    usage = usage_of(Clock("2027-01-01"))
    spending = run(usage.begin("sales", 7))
    usage.set_limits({})
    spending.end(None)
    usage.set_limits({"sales": KeyLimits()})
    assert usage.totals == {}
    spend(usage, 5)
    assert usage.totals["sales"].num_characters == 5
    assert usage.used("sales", KINDS["characters_per_day"]) == 12


def test_limits_that_are_removed_while_the_counts_are_read_refuse_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usage = usage_of(Clock("2027-01-01"), requests_per_minute=5, concurrent_requests=1)

    async def remove_the_key() -> None:
        usage.set_limits({})

    with run(usage.begin("sales", 1)) as spending:
        monkeypatch.setattr(usage, "refresh", remove_the_key)
        with run(usage.begin("sales", 1)):
            pass
        usage.set_limits({"sales": KeyLimits(characters_per_day=5)})
        run(usage.count_characters(spending, 10))
    assert {name: totals.refused for name, totals in usage.totals.items() if totals.refused} == {}


def test_new_limits_apply_to_old_counts() -> None:
    usage = usage_of(Clock("2027-01-01"))
    spend(usage, 50)
    usage.set_limits({"sales": KeyLimits(characters_per_day=60), "others": KeyLimits()})
    refusal(usage, 11)
    spend(usage, 10)
    spend(usage, 1000, caller="others")
