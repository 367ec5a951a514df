"""Holds the models of a server, and replaces them without losing a request."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

from app.api.service import Service
from app.bundle import Manifest
from app.bundle_folders import find_bundles
from app.bundle_watch import BundleWatch
from app.eager_models import EagerModels
from app.engine.engine import Engine
from app.engine.stats import Health, WorkerHealth
from app.errors import ModelRefused, NotReady, ServiceError, UnknownModel, WorkerEnded
from app.model_starter import ModelLoader, ModelStarter, is_expected, problem_of
from app.observability.logging import log_event
from app.observability.metrics import Build, ModelInfo
from app.pooled_models import PooledModels
from app.runtime.memory import release_frames
from app.settings import Settings
from app.translator import Models, ServedModel, Translator
from app.translator.text_threads import TextThreads

logger = logging.getLogger("app.main")
BuildModels = Callable[[], Awaitable[Models]]


class ModelSource(Protocol):
    """Loads models and ends them. A method that fails to load a model changes nothing.

    Methods that load raise BundleError, SettingsError and ServiceError, and OSError or WorkerEnded if a worker process
    cannot be started or ends.
    num_bytes: estimated bytes of the models in memory.
    """

    @property
    def num_bytes(self) -> int: ...  # noqa: D102

    async def load_all(self, old: Models | None) -> Models:
        """Load the models of all bundles. old: the models that serve; None at the start."""

    async def load_one(self, old: Models, model: ServedModel, *, is_forced: bool) -> Models:
        """Load the bundle of one model again. Returns the models with the new model in the old one's place.

        is_forced: whether the new model is loaded even if the old one is not in memory.
        """

    async def load(self, model: ServedModel) -> None:
        """Bring a model into memory."""

    async def unload(self, model: ServedModel) -> None:
        """Remove a model from memory until a request needs it. Raises ModelInUse."""

    def running(self, model: ServedModel) -> Translator | None:
        """The model's translator; None while the model is not in memory."""

    async def retire(self, models: Collection[ServedModel]) -> None:
        """End models that get no more requests."""

    async def close(self) -> None:
        """End all loads."""


