"""A model whose engine cannot be made leaves no worker behind."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from app.api.service import Service
from app.errors import SettingsError
from app.model_starter import ModelStarter
from app.observability.metrics import Metrics
from app.settings import Settings
from app.stores.glossaries import GlossaryStore
from tests.engine.fake_runner import FakeRunner


def test_the_workers_of_a_model_that_the_engine_refuses_are_closed() -> None:
    closed: list[int] = []
    workers = [
        SimpleNamespace(limits=FakeRunner().limits, close=lambda number=number: closed.append(number))
        for number in range(2)
    ]
    model: Any = SimpleNamespace(workers=workers, start_worker=None)

    async def scenario() -> None:
        with ThreadPoolExecutor(1) as executor:
            service = Service(Metrics(), GlossaryStore(None))
            starter = ModelStarter(
                Settings(max_encode_tokens=1), service, executor=executor, on_death=lambda _engine: None
            )
            with pytest.raises(SettingsError, match="max_encode_tokens"):
                await starter.start(model, None, cache_bytes=0)

    asyncio.run(scenario())
    assert closed == [0, 1]
