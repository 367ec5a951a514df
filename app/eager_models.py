"""Models without a memory budget: all are loaded at the start, and stay in memory until they are replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from app.errors import BundleError, ModelInUse
from app.model_detector import ModelDetector
from app.model_starter import ModelLoader, ModelStarter
from app.settings import PREFIX, Settings
from app.startup import LoadedModel, LoadedModels, in_daemon_thread, release_models
from app.text.detection import LazyDetector
from app.translator import Models, ServedModel, Translator


class EagerModels:
    """Loads and ends models. `app.model_host.ModelSource` describes the methods."""

    def __init__(self, settings: Settings, loader: ModelLoader, starter: ModelStarter) -> None:
        self._settings = settings
        self._loader = loader
        self._starter = starter
        self._detector = ModelDetector()

    @property
    def num_bytes(self) -> int:
        """Always 0: without a budget, memory is not estimated."""
        return 0

    async def load_all(self, old: Models | None) -> Models:
        """Load all bundles, and check and warm up each model, even if its bundle has not changed."""
        loaded = await in_daemon_thread(
            lambda: self._loader.load_all(self._settings), on_unused=release_models
        )
        served: list[ServedModel] = []
        try:
            for model in loaded.models:
                fresh = await self._serve(model, loaded.detector, num_models=len(loaded.models))
                served.append(fresh)
            if loaded.detector is not None:
                await loaded.detector.wait_if_begun()
        except BaseException:
            # A failed `_serve` has ended its own model. If `_serve` was cancelled, `ModelStarter.close` ends the model.
            release_models(LoadedModels(loaded.models[len(served) + 1 :]))
            await asyncio.shield(self.retire(served))
            raise
        self._detector.keep(loaded.detector, (model.manifest for model in loaded.models))
        return Models(served, loaded.detector, pivots=self._settings.pivot)

    async def load_one(self, old: Models, model: ServedModel, *, is_forced: bool) -> Models:
        """As `ModelSource.load_one`. The old model is always in memory, so `is_forced` has no effect."""
        path = model.path
        if path is None:
            raise BundleError(model.name, ["the model has no bundle to load again"])
        loaded = await in_daemon_thread(
            lambda: self._loader.load_one(path, self._settings),
            on_unused=lambda unused: release_models(LoadedModels([unused])),
        )
        if loaded.manifest.name != model.name:
            release_models(LoadedModels([loaded]))
            raise BundleError(path.name, [f"it holds the model {loaded.manifest.name} now, not {model.name}"])
        manifests = [loaded.manifest if each is model else each.translator.manifest for each in old]
        detector = self._detector.current
        if detector is not None:
            detector = self._detector.of(manifests)
        fresh = await self._serve(loaded, detector, num_models=len(old))
        try:
            if detector is not None:
                await detector.wait_if_begun()
        except BaseException:
            await asyncio.shield(self.retire([fresh]))
            raise
        self._detector.keep(detector, manifests)
        served = [fresh if each is model else each for each in old]
        return Models(served, detector, pivots=self._settings.pivot)

    async def load(self, model: ServedModel) -> None:
        """Do nothing: every model is loaded."""

    async def unload(self, model: ServedModel) -> None:
        """Refuse: raises ModelInUse."""
        raise ModelInUse(f"without {PREFIX}MODEL_MEMORY all models stay loaded")

    def running(self, model: ServedModel) -> Translator:
        """The model's translator."""
        assert isinstance(model.translator, Translator)
        return model.translator

    async def retire(self, models: Collection[ServedModel]) -> None:
        """Close the engines of models that no request uses."""
        await self._starter.stop([self.running(model) for model in models])

    async def close(self) -> None:
        """Do nothing: a load runs in its caller's task."""

    async def _serve(
        self, model: LoadedModel, detector: LazyDetector | None, *, num_models: int
    ) -> ServedModel:
        cache_bytes = self._settings.sentence_cache_bytes // num_models
        translator = await self._starter.start(model, detector, cache_bytes=cache_bytes)
        return ServedModel(translator, model.precision, model.path, model.kernels, model.provider)
