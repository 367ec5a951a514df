"""A free place goes to the waiting caller that has the fewest places."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from app.fair_turns import FairTurns, PlaceQueue


class Tasks:
    """Tasks that hold a place until they are told to end. order: their names, in the order of their turns."""

    def __init__(self, num_places: int) -> None:
        self.turns = FairTurns(num_places)
        self.order: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def start(self, *names: str) -> None:
        """Start tasks. The first letter of a name is its caller."""
        for name in names:
            self.ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._hold(name))
            await self._settle()

    async def end(self, name: str) -> None:
        self.ends[name].set()
        await self._settle()

    async def cancel(self, name: str) -> None:
        self.tasks[name].cancel()
        await self._settle()

    async def _hold(self, name: str) -> None:
        async with self.turns.turn(name[0]):
            self.order.append(name)
            await self.ends[name].wait()

    async def _settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


def order_of(num_places: int, act: Callable[[Tasks], Awaitable[object]]) -> Sequence[str]:
    """Return the names of all tasks in the order of their turns. act: starts tasks, and may end or cancel some."""

    async def run() -> Sequence[str]:
        tasks = Tasks(num_places)
        await act(tasks)
        for name in tasks.tasks:
            await tasks.end(name)
        assert all(task.done() for task in tasks.tasks.values())
        await tasks.start("z1")  # every place is free again
        assert tasks.order.pop() == "z1"
        await tasks.end("z1")
        return tasks.order

    return asyncio.run(run())


@pytest.mark.parametrize("num_places", [1, 2])
def test_the_tasks_of_one_caller_run_in_order(num_places: int) -> None:
    names = [f"a{number}" for number in range(6)]
    assert order_of(num_places, lambda tasks: tasks.start(*names)) == names


def test_callers_take_turns_at_one_place() -> None:
    names = ["a1", "a2", "a3", "b1", "b2", "c1"]

    async def act(tasks: Tasks) -> None:
        await tasks.start(*names)
        for _ in names:
            await tasks.end(tasks.order[-1])

    assert order_of(1, act) == ["a1", "a2", "b1", "c1", "a3", "b2"]


def test_a_caller_that_holds_no_place_comes_before_one_that_holds_some() -> None:
    async def act(tasks: Tasks) -> None:
        await tasks.start("a1", "a2", "a3", "a4", "b1", "b2")
        await tasks.end("a1")
        assert tasks.order == ["a1", "a2", "b1"]
        await tasks.end("b1")
        assert tasks.order[3:] == ["b2"]

    assert order_of(2, act)[4:] == ["a3", "a4"]


def test_of_the_callers_that_hold_places_the_one_with_the_fewest_comes_first() -> None:
    async def act(tasks: Tasks) -> None:
        await tasks.start("a1", "a2", "b1", "c1", "a3", "b2")
        await tasks.end("c1")

    assert order_of(4, act) == ["a1", "a2", "b1", "c1", "b2", "a3"]


def test_a_caller_whose_wait_is_cancelled_as_a_place_becomes_free_holds_no_place() -> None:
    async def act(tasks: Tasks) -> None:
        await tasks.start("a1", "b1")
        tasks.ends["a1"].set()
        await tasks.cancel("b1")
        await tasks.start("a2", "b2", "a3")
        await tasks.end("a2")

    assert order_of(1, act) == ["a1", "a2", "b2", "a3"]


def test_a_cancelled_wait_takes_no_place() -> None:
    async def act(tasks: Tasks) -> None:
        await tasks.start("a1", "b1", "a2")
        await tasks.cancel("b1")
        await tasks.end("a1")

    assert order_of(1, act) == ["a1", "a2"]


def test_a_caller_that_waits_again_after_a_cancelled_wait_keeps_its_turn() -> None:
    async def act(tasks: Tasks) -> None:
        await tasks.start("a1", "n1")
        await tasks.cancel("n1")
        await tasks.start("n2", "b1", "c1")

    assert order_of(1, act) == ["a1", "n2", "b1", "c1"]


@pytest.mark.parametrize("is_cancelled_first", [True, False])
def test_a_place_for_a_task_that_is_cancelled_meanwhile_goes_to_the_next(is_cancelled_first: bool) -> None:
    async def run() -> None:
        turns = FairTurns(1)

        async def take(caller: str) -> None:
            async with turns.turn(caller):
                pass

        async with turns.turn("a"):
            cancelled, following = (asyncio.create_task(take(caller)) for caller in ("b", "c"))
            await asyncio.sleep(0)
            if is_cancelled_first:
                cancelled.cancel()
        cancelled.cancel()  # if not cancelled above, it has the place by now, but has not run since
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        await asyncio.wait_for(following, 5)

    asyncio.run(run())


def test_the_first_caller_without_a_place_is_found_among_thousands() -> None:
    queue: PlaceQueue[int] = PlaceQueue()
    for number in range(5000):
        queue.add(str(number), number)
    calls = [queue.pop() for _ in range(5000)]
    assert [found and found[1] for found in calls] == list(range(5000))
    assert queue.pop() is None
