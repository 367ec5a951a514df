"""The real server with the echo model: `python -m tests.api.echo_server TOKENIZER [NAME=VALUE...]`.

Settings come from the environment. The arguments are step_s, hang_file, golden_source and golden_target
of `Behaviour`, and:
load_file: while this file exists, the model is loading.
start: with `slow`, the steps of the golden check take step_s too. From them the server gets its first estimate of its
speed.
pairs: such as en>de,de>pt-BR. A semicolon separates the pairs of several models, named echo, echo-2 and so on.
lengths, alphas: max_target_length and alpha of each of these models, such as 71;47.
stuck: with `thread`, a thread of the event loop's executor never ends. With `loop`, the event loop blocks after the
server's drain.
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
from app.startup import LoadedModels
from app.text.tokenizer import Tokenizer
from tests.api.echo import Behaviour, EchoLoader


def main(tokenizer_path: str, *choices: str) -> int:
    arguments = dict(choice.split("=", 1) for choice in choices)
    load_file = Path(arguments["load_file"]) if "load_file" in arguments else None
    behaviour = Behaviour(
        step_s=float(arguments.get("step_s", "0")),
        hang_file=Path(arguments["hang_file"]) if "hang_file" in arguments else None,
        golden_source=arguments.get("golden_source", Behaviour.golden_source),
        golden_target=arguments.get("golden_target", Behaviour.golden_target),
    )

    behaviours = [behaviour]
    if "pairs" in arguments:
        behaviours = []
        for number, listed in enumerate(arguments["pairs"].split(";"), start=1):
            pairs = tuple((pair.split(">")[0], pair.split(">")[1]) for pair in listed.split(","))
            name = "echo" if number == 1 else f"echo-{number}"
            behaviours.append(replace(behaviour, pairs=pairs, name=name))
    lengths = _each(arguments, "lengths", behaviours, behaviour.max_target_length)
    alphas = _each(arguments, "alphas", behaviours, behaviour.alpha)
    behaviours = [
        replace(each, max_target_length=int(length), alpha=alpha)
        for each, length, alpha in zip(behaviours, lengths, alphas, strict=True)
    ]

    class WaitingLoader(EchoLoader):
        """Waits until `load_file` does not exist."""

        def load_all(self, settings: Settings) -> LoadedModels:
            while load_file is not None and load_file.exists():
                time.sleep(0.01)
            return super().load_all(settings)

    settings = load_settings()
    configure_logging(settings.log_level)
    if arguments.get("start") == "slow":
        behaviour.is_started.set()
    loader = WaitingLoader(Tokenizer(Path(tokenizer_path)), behaviours)
    application = APPLICATIONS[arguments.get("stuck", "")](settings, loader=loader)
    application.is_started = behaviour.is_started
    return run(application)


def _each(arguments: dict[str, str], name: str, behaviours: list[Behaviour], default: float) -> list[float]:
    """The numbers of an argument, one for each behaviour. default: the number if the argument is missing."""
    if name not in arguments:
        return [default] * len(behaviours)
    return [float(number) for number in arguments[name].split(";")]


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
    """The event loop blocks after the drain, when the engine is to be closed."""

    async def close_engine(self) -> None:
        threading.Event().wait()


APPLICATIONS = {"": EchoApplication, "thread": WithStuckThread, "loop": WithStuckLoop}


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except (OSError, SettingsError) as error:
        sys.exit(f"{error}")
