"""An engine that dies during the start ends the server, even after its own warm-up."""

from __future__ import annotations

import asyncio
from pathlib import Path

from app.api.service import Phase
from app.main import DEAD_ENGINE, Application
from app.settings import Settings
from app.text.tokenizer import Tokenizer
from tests.api.echo import EchoLoader
from tests.model.sentences import write_tokenizer


def test_a_death_between_the_warm_up_and_the_end_of_the_start_is_reported(tmp_path: Path) -> None:
    """With several models, others are loaded in this time."""

    async def run() -> None:
        tokenizer = Tokenizer(write_tokenizer(tmp_path / "tokenizer.spm"))
        application = Application(Settings(num_threads=1), loader=EchoLoader(tokenizer))
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        application.on_failure = lambda error: ended.set_result(str(error))
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

    asyncio.run(run())
