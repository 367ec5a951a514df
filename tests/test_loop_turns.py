"""Turns for work that keeps the event loop busy for milliseconds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.types import Message

from app.api.http.form_body import read_body
from app.api.http.json_body import LARGE_BODY_BYTES, read_json
from app.loop_turns import take_turn

NUM_TASKS = 8


def iterations_of(works: list[Callable[[], Awaitable[object]]]) -> list[int]:
    """Run all works at once. Return the iterations of the event loop in which they ended, in the order of ending."""

    async def run() -> list[int]:
        loop, iteration, ends = asyncio.get_running_loop(), 0, list[int]()

        def count() -> None:
            nonlocal iteration
            iteration += 1
            counting = loop.call_soon(count)
            if len(ends) == len(works):
                counting.cancel()

        async def ended(work: Callable[[], Awaitable[object]]) -> None:
            await work()
            ends.append(iteration)

        loop.call_soon(count)
        await asyncio.gather(*map(ended, works))
        return ends

    return asyncio.run(run())


def body_reader(num_bytes: int, *, is_json: bool) -> Callable[[], Awaitable[object]]:
    """A function that reads a body of this size, whose bytes have all arrived."""
    body = json.dumps("a" * (num_bytes - 2)).encode()

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    scope = {"type": "http", "headers": [(b"content-type", b"application/json")]}
    read = read_json if is_json else read_body
    return lambda: read(Request(scope, receive), max_bytes=1_000_000)


def test_at_most_one_turn_begins_in_an_iteration() -> None:
    ends = iterations_of([take_turn] * NUM_TASKS)
    assert len(set(ends)) == NUM_TASKS


def test_turns_come_in_the_order_of_the_calls() -> None:
    ended: list[int] = []

    async def work(number: int) -> None:
        await take_turn()
        ended.append(number)

    async def run() -> None:
        await asyncio.gather(*map(work, range(NUM_TASKS)))

    asyncio.run(run())
    asyncio.run(run())  # another event loop has turns of its own
    assert ended == [*range(NUM_TASKS)] * 2


def test_large_bodies_are_parsed_in_turns_and_small_ones_at_once() -> None:
    for is_json in (True, False):
        large = iterations_of([body_reader(LARGE_BODY_BYTES + 1, is_json=is_json)] * NUM_TASKS)
        small = iterations_of([body_reader(LARGE_BODY_BYTES, is_json=is_json)] * NUM_TASKS)
        assert len(set(large)) == NUM_TASKS
        assert len(set(small)) == 1
