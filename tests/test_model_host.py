"""What becomes of an administrator's request if its model is not replaced, or if the administrator disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.api.service import Service
from app.errors import BundleError, ModelRefused, NotReady, WorkerEnded
from app.model_host import ModelHost
from app.model_starter import BundleLoader, ModelLoader
from app.observability.metrics import Metrics
from app.settings import Settings
from app.startup import LoadedModel, LoadedModels
from app.stores.glossaries import GlossaryStore
from app.text.tokenizer import Tokenizer
from app.translator.text_threads import TextThreads
from tests.api.echo import Behaviour, echo_model
from tests.model.sentences import write_tokenizer


@contextmanager
def new_host(
    loader: ModelLoader | None = None, on_death: Callable[[], None] = lambda: None
) -> Iterator[tuple[ModelHost, Service]]:
    """A host that has loaded nothing, and its service."""
    with TextThreads(1) as text_threads:
        service = Service(Metrics(), GlossaryStore(None))
        yield (
            ModelHost(
                Settings(),
                service,
                text_threads=text_threads,
                loader=loader or BundleLoader(),
                on_death=on_death,
            ),
            service,
        )


@pytest.mark.parametrize("num_iterations", [1, 5])
def test_a_reload_under_way_is_refused_when_the_host_closes(num_iterations: int) -> None:
    """After one iteration, the host is closed before the reload has begun; after five, while it loads the model."""
    models: Any = SimpleNamespace(named=lambda name: name)

    async def load_forever(*_args: object, **_options: object) -> None:
        await asyncio.Event().wait()

    async def scenario() -> None:
        with new_host() as (host, service):
            host._models = models
            host._source.load_one = load_forever  # type: ignore[method-assign, assignment]
            service.become_ready(models)
            reload = asyncio.create_task(host.reload_model("model"))
            for _ in range(num_iterations):
                await asyncio.sleep(0)
            await host.close()
            with pytest.raises(NotReady):
                await asyncio.wait_for(reload, 5)

    asyncio.run(scenario())


def test_a_reload_goes_on_if_the_administrator_disconnects(tmp_path: Path) -> None:
    tokenizer = Tokenizer(write_tokenizer(tmp_path / "tokenizer.spm"))

    def model(*_arguments: object) -> LoadedModel:
        return replace(echo_model(tokenizer, Behaviour(), num_rows=16), path=tmp_path)

    loader: Any = SimpleNamespace(load_all=lambda _settings: LoadedModels([model()]), load_one=model)

    async def scenario() -> None:
        with new_host(loader) as (host, service):
            await host.open()
            (old,) = host.models
            service.become_ready(host.models)
            reload = asyncio.create_task(host.reload_model("echo"))
            await asyncio.sleep(0)
            reload.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reload
            await asyncio.gather(*host._tasks)
            (new,) = host.models
            assert new is not old
            assert len(host._starter._engines) == 1
            await host.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("error", "refusal"),
    [
        (BundleError("a", ["a file is missing"]), ModelRefused),
        (OSError("no memory"), ModelRefused),
        (WorkerEnded("it was killed"), NotReady),
    ],
)
def test_a_model_is_refused_unless_only_its_worker_has_ended(
    error: Exception, refusal: type[Exception]
) -> None:
    models: Any = SimpleNamespace(named=lambda name: name)

    async def fail(*_args: object, **_options: object) -> None:
        raise error

    async def scenario() -> None:
        with new_host() as (host, service):
            host._models = models
            host._source.load = host._source.load_one = fail  # type: ignore[method-assign, assignment]
            service.become_ready(models)
            for act in (host.load_model, host.reload_model):
                with pytest.raises(refusal):
                    await act("model")
            await host.close()

    asyncio.run(scenario())


def test_the_death_of_an_engine_during_the_first_load_is_reported() -> None:
    engine: Any = object()
    deaths: list[str] = []
    with new_host(on_death=lambda: deaths.append("dead")) as (host, _):
        host._on_engine_death(engine)
    assert deaths == ["dead"]
