"""Starts an engine for a loaded model, checks and warms it up, and ends engines that no request needs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from app.api.service import Service
from app.engine.engine import Engine
from app.engine.supervisor import RestartBudget, WorkerRestarts
from app.engine.worker import Worker
from app.errors import BundleError, ServiceError, SettingsError, WorkerEnded
from app.runtime.memory import return_memory
from app.settings import Settings
from app.startup import (
    LoadedModel,
    LoadedModels,
    check_golden,
    in_daemon_thread,
    load_model,
    load_models,
    model_key,
    release_models,
    warm_up,
)
from app.text.detection import LazyDetector
from app.translator import AnswerLimits, Extras, Translator
from app.translator.caching_submitter import CachingSubmitter, SubmitterSettings, SubmitterStats
from app.translator.text_threads import TextThreads
from app.wiring import engine_limits
from app.workers.early_start import start_fork_server
from app.workers.fork_server import ForkServer


class ModelStarter:
    """Starts and closes the engines of one server. Every method is called on the event loop.

    text_threads: process the texts of all models. metrics: the server's metrics.
    """

    def __init__(
        self,
        settings: Settings,
        service: Service,
        *,
        text_threads: TextThreads,
        on_death: Callable[[Engine], None],
    ) -> None:
        """on_death: called when an engine has died."""
        self._settings = settings
        self._service = service
        self.text_threads = text_threads
        self.metrics = service.metrics
        self._on_death = on_death
        self._engines: dict[Engine, range] = {}  # each with the numbers of its workers in the metrics
        self._submitters: dict[Engine, CachingSubmitter] = {}  # of the models that have started
        self._ended = SubmitterStats()  # summed counts of the models that have ended
        self._num_workers = 0  # of all engines so far; this is also the next worker's number
        self._restart_budget = RestartBudget(settings.max_worker_restarts, settings.worker_restart_window_s)

    async def start(
        self,
        model: LoadedModel,
        detector: LazyDetector | None,
        *,
        cache_bytes: int,
        is_checked: bool = False,
    ) -> Translator:
        """Start a model's engine, check the golden sentences, and warm up.

        cache_bytes: size of the model's sentence cache. is_checked: whether an earlier start checked the golden
        sentences, so that this start does not. If the start fails, the engine is closed. If the start is cancelled,
        `close` closes the engine. Raises the SettingsError of `Engine`; BundleError if the check or the warm-up fails;
        NotReady, Overloaded, DeadlineExceeded.
        """
        try:
            engine = Engine(
                model.workers,
                settings=engine_limits(self._settings),
                on_steps=self.metrics.record_steps,
                on_death=lambda: self._on_death(engine),
                restarts=self._restarts(model),
                first_worker=self._num_workers,
            )
        except SettingsError:
            release_models(LoadedModels([model]))
            raise
        engine.recorder = self._service.rows
        self._engines[engine] = range(self._num_workers, self._num_workers + len(model.workers))
        self._num_workers += len(model.workers)
        engine.start()
        translator = self._translator(model, engine, detector, cache_bytes)
        try:
            if not is_checked:
                await check_golden(model, translator, min_share=self._settings.golden_min_share)
            await warm_up(model, translator)
        except Exception:
            await self._close([engine])
            raise
        engine.end_warm_up()
        translator.submitter.clear()
        self._submitters[engine] = translator.submitter
        return translator

    def cache_stats(self) -> SubmitterStats:
        """Return the summed counts of all sentence caches, including those of ended models."""
        running = [submitter.stats() for submitter in self._submitters.values()]
        return SubmitterStats.joint([self._ended, *running])

    async def stop(self, translators: Collection[Translator]) -> None:
        """Close the engines of models that no request uses, and return their memory."""
        await self._close([translator.engine for translator in translators])
        return_memory()

    async def close(self) -> None:
        """Close all engines now; pending sentences end with NotReady."""
        await self._close([*self._engines])

    def _restarts(self, model: LoadedModel) -> WorkerRestarts | None:
        """How the workers of a model are replaced when they die. None for a worker in a thread."""
        start_worker = model.start_worker
        if start_worker is None:
            return None

        def start(dead: Worker) -> asyncio.Future[Worker]:
            return in_daemon_thread(lambda: start_worker(dead), on_unused=lambda unused: unused.close())

        def on_restart(number: int) -> None:
            self.metrics.worker_restarts.inc()
            self.metrics.forget_workers([number])

        return WorkerRestarts(self._restart_budget, start, on_restart)

    def _translator(
        self, model: LoadedModel, engine: Engine, detector: LazyDetector | None, cache_bytes: int
    ) -> Translator:
        submitter = CachingSubmitter(
            engine,
            model_key=model_key(model),
            settings=SubmitterSettings(cache_bytes, self._settings.coalesce),
        )
        return Translator(
            model.manifest,
            engine,
            source_tokenizer=model.source_tokenizer,
            target_tokenizer=model.target_tokenizer,
            text_threads=self.text_threads,
            extras=Extras(
                detector=detector,
                glossaries=self._service.glossaries,
                submitter=submitter,
                limits=AnswerLimits(self._settings.max_request_sentences, self._settings.max_token_lists),
            ),
        )

    async def _close(self, engines: Collection[Engine]) -> None:
        await asyncio.gather(*(engine.close(drain_timeout_s=0.0) for engine in engines))
        for engine in engines:
            if (submitter := self._submitters.pop(engine, None)) is not None:
                counts = replace(submitter.stats(), num_entries=0, num_bytes=0, num_in_flight=0)
                self._ended = SubmitterStats.joint([self._ended, counts])
            self.metrics.forget_workers(self._engines.pop(engine, range(0)))


def is_expected(error: Exception) -> bool:
    """Whether the message of a load's error says what is wrong, so that the log needs no traceback."""
    return isinstance(error, BundleError | SettingsError | ServiceError | WorkerEnded)


