"""A request of an administrator is answered when the server shuts down before its model is replaced."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from app.api.service import Service
from app.errors import NotReady
from app.model_host import ModelHost
from app.model_starter import BundleLoader
from app.observability.metrics import Metrics
from app.settings import Settings
from app.stores.glossaries import GlossaryStore
from app.translator.text_threads import TextThreads


@pytest.mark.parametrize("num_iterations", [1, 5])
def test_a_reload_under_way_is_refused_when_the_host_closes(num_iterations: int) -> None:
    """After one iteration, the host is closed before the reload has begun; after five, while it loads the model."""
    models: Any = SimpleNamespace(named=lambda name: name)

    async def load_forever(*_args: object, **_options: object) -> None:
        await asyncio.Event().wait()

    async def scenario() -> None:
        with TextThreads(1) as text_threads:
            service = Service(Metrics(), GlossaryStore(None))
            host = ModelHost(
                Settings(), service, text_threads=text_threads, loader=BundleLoader(), on_death=lambda: None
            )
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
