"""Resolves the source language of a text and the language pair that translates it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from app.errors import InvalidRequest, UnsupportedLanguages
from app.language_pairs import LanguagePair
from app.text.detection import (
    LazyDetector,
    Ranked,
    foreign_language,
    is_in_target,
    is_same_language,
    restrict_to,
)
from app.text.language_names import language_name

# The maximum number of pairs that an error message lists. If larger, messages of a server with many languages become
# unreadable.
MAX_LISTED_PAIRS = 20


@dataclass(frozen=True)
class ResolvedLanguage:
    """The language of a text. pair: None if the text is returned unchanged. confidence: of `source`, 0 to 1."""

    pair: LanguagePair | None
    source: str
    confidence: float


class Languages:
    """Resolves languages among a set of pairs. Any thread may use it."""

    def __init__(self, pairs: Sequence[LanguagePair], detector: LazyDetector | None) -> None:
        """detector: None if the server does not detect languages."""
        self._pairs = {(pair.source, pair.target): pair for pair in pairs}
        self._served = sorted({code for pair in self._pairs for code in pair})
        self._sources: dict[str, list[str]] = {}  # by target
        for source, target in self._pairs:
            self._sources.setdefault(target, []).append(source)
        self._detector = detector

    def of_pairs(self, pairs: Sequence[LanguagePair]) -> Languages:
        """Return a resolver among other pairs, with the same detector."""
        return Languages(pairs, self._detector)

    def has(self, detector: LazyDetector | None) -> bool:
        """Whether this object uses the given detector."""
        return self._detector is detector

    def check(self, source: str | None, target: str) -> None:
        """Raises UnsupportedLanguages if no pair serves a request.

        If the request has no source, its target must be the source or the target of some pair. Raises InvalidRequest if
        the request needs detection and the server has no detector.
        """
        if source is not None:
            self.pair(source, target)
            return
        self.check_detector()
        if target not in self._served:
            raise self._unsupported("auto", target)

    def check_detector(self) -> None:
        """Raises InvalidRequest if there is no detector."""
        if self._detector is None:
            raise InvalidRequest("this server does not detect languages: name the source", field="source")

    async def wait_for_detector(self) -> None:
        """Load the detector on its own thread, if it is not loaded. Raises the error of loading it."""
        if self._detector is not None:
            await asyncio.wrap_future(self._detector.start_loading())

    def pair(self, source: str, target: str) -> LanguagePair:
        """Return the pair. Raises UnsupportedLanguages, whose message lists pairs that are served."""
        pair = self._pairs.get((source, target))
        if pair is None:
            raise self._unsupported(source, target)
        return pair

    def detect(self, text: str) -> Ranked:
        """Return the languages of a text, most probable first; empty without letters or detector.

        Blocks while the detector is loading, so the caller first awaits `wait_for_detector`.
        """
        return [] if self._detector is None else self._detector.start_loading().result().detect(text)

    def resolve(self, prose: str, target: str, *, field: str) -> ResolvedLanguage:
        """Return the language of a text's prose and the pair that translates it.

        field: the text's name in the request. If the detector knows every source of the target, raises
        UnsupportedLanguages for a text that is certainly in a language that is not translated into the target. If the
        target has no source, also raises it for a text that is probably in another language.
        """
        sources = self._sources.get(target, [])
        detected = self.detect(prose)
        if not detected:
            return ResolvedLanguage(None, sources[0] if sources else target, 0.0)
        confidences = dict(detected)
        # The first source that the detector does not know. A text in it is detected as some other language.
        unknown = next((source for source in sources if source not in confidences), None)
        foreign = foreign_language(prose, detected, {*sources, target})
        if foreign is not None and unknown is None:
            raise self._foreign(foreign, target, field)
        ranked = restrict_to(detected, self._served)
        is_variant = any(is_same_language(source, target) for source in sources)  # as pt is for pt-BR
        # `ranked` compares the served languages that the detector knows. If the text may be in an unknown source, that
        # comparison does not show that the text is in the target.
        if is_variant or not is_in_target(prose, target, ranked if unknown is None else detected):
            known = [language for language, _ in ranked if language in sources and foreign is None]
            source = known[0] if known else unknown
            if source is not None:
                return ResolvedLanguage(self._pairs[source, target], source, confidences.get(source, 0.0))
        likeliest = (ranked or detected)[0][0]
        if target not in confidences or not is_same_language(likeliest, target):
            raise self._foreign(likeliest, target, field)
        return ResolvedLanguage(None, target, confidences[target])

    def _foreign(self, language: str, target: str, field: str) -> UnsupportedLanguages:
        """Return the error for a text in a detected language that is not translated into the target."""
        return UnsupportedLanguages(
            f"{field} is in {language_name(language)} ({language}), "
            f"which is not translated into {language_name(target)} ({target}) here; "
            f"supported: {self._listed(language, target)}; if the language is wrong, name the source",
            source=language,
            target=target,
            field=field,
            is_detected=True,
        )

    def _unsupported(self, source: str, target: str) -> UnsupportedLanguages:
        """Return the error for a pair. Its field is the source if nothing is translated from it."""
        is_known = source == "auto" or any(source == known for known, _ in self._pairs)
        return UnsupportedLanguages(
            f"this pair is not translated here; supported: {self._listed(source, target)}",
            source=source,
            target=target,
            field="target" if is_known else "source",
        )

    def _listed(self, source: str, target: str) -> str:
        """Return the served pairs for an error message.

        Of more than MAX_LISTED_PAIRS, return the first ones and the number of the others. Pairs with the source or the
        target of the request come first then.
        """
        pairs = sorted(self._pairs)
        num_others = len(pairs) - MAX_LISTED_PAIRS
        if num_others > 0:
            pairs.sort(key=lambda pair: pair[0] != source and pair[1] != target)
        listed = ", ".join(f"{one} to {other}" for one, other in pairs[:MAX_LISTED_PAIRS])
        return f"{listed} and {num_others} more" if num_others > 0 else listed
