"""The interface of a served model, and the parts of it that need no loaded model."""

from __future__ import annotations

import asyncio
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, TypeVar

from app.bundle import Manifest
from app.decoding.option_changes import OptionChanges
from app.decoding.options import DecodingOptions
from app.decoding.validation import Bounds
from app.engine.limits import option_bounds
from app.engine.stats import Health
from app.runtime.interface import Limits
from app.text.detection import LazyDetector, Ranked
from app.translator.languages import Languages
from app.translator.observer import Observer
from app.translator.request import (
    ModelVersion,
    ScoreRequest,
    ScoreResult,
    TranslationRequest,
    TranslationResult,
)

if TYPE_CHECKING:
    from app.translator.translator import Translator

T = TypeVar("T")
# The most languages that `detect` returns for one text.
MAX_DETECTED = 5


class ModelTranslator(ABC):
    """Translates and scores texts with one model. All methods run on the event loop."""

    def __init__(
        self, manifest: Manifest, limits: Limits, *, executor: Executor, detector: LazyDetector | None
    ) -> None:
        """limits: of one worker of the model. executor: runs text processing. detector: None detects no language."""
        self.manifest = manifest
        self.version = ModelVersion(manifest.name, manifest.version)
        self.limits = limits
        self._executor = executor
        self.languages = Languages(manifest.language_pairs, detector)

    @functools.cached_property
    def default_options(self) -> DecodingOptions:
        """Return the model's default options; max_target_length is its longest target, without the start token."""
        defaults = self.manifest.decoding
        return DecodingOptions(
            beam_size=defaults.beam_size,
            length_penalty=defaults.length_penalty,
            alpha=defaults.alpha,
            max_target_length=self.limits.max_target_length - 1,
        )

    @functools.cached_property
    def bounds(self) -> Bounds:
        """Return the limits of the model's options."""
        return option_bounds(self.limits)

    def checked_options(self, changes: OptionChanges) -> DecodingOptions:
        """Return the default options with a request's changes.

        Raises InvalidRequest for contradictory and unsupported options.
        """
        return changes.checked(self.default_options, self.bounds)

    @property
    @abstractmethod
    def is_loaded(self) -> bool:
        """Whether the model is in memory."""

    @abstractmethod
    def health(self) -> Health | None:
        """Return the state of the model's engine; None while the model is not loaded."""

    @property
    def versions(self) -> tuple[ModelVersion, ...]:
        """With a pivot, the models of both halves; else empty, as `TranslationResult.models`."""
        return ()

    @abstractmethod
    def held(self, deadline: float) -> AbstractAsyncContextManager[Translator]:
        """Return a context manager that loads the model if necessary, and keeps it in memory until it exits.

        deadline: seconds of time.monotonic. Entering raises NotReady if the model is not loaded by then or
        cannot be loaded.
        """

    @abstractmethod
    def held_with(
        self, last: ModelTranslator, deadline: float
    ) -> AbstractAsyncContextManager[tuple[Translator, Translator]]:
        """As `held`, for two models of one class: this one, and `last`, which translates what this one gives."""

    @abstractmethod
    async def translate(
        self, request: TranslationRequest, observer: Observer | None = None
    ) -> TranslationResult:
        """Translate every text, and report the progress to the observer. See `Translator.translate`."""

    @abstractmethod
    async def score(self, request: ScoreRequest) -> ScoreResult:
        """Score every pair of text and translation. See `Translator.score`."""

    async def detect(self, texts: Sequence[str]) -> list[Ranked]:
        """Return the most probable languages of each text, with probabilities, in descending order.

        A text has at most MAX_DETECTED languages, served or not; none if it has no letters. Raises InvalidRequest if
        the server has no detector.
        """
        self.languages.check_detector()
        await self.languages.wait_for_detector()
        return await self.off_loop(lambda: [self.languages.detect(text)[:MAX_DETECTED] for text in texts])

    async def source_of(self, text: str, target: str) -> str:
        """Return the language to translate a text from, or the target language if the text needs no translation.

        Raises UnsupportedLanguages as `Languages.resolve` does, and for a target that is not served. Raises
        InvalidRequest if the server has no detector.
        """
        self.languages.check(None, target)
        await self.languages.wait_for_detector()
        language = await self.off_loop(lambda: self.languages.resolve(text, target, field="text"))
        return target if language.pair is None else language.source

    async def off_loop(self, work: Callable[[], T]) -> T:
        """Run `work` on the executor. It must not touch the engine."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)