class ModelHost:
    """The models and engines of one server. Every method is called on the event loop."""

    def __init__(
        self,
        settings: Settings,
        service: Service,
        *,
        text_threads: TextThreads,
        loader: ModelLoader,
        on_death: Callable[[], None],
    ) -> None:
        """text_threads: process the texts of all models.

        on_death: called when an engine that serves requests dies, and when any engine dies during the first load.
        """
        self._settings = settings
        self._service = service
        self._metrics = service.metrics
        self._on_death = on_death
        self._starter = ModelStarter(
            settings, service, text_threads=text_threads, on_death=self._on_engine_death
        )
        self._source: ModelSource
        if settings.model_memory is None:
            self._source = EagerModels(settings, loader, self._starter)
        else:
            self._source = PooledModels(
                settings,
                loader,
                self._starter,
                max_bytes=settings.model_memory,
                on_changed_bundle=self.reload,
            )
        self._models: Models | None = None
        self._replacing = asyncio.Lock()  # held from the loading of new models until the old ones have ended
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_reload_due = False

    @property
    def models(self) -> Models:
        """The models that serve requests, from the end of `open` on."""
        assert self._models is not None
        return self._models

    async def open(self) -> None:
        """Load, check and warm up the first models. Raises the errors of `ModelSource`."""
        self._models = await self._source.load_all(None)
        if self._settings.watch:
            watch = BundleWatch(lambda: find_bundles(self._settings))
            self._spawn(watch.run(self._manifests, reload_model=self._reload_changed, reload_all=self.reload))
        self._track()
        if self._is_reload_due:
            self._spawn_reload()

    def _track(self) -> None:
        readings = self._metrics.readings
        readings.track_cache(self._starter.cache_stats)
        readings.track_queue(self._health)
        readings.track_workers(self._workers, self._metrics.rows_in_use)
        readings.track_gauges(
            {
                "models_loaded": (
                    "Models in memory",
                    lambda: sum(model.translator.is_loaded for model in self.models),
                ),
                "model_memory_bytes": (
                    "Estimated bytes of the models in memory; 0 without a budget",
                    lambda: self._source.num_bytes,
                ),
            }
        )

    def _health(self) -> Health:
        return self.models.health()

    def _workers(self) -> list[tuple[str, WorkerHealth]]:
        return self.models.workers()

    def _manifests(self) -> dict[Path, Manifest]:
        """The manifests of the served models, by the folders of their bundles."""
        return {model.path: model.translator.manifest for model in self.models if model.path is not None}

    async def _reload_changed(self, name: str) -> None:
        """Replace a model by its bundle's new version, which is loaded only if the old version is in memory."""
        await self.reload_model(name, is_forced=False)

    async def close(self) -> None:
        """Stop the engines now; pending sentences end with NotReady."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._source.close()
        await self._starter.close()

    def reload(self) -> None:
        """Load the bundles again and replace the models, without losing a request.

        A call during the first load or a reload starts another reload afterwards. If a bundle cannot be served, the old
        models stay.
        """
        if self._is_reload_due:
            return  # another reload is about to begin
        self._is_reload_due = True
        if self._models is not None:
            self._spawn_reload()

    def _spawn_reload(self) -> None:
        async def build() -> Models:
            self._is_reload_due = False
            return await self._source.load_all(self.models)

        self._spawn(self._replace(build, {}, asyncio.get_running_loop().create_future()))

    async def reload_model(self, name: str, *, is_forced: bool = True) -> ServedModel:
        """Load one bundle again and replace its model, without losing a request. Returns the new model.

        is_forced: whether the new model is loaded even if the old one is not in memory. Raises UnknownModel,
        ModelRefused, ServiceError.
        """
        replaced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._named(name)

        async def build() -> Models:
            return await self._source.load_one(self.models, self._named(name), is_forced=is_forced)

        task = self._spawn(self._replace(build, {"model": name}, replaced))
        task.add_done_callback(lambda _task: _refuse_unreplaced(replaced))
        try:
            await asyncio.shield(replaced)
        except Exception as error:
            raise _refusal(error) from error
        return self._named(name)

    async def load_model(self, name: str) -> ServedModel:
        """Bring a model into memory. Raises UnknownModel, ModelRefused, ServiceError."""
        model = self._named(name)
        try:
            await self._source.load(model)
        except Exception as error:
            raise _refusal(error) from error
        return model

    async def unload_model(self, name: str) -> ServedModel:
        """Remove a model from memory until a request needs it. Raises UnknownModel, ModelInUse, NotReady."""
        model = self._named(name)
        await self._source.unload(model)
        return model

    def _named(self, name: str) -> ServedModel:
        model = self._service.check_open().named(name)
        if model is None:
            raise UnknownModel("there is no model of this name")
        return model

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _replace(
        self, build: BuildModels, fields: dict[str, str], replaced: asyncio.Future[None]
    ) -> None:
        """Replace the models by those that `build` returns. End the old ones after the last request that uses them.

        fields: for the log of a failure. replaced: gets its result when the new models serve, or the error of `build`.
        """
        async with self._replacing:
            started = time.monotonic()
            try:
                models = await build()
            except Exception as error:  # noqa: BLE001 - after any error the old models stay
                self._metrics.reloads.labels("failed").inc()
                cause = None if is_expected(error) else error
                failure = {**fields, "problem": problem_of(error)}
                log_event(logger, logging.ERROR, "reload_failed", error=cause, fields=dict(failure))
                release_frames(error)
                replaced.set_exception(error)
                replaced.exception()  # marks the error as retrieved: no task awaits the future of `reload`
                return
            old, self._models = self.models, models
            self._service.replace_models(models)
            self._metrics.reloads.labels("done").inc()
            self.report("reloaded", started)
            replaced.set_result(None)
            await old.released()
            serving = set(models)
            await self._source.retire([model for model in old if model not in serving])

    def _on_engine_death(self, engine: Engine) -> None:
        """Report the death of an engine that serves requests, and any death during the first load.

        After the first load, the death of an engine that does not serve yet fails its load.
        """
        running = [] if self._models is None else [self._source.running(model) for model in self._models]
        if self._models is None or any(each is not None and each.engine is engine for each in running):
            self._on_death()

    def report(self, event: str, started: float) -> None:
        """Show the models in the metrics and the log. started: when loading began, by time.monotonic."""
        self._metrics.describe(
            Build(
                installed_version(),
                kernels=",".join(sorted({model.kernels for model in self.models})),
                providers=",".join(sorted({model.provider for model in self.models})),
            ),
            [ModelInfo(*model.translator.version, model.precision) for model in self.models],
        )
        fields = {
            "model": ", ".join(model.name for model in self.models),
            "version": ", ".join(model.version for model in self.models),
            "precision": ", ".join(model.precision for model in self.models),
            "seconds": f"{time.monotonic() - started:.2f}",
        }
        if self._settings.pivot:
            pivoted = [(pair.pair, pair.pivot) for pair in self.models.pivoted.values()]
            fields["pivoted"] = ", ".join(f"{pair.source}-{pivot}-{pair.target}" for pair, pivot in pivoted)
        log_event(logger, logging.INFO, event, fields=dict(fields))


def installed_version() -> str:
    """The version of the installed distribution, or `unknown` in a source tree that is not installed."""
    try:
        return version("transduce")
    except PackageNotFoundError:
        return "unknown"


def _refuse_unreplaced(replaced: asyncio.Future[None]) -> None:
    """Set NotReady if the task that replaces the models has ended without a result, because `close` cancelled it."""
    if not replaced.done():
        replaced.set_exception(NotReady("the server is shutting down"))


def _refusal(error: Exception) -> ServiceError:
    """The error that an administrator's request gets when a model cannot be loaded. error: what the load raised."""
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, WorkerEnded):  # nothing is wrong with the bundle
        return NotReady(problem_of(error))
    return ModelRefused(problem_of(error))
