"""Keeps the language detector of the served models, and makes a new one when their languages change."""

from __future__ import annotations

from collections.abc import Iterable

from app.bundle import Manifest
from app.startup import lazy_detector
from app.text.detection import LazyDetector


class ModelDetector:
    """Holds the detector that knows the languages of the served models. current: None until `keep` sets it."""

    def __init__(self) -> None:
        self.current: LazyDetector | None = None
        self._languages: frozenset[str] = frozenset()

    def keep(self, detector: LazyDetector | None, manifests: Iterable[Manifest]) -> None:
        """Hold a detector that was made for these models; None if the server detects no languages."""
        self.current, self._languages = detector, _languages(manifests)

    def of(self, manifests: Iterable[Manifest]) -> LazyDetector:
        """Return a detector for these models: the current one if the languages are the same.

        A new one starts to load in a thread, in parallel with the models. Call `keep` when the models serve.
        """
        languages = _languages(manifests)
        if self.current is not None and languages == self._languages:
            return self.current
        detector = lazy_detector(languages)
        detector.start_loading()
        return detector


def _languages(manifests: Iterable[Manifest]) -> frozenset[str]:
    pairs = (pair for manifest in manifests for pair in manifest.language_pairs)
    return frozenset(code for pair in pairs for code in (pair.source, pair.target))
