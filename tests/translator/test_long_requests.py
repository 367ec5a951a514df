"""Several long requests at once, through a translator whose engine hangs until the test deletes a file."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app.engine.engine import Engine
from app.engine.limits import EngineLimits
from app.errors import Overloaded
from app.text.tokenizer import Tokenizer
from app.translator import AnswerLimits, Extras, Translator
from app.translator.text_threads import TextThreads
from tests.api.echo import Behaviour, echo_model
from tests.model.sentences import write_tokenizer
from tests.translator.scripted import RecordingObserver, request

NUM_LINES, MAX_PENDING = 40, 100
LONG = "\n".join(f"Anna draws {number}." for number in range(NUM_LINES))
HANG_TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer(write_tokenizer(tmp_path_factory.mktemp("long") / "tokenizer.spm"))


def release(hang_file: Path) -> None:
    hang_file.unlink(missing_ok=True)


@asynccontextmanager
async def running(tokenizer: Tokenizer, hang_file: Path) -> AsyncIterator[Translator]:
    model = echo_model(tokenizer, Behaviour(hang_file=hang_file), num_rows=16)
    engine = Engine(model.workers, settings=EngineLimits(max_pending_sentences=MAX_PENDING))
    engine.start()
    try:
        yield Translator(
            model.manifest,
            engine,
            source_tokenizer=tokenizer,
            target_tokenizer=tokenizer,
            text_threads=TextThreads(2),
            extras=Extras(limits=AnswerLimits(max_sentences=1000, max_token_lists=1000)),
        )
    finally:
        release(hang_file)
        await engine.close(HANG_TIMEOUT_S)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_long_requests_at_once_do_not_exceed_max_pending_sentences(
    tokenizer: Tokenizer, tmp_path: Path, is_streamed: bool
) -> None:
    """Each request is first accepted as one sentence, because its text is not split yet."""

    async def scenario() -> None:
        hang_file = tmp_path / "hang"
        hang_file.touch()
        observers = [RecordingObserver() if is_streamed else None for _ in range(6)]
        async with running(tokenizer, hang_file) as translator:
            engine = translator.engine
            tasks = [
                asyncio.create_task(translator.translate(request([LONG], share="loud"), observer))
                for observer in observers
            ]
            await asyncio.sleep(0)
            assert engine.health().num_pending_sentences == len(tasks)
            until = time.monotonic() + HANG_TIMEOUT_S
            while engine.health().num_pending_sentences != NUM_LINES * sum(not task.done() for task in tasks):
                assert time.monotonic() < until, "each is split, and then accepted or refused"
                await asyncio.sleep(0.01)
            # MAX_PENDING has room for the sentences of two requests, so four of the six are refused.
            assert engine.health().num_pending_sentences == 2 * NUM_LINES
            quiet = asyncio.create_task(translator.translate(request(["Anna draws."], share="quiet")))
            await asyncio.sleep(0)
            assert engine.health().num_pending_sentences == 2 * NUM_LINES + 1
            release(hang_file)
            assert (await quiet).num_sentences == 1
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert engine.health().num_pending_sentences == 0
        refused = [isinstance(result, Overloaded) for result in results]
        assert refused.count(True) == 4
        for observer, is_refused in zip(observers, refused, strict=True):
            if observer is not None:
                assert (observer.spans == []) == is_refused, "a stream is refused before it begins"

    asyncio.run(asyncio.wait_for(scenario(), 2 * HANG_TIMEOUT_S))
