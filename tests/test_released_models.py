"""All objects of a model are freed with the model, without a garbage collection.

A collection skips the objects of the start, and a busy server runs no full collection.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.api.service import Service
from app.errors import BundleError
from app.model_host import ModelHost
from app.model_starter import ModelStarter
from app.observability.metrics import Metrics
from app.pooled_models import PooledModels
from app.settings import Settings
from app.startup import in_daemon_thread
from app.stores.glossaries import GlossaryStore
from app.text.tokenizer import Tokenizer
from app.translator import ModelPool, PooledModel, Translator
from app.translator.text_threads import TextThreads
from app.workers.thread_worker import ThreadWorker
from tests.api.echo import Behaviour, echo_model
from tests.engine.fake_runner import FakeRunner
from tests.model.sentences import write_tokenizer
from tests.test_pooled_models import Loader, Starter, add_model, settings_of


@pytest.fixture(autouse=True)
def no_collections() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    return Tokenizer(write_tokenizer(tmp_path / "tokenizer.spm"))


class Weights:
    """Stands for the memory of a model that is loaded and then refused."""


class FailingLoads:
    """Loads that fail. weights: for each load, a reference to what it had loaded."""

    def __init__(self) -> None:
        self.weights: list[weakref.ref[Weights]] = []

    def load(self, *_arguments: object, **_options: object) -> Any:
        weights = Weights()
        self.weights.append(weakref.ref(weights))
        raise BundleError("bundle", ["refused"]) from ValueError("rounding")

    async def load_model(self, *arguments: object, **_options: object) -> Any:
        return self.load(*arguments)


def test_a_stopped_model_is_freed(tokenizer: Tokenizer) -> None:
    async def scenario() -> None:
        with TextThreads(1) as text_threads:
            service = Service(Metrics(), GlossaryStore(None))
            starter = ModelStarter(
                Settings(), service, text_threads=text_threads, on_death=lambda _engine: None
            )
            model = echo_model(tokenizer, Behaviour(), num_rows=16)
            runner = weakref.ref(model.workers[0]._runner)  # type: ignore[attr-defined]
            translator = await starter.start(model, None, cache_bytes=1 << 20)
            submitter = weakref.ref(translator.submitter)
            del model
            await starter.stop([translator])
            assert runner() is None
            del translator
            assert submitter() is None

    asyncio.run(scenario())


def test_the_runner_of_a_worker_that_has_not_started_is_freed() -> None:
    runner = FakeRunner()
    reference = weakref.ref(runner)
    worker = ThreadWorker(runner)
    del runner
    worker.close()
    assert reference() is None


def test_the_weights_of_a_failed_load_in_a_thread_are_freed() -> None:
    failing = FailingLoads()

    async def scenario() -> None:
        future = in_daemon_thread(failing.load)
        await asyncio.wait([future])
        assert isinstance(future.exception(), BundleError)
        assert failing.weights[0]() is None

    asyncio.run(scenario())


def test_the_weights_of_a_failed_load_of_the_pool_are_freed() -> None:
    failing = FailingLoads()
    listener: Any = SimpleNamespace(model_failed=lambda _model, _error: None)

    async def unload(_translator: Translator) -> None:
        raise AssertionError

    async def scenario() -> None:
        pool = ModelPool(1, unload=unload, listener=listener)
        with pytest.raises(BundleError):
            await pool.load(PooledModel("a", 1, failing.load_model))
        assert failing.weights[0]() is None

    asyncio.run(scenario())


def test_the_weights_of_a_failed_reload_are_freed(tokenizer: Tokenizer) -> None:
    failing = FailingLoads()
    models: Any = SimpleNamespace(named=lambda name: name)

    async def scenario() -> None:
        with TextThreads(1) as text_threads:
            service = Service(Metrics(), GlossaryStore(None))
            loader: Any = None
            host = ModelHost(
                Settings(), service, text_threads=text_threads, loader=loader, on_death=lambda: None
            )
            host._models = models
            host._source.load_one = failing.load_model  # type: ignore[method-assign]
            service.become_ready(models)
            with pytest.raises(Exception, match="refused"):
                await host.reload_model("model")
            assert failing.weights[0]() is None

    asyncio.run(scenario())


def test_a_replaced_model_of_a_memory_budget_is_freed(tmp_path: Path) -> None:
    add_model(tmp_path, "a")
    settings = settings_of(tmp_path)
    starter: Any = Starter()
    loader: Any = Loader()

    async def scenario() -> None:
        source = PooledModels(settings, loader, starter, max_bytes=10**10, on_changed_bundle=lambda: None)
        models = await source.load_all(None)
        (model,) = models
        pooled = weakref.ref(model.translator.model)  # type: ignore[attr-defined]
        await source.retire([model])
        del models, model
        assert pooled() is None
        await source.close()

    asyncio.run(scenario())
