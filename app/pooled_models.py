"""Models within a memory budget: a pool loads them when requests need them, and unloads some to make room."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from weakref import WeakSet

from app.errors import BundleError
from app.known_models import KnownModel, preloaded, read_model, read_models
from app.model_detector import ModelDetector
from app.model_starter import ModelLoader, ModelStarter, is_expected, problem_of
from app.observability.logging import Field, log_event
from app.observability.metrics import Metrics
from app.settings import Settings
from app.startup import LoadedModels, in_daemon_thread, release_models
from app.text.detection import LazyDetector
from app.translator import ModelPool, Models, OnDemandTranslator, PooledModel, ServedModel, Translator

logger = logging.getLogger("app.main")


class PooledModels:
    """Loads and unloads models. `app.model_host.ModelSource` describes the methods."""

    def __init__(
        self,
        settings: Settings,
        loader: ModelLoader,
        starter: ModelStarter,
        *,
        max_bytes: int,
        on_changed_bundle: Callable[[], None],
    ) -> None:
        """max_bytes: the memory budget.

        on_changed_bundle: called after a load if the bundle's manifest has changed since it was read.
        """
        self._settings = settings
        self._loader = loader
        self._starter = starter
        self._on_changed_bundle = on_changed_bundle
        self._pool = ModelPool(
            max_bytes, unload=lambda translator: starter.stop([translator]), listener=_Report(starter.metrics)
        )
        self._detector = ModelDetector()
        self._num_models = 1  # models that share the sentence cache's bytes
        self._checked: WeakSet[PooledModel] = WeakSet()  # models whose golden sentences have been checked

    @property
    def num_bytes(self) -> int:
        """Estimated bytes of the models in memory."""
        return self._pool.num_bytes

    async def load_all(self, old: Models | None) -> Models:
        """Read all manifests, and load some models.

        At the start (`old` is None) these are the models to preload. Later they are the models in memory whose manifest
        or folder has changed.
        """
        known = await in_daemon_thread(lambda: read_models(self._settings))
        chosen = preloaded(known, self._settings) if old is None else []
        manifests = [model.manifest for model in known]
        detector = self._detector.of(manifests)
        served, to_load = [], []
        for model in known:
            before = None if old is None else old.named(model.name)
            is_same = before is not None and (before.translator.manifest, before.path) == (
                model.manifest,
                model.path,
            )
            if before is not None and is_same:
                served.append(before)
                continue
            served.append(self._serve(model, detector))
            if model in chosen or (before is not None and before.translator.is_loaded):
                to_load.append(served[-1])
        replaced = [model for model in old or () if model not in served]
        old_num, self._num_models = self._num_models, max(1, len(known))  # the loads below read it
        try:
            await self._load_beside(to_load, detector, replaced=replaced)
        except BaseException:
            self._num_models = old_num
            raise
        self._detector.keep(detector, manifests)
        return Models(served, detector, pivots=self._settings.pivot)

    async def load_one(self, old: Models, model: ServedModel, *, is_forced: bool) -> Models:
        """Read one manifest again, and load the new model if the old one is in memory or `is_forced`."""
        path = model.path
        assert path is not None
        known = await in_daemon_thread(lambda: read_model(path, self._settings))
        if known.name != model.name:
            raise BundleError(path.name, [f"it holds the model {known.name} now, not {model.name}"])
        manifests = [known.manifest if each is model else each.translator.manifest for each in old]
        detector = self._detector.of(manifests)
        fresh = self._serve(known, detector)
        to_load = [fresh] if is_forced or model.translator.is_loaded else []
        await self._load_beside(to_load, detector, replaced=[model])
        self._detector.keep(detector, manifests)
        served = [fresh if each is model else each for each in old]
        return Models(served, detector, pivots=self._settings.pivot)

    async def load(self, model: ServedModel) -> None:
        """Load a model if it is not loaded. Waits at most max_timeout_s for memory and for the load."""
        await self._pool.load(_pooled(model), timeout_s=self._settings.max_timeout_s)

    async def unload(self, model: ServedModel) -> None:
        """Unload a model if it is loaded. Raises ModelInUse."""
        await self._pool.unload(_pooled(model))

    def running(self, model: ServedModel) -> Translator | None:
        """The loaded translator behind the model's on-demand translator; None while the model is not loaded."""
        return _pooled(model).translator

    async def retire(self, models: Collection[ServedModel]) -> None:
        """Unload models that get no more requests."""
        await asyncio.gather(*(self._pool.retire(_pooled(model)) for model in models))

    async def close(self) -> None:
        """Cancel all loads."""
        await self._pool.close()

    async def _load_beside(
        self, models: Sequence[ServedModel], detector: LazyDetector, *, replaced: Sequence[ServedModel]
    ) -> None:
        """Load new models while the old ones serve, even beyond the budget. Wait for the detector if it is loading.

        replaced: old models that stay in memory meanwhile, because their bundles may be gone. If a load fails, all new
        models are unloaded.
        """
        try:
            with self._pool.kept([_pooled(model) for model in (*replaced, *models)]):
                for model in models:
                    await self._pool.load(_pooled(model), may_exceed=True)
                await detector.wait_if_begun()
        except BaseException:
            await asyncio.shield(self.retire(models))
            raise

    def _serve(self, known: KnownModel, detector: LazyDetector) -> ServedModel:
        """A served model that the pool loads on demand."""

        async def load(model: PooledModel) -> Translator:
            translator = await self._load(known, detector, is_checked=model in self._checked)
            self._checked.add(model)
            return translator

        model = PooledModel(known.name, known.num_bytes, load)
        translator = OnDemandTranslator(
            known.manifest,
            known.spec.limits,
            text_threads=self._starter.text_threads,
            detector=detector,
            pool=self._pool,
            model=model,
        )
        spec = known.spec
        return ServedModel(translator, spec.precision, known.path, spec.used_kernels, spec.provider)

    async def _load(self, known: KnownModel, detector: LazyDetector, *, is_checked: bool) -> Translator:
        """Load, check and warm up one model. Raises the errors of `ModelSource`.

        is_checked: whether the golden sentences of the known version were checked at an earlier load.
        """
        loaded = await in_daemon_thread(
            lambda: self._loader.load_one(known.path, self._settings),
            on_unused=lambda unused: release_models(LoadedModels([unused])),
        )
        if loaded.manifest.name != known.name:
            release_models(LoadedModels([loaded]))
            raise BundleError(
                known.path.name, [f"it holds the model {loaded.manifest.name} now, not {known.name}"]
            )
        has_changed = loaded.manifest != known.manifest
        cache_bytes = self._settings.sentence_cache_bytes // self._num_models
        translator = await self._starter.start(
            loaded, detector, cache_bytes=cache_bytes, is_checked=is_checked and not has_changed
        )
        if has_changed:
            self._on_changed_bundle()
        return translator


def _pooled(model: ServedModel) -> PooledModel:
    assert isinstance(model.translator, OnDemandTranslator)
    return model.translator.model


class _Report:
    """A `PoolListener` that adds the pool's events to the metrics and the log."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def model_loaded(self, model: PooledModel, seconds: float) -> None:
        """As `PoolListener.model_loaded`."""
        self._metrics.model_loads.labels("done").inc()
        self._metrics.model_load_duration.observe(seconds)
        fields: dict[str, Field] = {
            "model": model.name,
            "seconds": f"{seconds:.2f}",
            "bytes": model.num_bytes,
        }
        log_event(logger, logging.INFO, "model_loaded", fields=fields)

    def model_unloaded(self, model: PooledModel) -> None:
        """As `PoolListener.model_unloaded`."""
        self._metrics.model_unloads.inc()
        log_event(logger, logging.INFO, "model_unloaded", fields={"model": model.name})

    def model_failed(self, model: PooledModel, error: Exception) -> None:
        """As `PoolListener.model_failed`."""
        self._metrics.model_loads.labels("failed").inc()
        log_event(
            logger,
            logging.ERROR,
            "model_load_failed",
            error=None if is_expected(error) else error,
            fields={"model": model.name, "problem": problem_of(error)},
        )
