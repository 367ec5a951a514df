"""A model that is loaded when a request needs it. A request holds the model until the request's work ends."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import TypeVar

from app.bundle import Manifest
from app.engine.stats import Health
from app.runtime.interface import Limits
from app.text.detection import LazyDetector
from app.translator.model_pool import ModelPool, PooledModel
from app.translator.model_translator import ModelTranslator
from app.translator.observer import Observer
from app.translator.request import ScoreRequest, ScoreResult, TranslationRequest, TranslationResult
from app.translator.text_threads import TextThreads
from app.translator.translator import Translator

Result = TypeVar("Result", TranslationResult, ScoreResult)


class OnDemandTranslator(ModelTranslator):
    """Translates with a model of a pool.

    `translate` and `score` also raise NotReady if the model cannot be loaded by the deadline (`ModelPool.held`).
    """

    def __init__(
        self,
        manifest: Manifest,
        limits: Limits,
        *,
        text_threads: TextThreads,
        detector: LazyDetector | None,
        pool: ModelPool,
        model: PooledModel,
    ) -> None:
        """limits: of one worker of the model, computed from the manifest and the settings."""
        super().__init__(manifest, limits, text_threads=text_threads, detector=detector)
        self.model = model
        self._pool = pool

    @property
    def is_loaded(self) -> bool:
        """As `ModelTranslator.is_loaded`."""
        return self.model.translator is not None

    def health(self) -> Health | None:
        """As `ModelTranslator.health`."""
        return None if self.model.translator is None else self.model.translator.health()

    def held(self, deadline: float) -> AbstractAsyncContextManager[Translator]:
        """As `ModelTranslator.held`."""
        return self._pool.held(self.model, deadline)

    def held_with(
        self, last: ModelTranslator, deadline: float
    ) -> AbstractAsyncContextManager[tuple[Translator, Translator]]:
        """As `ModelTranslator.held_with`."""
        assert isinstance(last, OnDemandTranslator)
        return self._pool.both_held(self.model, last.model, deadline)

    async def translate(
        self, request: TranslationRequest, observer: Observer | None = None
    ) -> TranslationResult:
        """As `ModelTranslator.translate`."""
        # Unsupported languages or options load no model.
        self.languages.check(request.source, request.target)
        self.checked_options(request.options)
        return await self._with_model(
            request.deadline, lambda translator: translator.translate(request, observer)
        )

    async def score(self, request: ScoreRequest) -> ScoreResult:
        """As `ModelTranslator.score`."""
        self.languages.check(request.source, request.target)
        self.checked_options(request.options)
        return await self._with_model(request.deadline, lambda translator: translator.score(request))

    async def _with_model(self, deadline: float, work: Callable[[Translator], Awaitable[Result]]) -> Result:
        """Return the result of `work` with the loaded model. Its timings include the wait for a load."""
        needs_load, started = not self.is_loaded, time.monotonic()
        async with self.held(deadline) as translator:
            load_s = time.monotonic() - started if needs_load else 0.0
            result = await work(translator)
        return replace(result, timings=result.timings._replace(load=load_s * 1000)) if needs_load else result
