"""The pool keeps the loaded models within its budget, and shares loads among requests. The models are fakes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, cast

import pytest

from app.errors import BundleError, ModelInUse, NotReady
from app.translator import ModelPool, PooledModel, Translator

HANG_TIMEOUT_S = 60.0


class Loads:
    """Loads and unloads fake models, and records the pool's actions.

    may_load: loads wait while it is cleared. broken: the names of the models whose loads fail.
    """

    def __init__(self, max_bytes: int) -> None:
        self.pool = ModelPool(max_bytes, unload=self.unload, listener=self)
        self.may_load = asyncio.Event()
        self.may_load.set()
        self.events: list[str] = []
        self.broken: set[str] = set()
        self.peak_bytes = 0

    def model(self, name: str, num_bytes: int = 1) -> PooledModel:
        async def load(_model: PooledModel) -> Translator:
            self.events.append(f"load {name}")
            self.peak_bytes = max(self.peak_bytes, self.pool.num_bytes)
            await self.may_load.wait()
            if name in self.broken:
                raise BundleError(name, ["broken"])
            return cast("Translator", name)

        return PooledModel(name, num_bytes, load)

    async def unload(self, translator: Translator) -> None:
        await asyncio.sleep(0)
        self.events.append(f"unload {translator}")

    def model_loaded(self, model: PooledModel, seconds: float) -> None:
        assert seconds >= 0

    def model_unloaded(self, model: PooledModel) -> None:
        pass

    def model_failed(self, model: PooledModel, error: Exception) -> None:
        self.events.append(f"failed {model.name}")

    async def use(self, *models: PooledModel) -> None:
        for model in models:
            async with self.pool.held(model, time.monotonic() + HANG_TIMEOUT_S) as translator:
                assert cast("str", translator) == model.name

    async def use_both(self, first: PooledModel, last: PooledModel) -> None:
        async with self.pool.both_held(first, last, time.monotonic() + HANG_TIMEOUT_S) as found:
            assert cast("tuple[str, str]", found) == (first.name, last.name)
            await let_tasks_run()

    @contextlib.asynccontextmanager
    async def in_use(self, *models: PooledModel) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for model in models:
                await stack.enter_async_context(self.pool.held(model, time.monotonic() + HANG_TIMEOUT_S))
            yield


def run(max_bytes: int, test: Callable[[Loads], Coroutine[Any, Any, None]]) -> Loads:
    async def main() -> Loads:
        loads = Loads(max_bytes)
        await asyncio.wait_for(test(loads), HANG_TIMEOUT_S)
        await loads.pool.close()
        return loads

    return asyncio.run(main())


async def let_tasks_run() -> None:
    """Let all tasks run until they wait."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_requests_for_one_model_share_its_load() -> None:
    async def test(loads: Loads) -> None:
        model = loads.model("a")
        await asyncio.gather(*(loads.use(model) for _ in range(5)))

    assert run(1, test).events == ["load a"]


def test_the_least_recently_used_model_is_unloaded() -> None:
    async def test(loads: Loads) -> None:
        a, b, c = (loads.model(name) for name in "abc")
        await loads.use(a, b, a, c, a, b)

    loads = run(2, test)
    assert loads.events == ["load a", "load b", "unload b", "load c", "unload c", "load b"]
    assert loads.peak_bytes == 2


def test_a_large_model_unloads_as_many_as_it_needs() -> None:
    async def test(loads: Loads) -> None:
        await loads.use(loads.model("a"), loads.model("b"), loads.model("c"), loads.model("large", 2))

    loads = run(3, test)
    assert loads.events == ["load a", "load b", "load c", "unload a", "unload b", "load large"]
    assert loads.peak_bytes == 3


def test_a_model_in_use_stays_and_the_other_request_waits() -> None:
    async def test(loads: Loads) -> None:
        a, b = loads.model("a"), loads.model("b")
        async with loads.in_use(a):
            waiting = asyncio.create_task(loads.use(b))
            await let_tasks_run()
            assert loads.events == ["load a"]
        await waiting

    assert run(1, test).events == ["load a", "unload a", "load b"]


def test_a_request_waits_no_longer_than_its_deadline() -> None:
    async def test(loads: Loads) -> None:
        a, b = loads.model("a"), loads.model("b")
        async with loads.in_use(a):
            with pytest.raises(
                NotReady, match="the model b is not loaded yet: other requests use all"
            ) as caught:
                async with loads.pool.held(b, time.monotonic() + 0.01):
                    pass
            assert caught.value.retry_after_s > 0
        await let_tasks_run()
        assert loads.events == ["load a"], "no request waits for b any more"
        await loads.use(b)

    assert run(1, test).events == ["load a", "unload a", "load b"]


