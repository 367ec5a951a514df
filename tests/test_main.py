"""The start and the end of an application, in the process of the test."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.api.service import Phase
from app.errors import BundleError, EngineFailure, SettingsError
from app.main import DEAD_ENGINE, Application, _problems_of
from app.observability.loop_lag import LoopLag
from app.settings import Settings
from app.stores.usage import Usage
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


@pytest.mark.parametrize(
    ("failure", "lines"),
    [
        (BundleError("a", ["one", "two"]), ["bundle a: one", "bundle a: two"]),
        (SettingsError(["one", "two"]), ["one", "two"]),
        (EngineFailure("the forward failed"), ["the forward failed"]),
        (RuntimeError(DEAD_ENGINE), [DEAD_ENGINE]),
        (KeyError("the text of a user"), ["unexpected KeyError; see the log"]),
    ],
)
def test_a_failure_is_named_on_stderr_without_unknown_messages(failure: Exception, lines: list[str]) -> None:
    assert _problems_of(failure) == lines


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


@pytest.mark.parametrize("watch", [True, False])
def test_the_file_of_keys_is_read_again_and_watched_until_the_end(
    watch: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Usage] = []

    class Recorded(Usage):
        async def close(self) -> None:
            closed.append(self)
            await super().close()

    monkeypatch.setattr("app.wiring.Usage", Recorded)
    keys = tmp_path / "keys.toml"
    keys.write_text('[one]\nkey = "the-secret-of-one"\n', "utf-8")

    async def run() -> None:
        tokenizer = Tokenizer(write_tokenizer(tmp_path / "tokenizer.spm"))
        settings = Settings(num_threads=1, api_keys_file=keys, watch=watch)
        application = Application(settings, loader=EchoLoader(tokenizer))
        async with application.lifespan():
            assert len(application._key_reload._tasks) == watch
            application.reload()
            async with asyncio.timeout(10):
                while not application._key_reload.outcomes["done"]:  # noqa: ASYNC110 - no event reports it
                    await asyncio.sleep(0.01)
            assert not closed
        assert not application._key_reload._tasks
        assert closed == [application.service.usage], "the last counts are saved"

    asyncio.run(run())