def problem_of(error: Exception) -> str:
    """Why a model cannot be loaded, for the log and for administrators."""
    return str(error) if is_expected(error) else type(error).__name__


class ModelLoader(Protocol):
    """Loads models on any thread. Both methods take seconds, and raise the errors of `load_model`."""

    def load_all(self, settings: Settings) -> LoadedModels:
        """Load the models of all bundles that the settings name."""

    def load_one(self, path: Path, settings: Settings) -> LoadedModel:
        """Load the model of one bundle."""


class BundleLoader:
    """A `ModelLoader` of bundles. Each fork server loads one model.

    Without a memory budget, the first load uses the given fork server, and `load_model` starts one for each later load.
    With a budget there are many loads. The given fork server is then kept, and each load uses a copy of it, because a
    fork server that is newly started must first import its modules.
    """

    def __init__(self, fork_server: ForkServer | None = None) -> None:
        """fork_server: an idle one that runs already, or None."""
        self._fork_server = fork_server
        self._lock = threading.Lock()

    def load_all(self, settings: Settings) -> LoadedModels:
        """As `ModelLoader.load_all`."""
        return load_models(settings, self._take_fork_server())

    def load_one(self, path: Path, settings: Settings) -> LoadedModel:
        """As `ModelLoader.load_one`."""
        is_kept = settings.model_memory is not None
        return load_model(path, settings, self._copy_fork_server() if is_kept else self._take_fork_server())

    def _take_fork_server(self) -> ForkServer | None:
        with self._lock:
            fork_server, self._fork_server = self._fork_server, None
        return fork_server

    def _copy_fork_server(self) -> ForkServer | None:
        with self._lock:
            if self._fork_server is None:
                return None
            try:
                return self._fork_server.copy()
            except OSError:  # the fork server has been killed or stopped
                self._fork_server.close()
                self._fork_server = start_fork_server()
                return self._fork_server.copy()
