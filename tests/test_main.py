"""The start and the end of an application, in the process of the test."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.api.service import Phase
from app.main import DEAD_ENGINE, Application
from app.observability.loop_lag import LoopLag
from app.settings import Settings
from app.text.tokenizer import Tokenizer
from tests.api.echo import EchoLoader
from tests.model.sentences import write_tokenizer


def test_a_death_between_the_warm_up_and_the_end_of_the_start_is_reported(tmp_path: Path) -> None:
    """With several models, others are loaded in this time. The death ends the server."""

    async def run() -> None:
        tokenizer = Tokenizer(write_tokenizer(tmp_path / "tokenizer.spm"))
        application = Application(Settings(num_threads=1), loader=EchoLoader(tokenizer))
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        failures: list[str] = []

        def on_failure(error: Exception) -> None:
            failures.append(str(error))
            ended.set_result(failures[0])

        application.on_failure = on_failure
        application.on_ready = lambda: ended.set_result("ready")
        open_host = application.host.open

        async def open_and_die() -> None:
            await open_host()
            (engine,) = application.host._starter._engines
            engine.on_end(has_died=True)

        application.host.open = open_and_die  # type: ignore[method-assign]
        async with application.lifespan():
            assert await asyncio.wait_for(ended, 60) == DEAD_ENGINE
            assert application.service.phase is Phase.FAILED
        assert failures == [DEAD_ENGINE], "it is reported once"

    asyncio.run(run())


def test_the_end_ends_the_measurement_of_the_loop_and_the_threads_of_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lags: set[LoopLag] = set()

    class Recorded(LoopLag):
        def start(self) -> None:
            lags.add(self)
            super().start()

    monkeypatch.setattr("app.main.LoopLag", Recorded)

    async def run() -> None:
        tokenizer = Tokenizer(write_tokenizer(tmp_path / "tokenizer.spm"))
        application = Application(Settings(num_threads=1), loader=EchoLoader(tokenizer))
        is_ready = asyncio.Event()
        application.on_ready = is_ready.set
        async with application.lifespan():
            await asyncio.wait_for(is_ready.wait(), 60)
        (timer,) = {lag._timer for lag in lags}
        assert timer is not None
        assert timer.cancelled()
        with pytest.raises(RuntimeError, match="after shutdown"):
            await application._text_threads.run(lambda: None, caller="")

    asyncio.run(run())