def test_a_slow_load_goes_on_after_the_deadline() -> None:
    async def test(loads: Loads) -> None:
        model = loads.model("a")
        loads.may_load.clear()
        with pytest.raises(NotReady, match="the model a is not loaded yet: it is loading"):
            async with loads.pool.held(model, time.monotonic() + 0.01):
                pass
        loads.may_load.set()
        await loads.use(model)

    assert run(1, test).events == ["load a"]


def test_a_model_whose_request_gave_up_is_unloaded_for_a_waiting_load() -> None:
    async def test(loads: Loads) -> None:
        a, b = loads.model("a"), loads.model("b")
        loads.may_load.clear()
        with pytest.raises(NotReady, match="it is loading"):
            async with loads.pool.held(a, time.monotonic() + 0.01):
                pass
        waiting = asyncio.create_task(loads.use(b))
        await let_tasks_run()
        loads.may_load.set()
        await waiting

    assert run(1, test).events == ["load a", "unload a", "load b"]


def test_loads_get_memory_in_the_order_of_their_requests() -> None:
    async def test(loads: Loads) -> None:
        a, large, small = loads.model("a"), loads.model("large", 3), loads.model("small")
        async with loads.in_use(a):
            first = asyncio.create_task(loads.use(large))
            await let_tasks_run()
            second = asyncio.create_task(loads.use(small))
            await let_tasks_run()
            assert loads.events == ["load a"], "a small model does not overtake a large one"
        await asyncio.gather(first, second)

    assert run(3, test).events == ["load a", "unload a", "load large", "unload large", "load small"]


def test_a_broken_model_is_refused_for_a_while_and_others_are_served() -> None:
    async def test(loads: Loads) -> None:
        a, b = loads.model("a"), loads.model("b")
        loads.broken.add("a")
        for _ in range(3):
            with pytest.raises(NotReady, match="the model a cannot be loaded") as caught:
                await loads.use(a)
            assert caught.value.retry_after_s > 1
        await loads.use(b)
        loads.broken.clear()
        await loads.pool.load(a)  # an administrator's load tries again at once
        await loads.use(a)

    assert run(1, test).events == ["load a", "failed a", "load b", "unload b", "load a"]


def test_an_administrators_load_gets_the_error() -> None:
    async def test(loads: Loads) -> None:
        loads.broken.add("a")
        with pytest.raises(BundleError, match="broken"):
            await loads.pool.load(loads.model("a"))
        assert loads.pool.num_bytes == 0

    run(1, test)


def test_a_reload_may_exceed_the_budget_but_unloads_idle_models_first() -> None:
    async def test(loads: Loads) -> None:
        old, idle, new = loads.model("old"), loads.model("idle"), loads.model("new")
        await loads.use(idle)
        async with loads.in_use(old):
            await loads.pool.load(new, may_exceed=True)
            assert loads.pool.num_bytes == 2
            async with loads.in_use(new):
                await loads.pool.load(idle, may_exceed=True)
            assert loads.pool.num_bytes == 3
            retired = asyncio.create_task(loads.pool.retire(old))
            await let_tasks_run()
            assert "unload old" not in loads.events
        await retired
        assert loads.pool.num_bytes == 2

    assert run(2, test).events == [
        "load idle", "load old", "unload idle", "load new", "load idle", "unload old",
    ]  # fmt: skip


def test_a_kept_model_is_not_unloaded() -> None:
    async def test(loads: Loads) -> None:
        old, idle, new = (loads.model(name) for name in ("old", "idle", "new"))
        await loads.use(old, idle)
        with loads.pool.kept([old]):
            await loads.pool.load(new, may_exceed=True)
            with pytest.raises(ModelInUse):
                await loads.pool.unload(old)
        await loads.pool.unload(old)

    assert run(2, test).events == ["load old", "load idle", "unload idle", "load new", "unload old"]


def test_a_reload_does_not_wait_for_a_load_that_waits_for_memory() -> None:
    async def test(loads: Loads) -> None:
        used, other, new = loads.model("used"), loads.model("other"), loads.model("new")
        async with loads.in_use(used):
            waiting = asyncio.create_task(loads.use(other))
            await let_tasks_run()
            await loads.pool.load(new, may_exceed=True, timeout_s=1)
            assert loads.events == ["load used", "load new"]
        await waiting

    run(1, test)


def test_a_model_in_use_is_not_unloaded_by_an_administrator() -> None:
    async def test(loads: Loads) -> None:
        a = loads.model("a")
        async with loads.in_use(a):
            with pytest.raises(ModelInUse, match="the model a loads, or a request or a reload uses it"):
                await loads.pool.unload(a)
        await loads.pool.unload(a)
        await loads.pool.unload(a)

    assert run(1, test).events == ["load a", "unload a"]


