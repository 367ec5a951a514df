"""A minimal FastAPI server for a peer's engine, as a user would write it.

`POST /v1/translate` takes {"text": ..., "source": ..., "target": ...} and answers {"translations": [{"text": ...}]}.
At most --num-workers calls of the engine run at once. Without --window each request is one call. With --window a call
has up to 32 requests: those that arrive within 5 ms, or while all workers are busy. The engine `echo` returns the text.
It shows the minimum time that the framework takes.

    python -m benchmarks.http.peer_server ctranslate2 --bundle bundles/en-de --model model.ct2 --port 8001
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
import uvloop
from fastapi import FastAPI
from pydantic import BaseModel

from app.bundle import load_bundle
from benchmarks.engine.arrivals import WindowBatcher
from benchmarks.engine.jobs import PeerSettings
from benchmarks.http.marian_engine import MarianEngine, MarianSettings, shared
from benchmarks.http.peer_engines import (
    TranslateBatch,
    ctranslate2_engine,
    search_of,
    transformers_engine,
)
from benchmarks.marian.process import MarianFiles
from benchmarks.server_process import HOST
from benchmarks.tagged_tokenizer import TaggedTokenizer

WINDOW_S = 0.005
MAX_BATCH = 32
WARM_UP = "The kettle is already boiling."
Translate = Callable[[str], Awaitable[str]]


class Body(BaseModel):
    """The fields of a request. The server does not check the languages, because a model has one language pair."""

    text: str
    source: str
    target: str


def create_app(translate: Translate) -> FastAPI:
    """The app. translate: translates one text."""
    app = FastAPI()

    @app.get("/readyz")
    async def ready() -> dict[str, str]:
        return {"status": "ready"}

    @app.post("/v1/translate")
    async def post(body: Body) -> dict[str, Any]:
        return {"translations": [{"text": await translate(body.text)}]}

    return app


@asynccontextmanager
async def batched(engine: TranslateBatch, *, num_workers: int, has_window: bool) -> AsyncIterator[Translate]:
    """A function that translates one text: through a window batcher, or in a call of its own."""
    with ThreadPoolExecutor(num_workers) as executor:
        if has_window:
            batcher = WindowBatcher(
                engine, executor=executor, num_workers=num_workers, window_s=WINDOW_S, max_size=MAX_BATCH
            )
            yield batcher.translate
            return

        async def alone(text: str) -> str:
            (translated,) = await asyncio.get_running_loop().run_in_executor(executor, engine, [text])
            return translated

        yield alone


async def echo(text: str) -> str:
    """Return the text."""
    return text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add = parser.add_argument
    add("engine", choices=("ctranslate2", "marian", "transformers", "echo"))
    add("--port", type=int, required=True)
    add("--bundle", type=Path, help="bundle with the tokeniser, the search options and the weights")
    add("--model", type=Path, help="the model in CTranslate2's format, or the weights in Marian's")
    add("--vocabulary", type=Path, help="the vocabulary of Marian's model")
    add("--programs", type=Path, help="the folder of Marian's programs")
    add("--window", action="store_true", help="batch requests that arrive within 5 ms, at most 32")
    add(
        "--num-workers",
        type=int,
        default=1,
        help="calls of the engine at once; with Marian, its number of processes (default: 1)",
    )
    add("--num-threads", type=int, default=1, help="threads of one call (default: 1)")
    add(
        "--max-batch-size",
        type=int,
        default=0,
        help="size of the batches into which CTranslate2 or Marian splits a call; 0: CTranslate2 does not (default: 0)",
    )


def load_engine(args: argparse.Namespace) -> TranslateBatch:
    """Load the engine and warm it up."""
    tokenizer = TaggedTokenizer(load_bundle(args.bundle))
    search = search_of(args.bundle)
    if args.engine == "ctranslate2":
        settings = PeerSettings(args.num_workers, args.num_threads, args.max_batch_size)
        engine = ctranslate2_engine(args.model, tokenizer, search, settings)
    elif args.engine == "marian":
        files = MarianFiles(args.model, args.vocabulary, args.programs)
        marian = MarianSettings(args.num_threads, args.max_batch_size)
        engines = [MarianEngine(files, tokenizer, search, marian).translate for _ in range(args.num_workers)]
        for each in engines:
            each([WARM_UP])
        engine = shared(engines)
    else:
        engine = transformers_engine(args.bundle / "weights", tokenizer, search, num_threads=args.num_threads)
    engine([WARM_UP])
    return engine


async def serve(args: argparse.Namespace) -> None:
    """Serve requests until SIGTERM."""
    if args.engine == "echo":
        await _listen(create_app(echo), args.port)
        return
    engine = load_engine(args)
    async with batched(engine, num_workers=args.num_workers, has_window=args.window) as translate:
        await _listen(create_app(translate), args.port)


async def _listen(app: FastAPI, port: int) -> None:
    config = uvicorn.Config(app, host=HOST, port=port, log_level="warning", access_log=False)
    await uvicorn.Server(config).serve()


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and serve. Returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    args = parser.parse_args(arguments)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(args))
    return 0


if __name__ == "__main__":
    sys.exit(main())
