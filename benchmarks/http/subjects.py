"""The compared servers: how to start each and how to send it requests."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from app.bundle import Bundle
from benchmarks.engine.search import BACKENDS, Choice
from benchmarks.http.libretranslate_setup import command_of
from benchmarks.http.marian_engine import MarianSettings
from benchmarks.http.models import LibreTranslate, ModelFormats
from benchmarks.http.traffic import TEXTS
from benchmarks.marian.process import MarianFiles
from benchmarks.server_process import NO_CACHE, Command, serve_command
from transduce.loadtest.dialects import DIALECTS, Dialect

OURS, ALONE, WINDOW = "transduce", "ctranslate2-alone", "ctranslate2-window"
MARIAN_ALONE, MARIAN_WINDOW = "marian-alone", "marian-window"
TRANSFORMERS, LIBRETRANSLATE, ECHO = "transformers", "libretranslate", "echo"
TITLES = {
    OURS: "Transduce",
    ALONE: "CTranslate2 behind FastAPI, a call a request",
    WINDOW: "CTranslate2 behind FastAPI, window batcher",
    MARIAN_ALONE: "Marian behind FastAPI, a call a request",
    MARIAN_WINDOW: "Marian behind FastAPI, window batcher",
    TRANSFORMERS: "Hugging Face generate behind FastAPI, window batcher, fp32",
    LIBRETRANSLATE: "LibreTranslate",
    ECHO: "echo server",
}


@dataclass(frozen=True)
class Subject:
    """A compared server. settings: its settings as text."""

    name: str
    command: Command
    dialect: Dialect
    settings: str

    @property
    def is_ours(self) -> bool:
        """Whether it is Transduce."""
        return self.name == OURS

    @property
    def is_peer(self) -> bool:
        """Whether it is another server that translates."""
        return not self.is_ours and self.name != ECHO


def ours(bundle: Path, python: str = sys.executable, settings: Mapping[str, str] | None = None) -> Subject:
    """Transduce with default settings, except NO_CACHE and `settings`, which has names of `app.settings`."""
    changed = {**NO_CACHE, **(settings or {})}
    words = ", ".join(f"{name} {value}" for name, value in changed.items())
    return Subject(OURS, serve_command(python, bundle, changed), TEXTS, f"defaults, {words}")


def ctranslate2(served: ModelFormats, choice: Choice, *, has_window: bool, name: str) -> Subject:
    """CTranslate2 behind a minimal server."""
    settings = choice.settings
    arguments = [
        *("ctranslate2", "--bundle", str(served.bundle.path.resolve()), "--model", str(served.converted)),
        *("--num-workers", str(settings.inter_threads), "--num-threads", str(settings.intra_threads)),
        *("--max-batch-size", str(settings.max_batch_size)),
        *(["--window"] if has_window else []),
    ]
    return Subject(name, _peer(arguments, BACKENDS[choice.backend]), TEXTS, choice.describe())


def marian(
    served: ModelFormats, files: MarianFiles, settings: MarianSettings, *, has_window: bool, name: str
) -> Subject:
    """Marian behind a minimal server, which sends each of its processes one call at a time."""
    arguments = [
        *("marian", "--bundle", str(served.bundle.path.resolve()), "--model", str(files.weights)),
        *("--vocabulary", str(files.vocabulary), "--programs", str(files.programs)),
        *("--num-workers", str(settings.num_processes), "--num-threads", str(settings.num_threads)),
        *("--max-batch-size", str(settings.batch_size)),
        *(["--window"] if has_window else []),
    ]
    return Subject(name, _peer(arguments, {}), TEXTS, settings.describe())


def transformers(served: ModelFormats, *, num_threads: int) -> Subject:
    """Hugging Face's model behind a minimal server."""
    arguments = [
        *("transformers", "--bundle", str(served.bundle.path.resolve())),
        *("--num-threads", str(num_threads), "--window"),
    ]
    return Subject(TRANSFORMERS, _peer(arguments, {}), TEXTS, f"fp32, {num_threads} threads")


def libretranslate(bundle: Bundle, found: LibreTranslate, choice: Choice, *, name: str) -> Subject:
    """LibreTranslate's own server."""
    manifest = bundle.manifest
    command = command_of(
        found.python,
        found.packages,
        found.home,
        choice=choice,
        beam_size=manifest.decoding.beam_size,
        tag=manifest.language_pairs[0].source_prefix,
    )
    return Subject(name, command, DIALECTS["root"], f"4 HTTP threads, {choice.describe()}")


def echo() -> Subject:
    """A server that returns the text. It shows the minimum time that the framework takes."""
    return Subject(ECHO, _peer(["echo"], {}), TEXTS, "")


def _peer(arguments: list[str], environment: Mapping[str, str]) -> Command:
    start = [sys.executable, "-m", "benchmarks.http.peer_server", *arguments]
    return Command(lambda port: [*start, "--port", str(port)], dict(environment))
