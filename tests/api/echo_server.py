"""The real server with the echo model: `python -m tests.api.echo_server TOKENIZER [NAME=VALUE...]`.

Settings come from the environment as ever; the names are those of `Behaviour`, and load_file: while it exists, the
model is loading; start: `slow` if the steps of the golden check take step_s too, so that the server learns this speed
from it; pairs: such as en>de,de>pt-BR; stuck: `thread` for a thread of the event loop's executor that never ends,
`loop` for an event loop that stands still as soon as the server drains.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

from app.errors import SettingsError
from app.main import Application, run
from app.observability.logging import configure_logging
from app.settings import Settings, load_settings
from app.startup import LoadedModel
from app.text.tokenizer import Tokenizer
from tests.api.echo import Behaviour, echo_model


def main(tokenizer_path: str, *choices: str) -> int:
    given = dict(choice.split("=", 1) for choice in choices)
    load_file = Path(given["load_file"]) if "load_file" in given else None
    behaviour = Behaviour(
        step_s=float(given.get("step_s", "0")),
        hang_file=Path(given["hang_file"]) if "hang_file" in given else None,
        golden_source=given.get("golden_source", Behaviour.golden_source),
        golden_says=given.get("golden_says", Behaviour.golden_says),
    )

    if "pairs" in given:
        pairs = tuple((pair.split(">")[0], pair.split(">")[1]) for pair in given["pairs"].split(","))
        behaviour = replace(behaviour, pairs=pairs)

    def load(settings: Settings) -> LoadedModel:
        while load_file is not None and load_file.exists():
            time.sleep(0.01)
        return echo_model(Tokenizer(Path(tokenizer_path)), behaviour, num_rows=settings.num_rows)

    settings = load_settings()
    configure_logging(settings.log_level)
    if given.get("start") == "slow":
        behaviour.is_started.set()
    application = APPLICATIONS[given.get("stuck", "")](settings, load=load)
    application.is_started = behaviour.is_started
    return run(application)


class EchoApplication(Application):
    """Sets `is_started` when the server is ready."""

    is_started: threading.Event

    async def _open(self) -> None:
        await super()._open()
        self.is_started.set()


class WithStuckThread(EchoApplication):
    """A thread of the event loop's executor never ends."""

    async def _open(self) -> None:
        asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
        await super()._open()


class WithStuckLoop(EchoApplication):
    """The event loop stands still as soon as the server drains."""

    async def close_engine(self) -> None:
        threading.Event().wait()


APPLICATIONS = {"": EchoApplication, "thread": WithStuckThread, "loop": WithStuckLoop}


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except (OSError, SettingsError) as error:
        sys.exit(f"{error}")
