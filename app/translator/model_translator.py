"""The interface of a served model, and the parts of it that need no loaded model."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from app.bundle import Manifest
from app.decoding.option_changes import OptionChanges
from app.decoding.options import DecodingOptions
from app.decoding.validation import Bounds
from app.engine.limits import option_bounds
from app.engine.stats import Health
from app.runtime.interface import Limits
from app.text.detection import LazyDetector
from app.translator.languages import Languages
from app.translator.observer import Observer
from app.translator.request import (
    ModelVersion,
    ScoreRequest,
    ScoreResult,
    TranslationRequest,
    TranslationResult,
)
from app.translator.text_threads import TextThreads

if TYPE_CHECKING:
    from app.translator.translator import Translator


class ModelTranslator(ABC):
    """Translates and scores texts with one model. All methods run on the event loop."""

    def __init__(
        self, manifest: Manifest, limits: Limits, *, text_threads: TextThreads, detector: LazyDetector | None
    ) -> None:
        """limits: of one worker of the model. text_threads: process the texts of all models.

        detector: None detects no language.
        """
        self.manifest = manifest
        self.version = ModelVersion(manifest.name, manifest.version)
        self.limits = limits
        self.text_threads = text_threads
        self.languages = Languages(manifest.language_pairs, detector)

    @functools.cached_property
    def default_options(self) -> DecodingOptions:
        """Return the model's default options; max_target_length is the longest target without the start token."""
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
        """Empty, as `TranslationResult.models` without a pivot. A `PivotedPair` has the models of both halves."""
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
        """As `held`, for this model and `last`, which has the same class and translates this model's translations."""

    @abstractmethod
    async def translate(
        self, request: TranslationRequest, observer: Observer | None = None
    ) -> TranslationResult:
        """Translate every text, and report the progress to the observer. See `Translator.translate`."""

    @abstractmethod
    async def score(self, request: ScoreRequest) -> ScoreResult:
        """Score every pair of text and translation. See `Translator.score`."""