def test_a_cancelled_request_leaves_no_user() -> None:
    async def test(loads: Loads) -> None:
        a, b = loads.model("a"), loads.model("b")
        async with loads.in_use(a):
            waiting = asyncio.create_task(loads.use(b))
            await let_tasks_run()
            waiting.cancel()
            await let_tasks_run()
            again = asyncio.create_task(loads.use(b))
            await let_tasks_run()
        await again
        assert a.num_users == b.num_users == 0

    assert run(1, test).events == ["load a", "unload a", "load b"]


def test_closing_ends_waits() -> None:
    async def test(loads: Loads) -> None:
        loads.may_load.clear()
        waiting = asyncio.create_task(loads.use(loads.model("a")))
        await let_tasks_run()
        await loads.pool.close()
        with pytest.raises(NotReady, match="shutting down"):
            await waiting
        assert loads.pool.num_bytes == 0

    run(1, test)


def test_two_requests_that_need_two_models_each_do_not_block_each_other() -> None:
    async def test(loads: Loads) -> None:
        a, b, c, d = (loads.model(name) for name in "abcd")

        await asyncio.gather(*(loads.use_both(*pair) for pair in ((a, b), (c, d), (b, a), (a, a))))
        assert all(model.num_users == 0 for model in (a, b, c, d))

    assert run(2, test).peak_bytes == 2


def test_a_request_for_two_models_and_one_for_a_large_model_do_not_block_each_other() -> None:
    async def test(loads: Loads) -> None:
        a, b, c, large = *(loads.model(name) for name in "abc"), loads.model("large", 3)
        loads.may_load.clear()
        waiting = []
        for use in (loads.use_both(a, b), loads.use(large), loads.use(c)):
            waiting.append(asyncio.create_task(use))
            await let_tasks_run()
        loads.may_load.set()
        await asyncio.gather(*waiting)

    assert run(3, test).events == [
        "load a", "load b", "unload a", "unload b", "load large", "unload large", "load c",
    ]  # fmt: skip


def test_a_request_for_two_models_gets_both_at_its_turn_although_a_later_one_waits_for_one_of_them() -> None:
    """The order of the requests: `large`, a and b together, `other`, which is as large, and b alone."""

    async def test(loads: Loads) -> None:
        a, b, used = (loads.model(name) for name in ("a", "b", "used"))
        waiting = []
        async with loads.in_use(used):
            large = (loads.use(loads.model(name, 3)) for name in ("large", "other"))
            for use in (next(large), loads.use_both(a, b), next(large), loads.use(b)):
                waiting.append(asyncio.create_task(use))
                await let_tasks_run()
        await asyncio.gather(*waiting)

    assert run(3, test).events == [
        "load used", "unload used", "load large", "unload large", "load a", "load b", "unload a", "unload b",
        "load other",
    ]  # fmt: skip


def test_two_models_that_do_not_fit_together_are_refused_at_once() -> None:
    async def test(loads: Loads) -> None:
        a, large = loads.model("a"), loads.model("large", 2)
        with pytest.raises(NotReady, match="models a and large do not fit in memory together"):
            await loads.use_both(a, large)
        await loads.use_both(large, large)

    assert run(2, test).events == ["load large"]


def test_a_request_that_waits_for_its_turn_names_the_model_that_is_not_loaded() -> None:
    async def test(loads: Loads) -> None:
        b, c, large = loads.model("b"), loads.model("c"), loads.model("large", 3)
        async with loads.in_use(c):
            waiting = asyncio.create_task(loads.use(large))
            await let_tasks_run()
            for pair in ((b, c), (c, b)):
                with pytest.raises(NotReady, match="the model b is not loaded yet: other requests wait"):
                    async with loads.pool.both_held(*pair, time.monotonic() + 0.01):
                        pass
        await waiting

    assert run(3, test).events == ["load c", "unload c", "load large"]


def test_a_request_for_two_models_waits_no_longer_than_its_deadline() -> None:
    async def test(loads: Loads) -> None:
        a, b = loads.model("a"), loads.model("b")
        loads.may_load.clear()
        waiting = asyncio.create_task(loads.use(a))
        pair = loads.pool.both_held(a, b, time.monotonic() + 0.01)
        other = loads.pool.both_held(b, a, time.monotonic() + 0.01)
        for each in (pair, other):
            with pytest.raises(NotReady, match="is not loaded yet"):
                async with each:
                    pass
        loads.may_load.set()
        await waiting
        assert a.num_users == b.num_users == 0

    run(2, test)
