"""Which language a text is in, and which pair translates it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from app.bundle import LanguagePair
from app.errors import InvalidRequest, UnsupportedLanguages
from app.text.detection import LazyDetector, Ranked, foreign_language, is_in_target, restrict_to
from app.text.language_names import language_name

MAX_LISTED_PAIRS = 20


@dataclass(frozen=True)
class ResolvedLanguage:
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
        """The known languages of a text; empty for a text without letters, and where none is detected."""
        return [] if self._detector is None else self._detector.loaded().result().detect(text)

    def resolve(self, prose: str, target: str, *, field: str) -> ResolvedLanguage:
        """The language of what there is to translate in a text.

        field: of the text. Raises UnsupportedLanguages where it surely is in a language that is not translated.
        """
        sources = [source for source, other in self._pairs if other == target]
        detected = self.detect(prose)
        self._check_not_foreign(prose, detected, sources, target, field)
        ranked = restrict_to(detected, self._served)
        if not ranked:
            return ResolvedLanguage(None, sources[0] if sources else target, 0.0)
        confidences = dict(detected)
        if not is_in_target(prose, target, ranked):
            for language, _ in ranked:
                if language in sources:
                    return ResolvedLanguage(self._pairs[language, target], language, confidences[language])
        likeliest = ranked[0][0]
        if likeliest != target:
            raise self._foreign(likeliest, target, field)
        return ResolvedLanguage(None, target, confidences[target])

    def _check_not_foreign(
        self, prose: str, detected: Ranked, sources: Sequence[str], target: str, field: str
    ) -> None:
        """Raises UnsupportedLanguages."""
        foreign = foreign_language(prose, detected, {*sources, target})
        # A text in a source that the detector does not know is detected as some other language.
        if foreign is not None and {*sources} <= {language for language, _ in detected}:
            raise self._foreign(foreign, target, field)

    def _foreign(self, language: str, target: str, field: str) -> UnsupportedLanguages:
        """Of a text whose language was detected."""
        return UnsupportedLanguages(
            f"{field} is in {language_name(language)} ({language}), which is not translated into {target} here; "
            f"supported: {self._listed()}; where the language is wrong, name the source",
            source=language,
            target=target,
            field=field,
        )

    def _unsupported(self, source: str, target: str) -> UnsupportedLanguages:
        return UnsupportedLanguages(
            f"this pair is not translated here; supported: {self._listed()}", source=source, target=target
        )

    def _listed(self) -> str:
        """The pairs that there are."""
        return ", ".join(f"{one} to {other}" for one, other in sorted(self._pairs)[:MAX_LISTED_PAIRS])
