"""Coroutines that run at once end together."""

from __future__ import annotations

import asyncio

import pytest

from app.translator.all_of import all_of


def test_the_results_have_the_order_of_the_coroutines() -> None:
    async def after(num_turns: int) -> int:
        for _ in range(num_turns):
            await asyncio.sleep(0)
        return num_turns

    async def run() -> list[int]:
        return await all_of([after(3), after(0), after(1)])

    assert asyncio.run(run()) == [3, 0, 1]


def test_if_one_fails_the_others_are_cancelled_and_have_ended() -> None:
    events = []

    async def fail() -> None:
        raise LookupError("no such text")

    async def go_on() -> None:
        try:
            for _ in range(9):
                await asyncio.sleep(0)
            events.append("finished")
        finally:
            events.append("ended")

    async def run() -> None:
        with pytest.raises(LookupError, match="no such text"):
            await all_of([go_on(), fail()])
        assert events == ["ended"]

    asyncio.run(run())
