"""Which language a text is in, and which pair translates it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from app.bundle import LanguagePair
from app.errors import InvalidRequest, UnsupportedLanguages
from app.text.detection import LazyDetector, is_in_target

MAX_LISTED_PAIRS = 20
# Languages with their probabilities, 0 to 1, the likeliest first.
Ranked = list[tuple[str, float]]


@dataclass(frozen=True)
class Settled:
    """pair: None where the text is left as it is. confidence: that `source` is its language, 0 to 1."""

    pair: LanguagePair | None
    source: str
    confidence: float


class Languages:
    """Those of one bundle. Any thread may use it."""

    def __init__(self, pairs: Sequence[LanguagePair], detector: LazyDetector | None) -> None:
        """detector: None where no language is detected."""
        self._pairs = {(pair.source, pair.target): pair for pair in pairs}
        self._served = sorted({code for pair in self._pairs for code in pair})
        self._detector = detector

    def check(self, source: str | None, target: str) -> None:
        """Raises UnsupportedLanguages where no text can be translated so, InvalidRequest where none is detected."""
        if source is not None:
            self.pair(source, target)
            return
        self.check_detector()
        if target not in self._served:
            raise self._unsupported("auto", target)

    def check_detector(self) -> None:
        """Raises InvalidRequest where no language is detected."""
        if self._detector is None:
            raise InvalidRequest("the source language is not detected here: name it", field="source")

    async def wait_for_detector(self) -> None:
        """Load it where it is not loaded yet, without holding up any other work. Raises what loading it raised."""
        if self._detector is not None:
            await asyncio.wrap_future(self._detector.loaded())

    def pair(self, source: str, target: str) -> LanguagePair:
        """The pair. Raises UnsupportedLanguages, which lists those that there are."""
        pair = self._pairs.get((source, target))
        if pair is None:
            raise self._unsupported(source, target)
        return pair

    def detect(self, text: str) -> Ranked:
        """The served languages of a text; empty for a text without letters, and where none is detected."""
        return [] if self._detector is None else self._detector.loaded().result().detect(text, self._served)

    def settled(self, prose: str, target: str) -> Settled:
        """The language of what there is to translate in a text. Raises UnsupportedLanguages."""
        sources = [source for source, other in self._pairs if other == target]
        ranked = self.detect(prose)
        if not ranked:
            if not sources:
                return Settled(None, target, 0.0)
            return Settled(None, sources[0], 0.0)
        if not is_in_target(prose, target, ranked):
            for language, confidence in ranked:
                if language in sources:
                    return Settled(self._pairs[language, target], language, confidence)
        if ranked[0][0] != target:
            raise self._unsupported(ranked[0][0], target)
        return Settled(None, *ranked[0])

    def _unsupported(self, source: str, target: str) -> UnsupportedLanguages:
        known = sorted(self._pairs)[:MAX_LISTED_PAIRS]
        listed = ", ".join(f"{one} to {other}" for one, other in known)
        return UnsupportedLanguages(
            f"this pair is not translated here; supported: {listed}", source=source, target=target
        )
