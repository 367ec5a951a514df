"""Loads the models of a server, runs an engine for each, and replaces them without losing a request."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from concurrent.futures import Executor

from app.api.service import Service
from app.engine.engine import Engine
from app.engine.stats import Health
from app.errors import BundleError, ServiceError, SettingsError
from app.observability.logging import log_event
from app.runtime.memory import return_memory
from app.settings import Settings
from app.startup import (
    LoadedModel,
    LoadedModels,
    check_golden,
    in_daemon_thread,
    load_models,
    model_key,
    release_models,
    warm_up,
)
from app.text.detection import LazyDetector
from app.translator import AnswerLimits, Extras, Models, ServedModel, Translator
from app.translator.caching_submitter import CachingSubmitter, SubmitterSettings, SubmitterStats
from app.wiring import engine_limits
from app.workers.fork_server import ForkServer

logger = logging.getLogger("app.main")


class ModelHost:
    """The models and engines of one server. Every method is called on the event loop."""

    def __init__(
        self,
        settings: Settings,
        service: Service,
        *,
        executor: Executor,
        load: Callable[[Settings], LoadedModels],
        on_death: Callable[[], None],
    ) -> None:
        """executor: runs text processing. load: loads all bundles. on_death: called when a served engine has died."""
        self._settings = settings
        self._service = service
        self._metrics = service.metrics
        self._executor = executor
        self._load = load
        self._on_death = on_death
        self._models: Models | None = None
        self._engines: list[Engine] = []
        self._num_workers = 0  # of all engines so far
        self._reloading: asyncio.Task[None] | None = None
        self._reloads_again = False

    @property
    def models(self) -> Models:
        """The models that serve requests, from the end of `open` on."""
        assert self._models is not None
        return self._models

    async def open(self) -> None:
        """Load all bundles, check and warm up each model. Raises BundleError, SettingsError, ServiceError."""
        self._models = await self._load_models()
        self._metrics.track_cache(self._cache_stats)
        self._metrics.track_queue(self._health)

    def _cache_stats(self) -> SubmitterStats:
        return self.models.cache_stats()

    def _health(self) -> Health:
        return self.models.health()

    async def close(self) -> None:
        """Stop the engines now; pending sentences end with NotReady."""
        if self._reloading is not None:
            self._reloading.cancel()
            await asyncio.gather(self._reloading, return_exceptions=True)
        await self._close(self._engines)

    def reload(self) -> None:
        """Load the bundles again and replace the models, without losing a request. Called on the event loop.

        A call while a reload is under way starts another one after it. If a bundle cannot be served, the models stay.
        """
        if self._models is None:
            return  # the first load is still under way
        if self._reloading is None:
            self._reloading = asyncio.get_running_loop().create_task(self._reload())
        else:
            self._reloads_again = True

    async def _reload(self) -> None:
        """Replace the models, and close the old engines when the last request that uses them has ended."""
        old_engines, started = [*self._engines], time.monotonic()
        try:
            models = await self._load_models()
        except Exception as error:  # noqa: BLE001 - whatever keeps the new models from serving, the old ones stay
            await self._close([engine for engine in self._engines if engine not in old_engines])
            self._metrics.reloads.labels("failed").inc()
            is_expected = isinstance(error, BundleError | SettingsError | ServiceError)
            fields = {"problem": str(error) if is_expected else type(error).__name__}
            unexpected = None if is_expected else error
            log_event(logger, logging.ERROR, "reload_failed", error=unexpected, fields=dict(fields))
        else:
            old, self._models = self.models, models
            self._service.replace_models(models)
            self._metrics.reloads.labels("done").inc()
            self.report("reloaded", started)
            await old.released()
            await self._close(old_engines)
            return_memory()
        self._reloading = None
        if self._reloads_again:
            self._reloads_again = False
            self.reload()

    async def _close(self, engines: Collection[Engine]) -> None:
        """Close engines that no request uses."""
        self._engines = [engine for engine in self._engines if engine not in engines]
        await asyncio.gather(*(engine.close(drain_timeout_s=0.0) for engine in engines))

    async def _load_models(self) -> Models:
        """Load all bundles, check and warm up each model. Raises BundleError, SettingsError, ServiceError."""
        loaded = await in_daemon_thread(lambda: self._load(self._settings), on_unused=release_models)
        cache_bytes = self._settings.sentence_cache_bytes // len(loaded.models)
        served = []
        for number, model in enumerate(loaded.models):
            try:
                served.append(await self._serve(model, loaded.detector, cache_bytes=cache_bytes))
            except BaseException:
                release_models(LoadedModels(loaded.models[number + 1 :]))
                raise
        if loaded.detector is not None and loaded.detector.has_begun:
            await asyncio.wrap_future(loaded.detector.loaded())
        for one in served:
            one.translator.engine.end_warm_up()
            one.translator.submitter.clear()
        return Models(served, loaded.detector, pivots=self._settings.pivot)

    async def _serve(
        self, model: LoadedModel, detector: LazyDetector | None, *, cache_bytes: int
    ) -> ServedModel:
        """Start a model's engine, check its golden sentences, and warm up. cache_bytes: of its sentence cache.

        Raises BundleError; NotReady, Overloaded, DeadlineExceeded.
        """
        engine = Engine(
            model.workers,
            settings=engine_limits(self._settings),
            on_steps=self._metrics.record_steps,
            on_death=lambda: self._on_engine_death(engine),
            first_worker=self._num_workers,
        )
        self._engines.append(engine)
        self._num_workers += len(model.workers)
        engine.start()
        submitter = CachingSubmitter(
            engine,
            model_key=model_key(model),
            settings=SubmitterSettings(cache_bytes, self._settings.coalesce),
        )
        translator = Translator(
            model.manifest,
            engine,
            source_tokenizer=model.source_tokenizer,
            target_tokenizer=model.target_tokenizer,
            executor=self._executor,
            extras=Extras(
                detector=detector,
                glossaries=self._service.glossaries,
                submitter=submitter,
                limits=AnswerLimits(self._settings.max_request_sentences, self._settings.max_token_lists),
            ),
        )
        await check_golden(model, translator, min_share=self._settings.golden_min_share)
        await warm_up(model, translator)
        return ServedModel(translator, model.precision)

    def _on_engine_death(self, engine: Engine) -> None:
        """Report the death of an engine that serves, or will serve at the start. A reload reports its own failure."""
        if self._models is None or any(model.translator.engine is engine for model in self._models):
            self._on_death()

    def report(self, event: str, started: float) -> None:
        """Add the models to the metrics and the log. started: when loading began, of time.monotonic."""
        self._metrics.model_info.clear()
        for model in self.models:
            self._metrics.model_info.labels(*model.translator.version, model.precision).set(1)
        fields = {
            "model": ", ".join(model.name for model in self.models),
            "version": ", ".join(model.translator.version.version for model in self.models),
            "precision": ", ".join(model.precision for model in self.models),
            "seconds": f"{time.monotonic() - started:.2f}",
        }
        log_event(logger, logging.INFO, event, fields=dict(fields))


def loader(fork_server: ForkServer | None) -> Callable[[Settings], LoadedModels]:
    """Return `load_models`, with this fork server for the first call only: a fork server loads one model."""
    unused = [fork_server]

    def load(settings: Settings) -> LoadedModels:
        return load_models(settings, unused.pop() if unused else None)

    return load
