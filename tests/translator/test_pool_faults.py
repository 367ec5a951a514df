"""The pool's budget and pauses stay right after loads and unloads that fail or are given up. The models are fakes."""

from __future__ import annotations

import asyncio

import pytest

from app.errors import BundleError
from app.translator import ModelPool, PooledModel, Translator
from tests.translator.test_model_pool import Loads, let_tasks_run, run


def test_an_unload_that_fails_frees_the_memory() -> None:
    async def test(loads: Loads) -> None:
        async def fail(_translator: Translator) -> None:
            raise OSError("no worker")

        pool = ModelPool(1, unload=fail, listener=loads)
        model = loads.model("a")
        await pool.load(model)
        assert pool.num_bytes == 1
        with pytest.raises(OSError, match="no worker"):
            await pool.unload(model)
        assert (pool.num_bytes, pool.num_loaded) == (0, 0)

    run(1, test)


async def load_in_vain(loads: Loads) -> PooledModel:
    """A model whose load has failed, and whose next load succeeds."""
    model = loads.model("a")
    loads.broken.add("a")
    with pytest.raises(BundleError):
        await loads.pool.load(model)
    loads.broken.clear()
    return model


def test_a_successful_load_ends_the_pause_after_a_failed_one() -> None:
    async def test(loads: Loads) -> None:
        model = await load_in_vain(loads)
        await loads.pool.load(model)
        await loads.pool.unload(model)
        await loads.use(model)

    assert run(1, test).events == ["load a", "failed a", "load a", "unload a", "load a"]


def test_a_request_in_the_pause_after_a_failed_load_joins_a_load_that_has_begun() -> None:
    async def test(loads: Loads) -> None:
        model = await load_in_vain(loads)
        loads.may_load.clear()
        load = asyncio.create_task(loads.pool.load(model))
        await let_tasks_run()
        use = asyncio.create_task(loads.use(model))
        await let_tasks_run()
        loads.may_load.set()
        await asyncio.gather(load, use)

    assert run(1, test).events == ["load a", "failed a", "load a"]


def test_an_unload_goes_on_if_the_request_that_needs_the_memory_is_cancelled() -> None:
    async def test(loads: Loads) -> None:
        may_end = asyncio.Event()

        async def unload(translator: Translator) -> None:
            await may_end.wait()
            loads.events.append(f"unload {translator}")

        pool = ModelPool(1, unload=unload, listener=loads)
        await pool.load(loads.model("a"))
        waiting = asyncio.create_task(pool.load(loads.model("b")))
        await let_tasks_run()
        waiting.cancel()
        await let_tasks_run()
        assert pool.num_bytes == 1, "the memory is not free yet"
        may_end.set()
        await let_tasks_run()
        assert pool.num_bytes == 0
        await pool.load(loads.model("c"))

    assert run(1, test).events == ["load a", "unload a", "load c"]
