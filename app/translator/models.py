"""Chooses the model that translates a request, and splits a request whose texts need several models.

The first model that serves a language pair translates it, unless the request names another one. If the languages of a
request's texts are detected, each text goes to the model of its pair, and the results are joined.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.engine.stats import Health
from app.errors import InvalidRequest
from app.text.detection import LazyDetector, Ranked
from app.translator.languages import Languages, ResolvedLanguage
from app.translator.model_translator import ModelTranslator
from app.translator.planning import parse_source
from app.translator.request import (
    ScoreRequest,
    ScoreResult,
    Timings,
    Translation,
    TranslationRequest,
    TranslationResult,
)


@dataclass(frozen=True)
class ServedModel:
    """A model that takes requests. precision: the precision of its variant. path: the folder of its bundle, if any."""

    translator: ModelTranslator
    precision: str
    path: Path | None = None

    @property
    def name(self) -> str:
        """The name in its manifest. Requests choose a model by this name."""
        return self.translator.manifest.name


class Models:
    """The models of a server, in the order of their bundles. All methods run on the event loop."""

    def __init__(self, served: Sequence[ServedModel], detector: LazyDetector | None = None) -> None:
        """served: at least one model, each with a different name. detector: None if no language is detected."""
        self._by_name = {model.name: model for model in served}
        self._by_pair: dict[tuple[str, str], ModelTranslator] = {}
        pairs = []
        for model in served:
            for pair in model.translator.manifest.language_pairs:
                if (pair.source, pair.target) not in self._by_pair:
                    self._by_pair[pair.source, pair.target] = model.translator
                    pairs.append(pair)
        self._languages = Languages(pairs, detector)
        self.default = served[0].translator
        self.pairs = frozenset(self._by_pair)
        self._num_holders = 0
        self._released = asyncio.Event()

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    @contextlib.contextmanager
    def held(self) -> Iterator[Models]:
        """The scope of a request that uses these models; their engines must run until it ends."""
        self._num_holders += 1
        try:
            yield self
        finally:
            self._num_holders -= 1
            if not self._num_holders:
                self._released.set()

    async def released(self) -> None:
        """Wait until no request holds these models."""
        while self._num_holders:
            self._released.clear()
            await self._released.wait()

    def health(self) -> Health:
        """Return the health of the engines of all loaded models together."""
        return Health.joint([health for model in self if (health := model.translator.health()) is not None])

    def named(self, name: str) -> ServedModel | None:
        """Return the model of this name, or None."""
        return self._by_name.get(name)

    def likely(self, source: str | None, target: str, name: str | None = None) -> ModelTranslator:
        """Return the model that translates these languages, or the default one if there is none.

        source: None for any language. name: the model's name; None for the first model of the pair.
        """
        if name is not None and name in self._by_name:
            return self._by_name[name].translator
        if source is not None:
            return self._by_pair.get((source, target), self.default)
        return next((found for pair, found in self._by_pair.items() if pair[1] == target), self.default)

    def translate(self, request: TranslationRequest) -> Coroutine[Any, Any, TranslationResult]:
        """Translate every text, as `Translator.translate` does, with the pairs of all models.

        Also raises InvalidRequest if the request names an unknown model.
        """
        if len(self) == 1 and request.model is None:
            return self.default.translate(request)
        return self._translate(request)

    async def score(self, request: ScoreRequest) -> ScoreResult:
        """Score every pair, as `Translator.score` does, with the pairs of all models."""
        return await self._translator_of(request.source, request.target, request.model).score(request)

    async def detect(self, texts: Sequence[str]) -> list[Ranked]:
        """Return the most probable languages of each text, as `Translator.detect` does."""
        return await self.default.detect(texts)

    async def source_of(self, text: str, target: str) -> str:
        """Return the source language of a text, as `Translator.source_of` does, with the pairs of all models."""
        self._languages.check(None, target)
        await self._languages.wait_for_detector()
        language = await self.default.off_loop(lambda: self._languages.resolve(text, target, field="text"))
        return target if language.pair is None else language.source

    async def only_translator(self, request: TranslationRequest) -> ModelTranslator:
        """Return the model that translates all texts of a request.

        Raises UnsupportedLanguages, and InvalidRequest if the texts need several models or the named one is unknown.
        """
        if request.source is not None or request.model is not None or len(self) == 1:
            return self._translator_of(request.source, request.target, request.model)
        languages = await self._resolve(request)
        found = {self._by_pair[each.source, request.target] for each in languages if each.pair is not None}
        if len(found) > 1:
            raise InvalidRequest(
                "the texts are in languages of different models: name the source, or send them one by one",
                field="source",
            )
        return found.pop() if found else self.likely(None, request.target)

    def _translator_of(self, source: str | None, target: str, name: str | None) -> ModelTranslator:
        """Return the model of this name, or the first of a pair. Raises InvalidRequest, UnsupportedLanguages."""
        if name is not None and name not in self._by_name:
            names = ", ".join(self._by_name)
            raise InvalidRequest(f"there is no model of this name; there are: {names}", field="model")
        if name is None:
            self._languages.check(source, target)
        return self.likely(source, target, name)

    async def _translate(self, request: TranslationRequest) -> TranslationResult:
        if request.source is not None or request.model is not None:
            translator = self._translator_of(request.source, request.target, request.model)
            return await translator.translate(request)
        languages = await self._resolve(request)
        shares: dict[tuple[ModelTranslator, str], list[int]] = {}
        for index, language in enumerate(languages):
            if language.pair is not None:
                key = (self._by_pair[language.source, request.target], language.source)
                shares.setdefault(key, []).append(index)
        if len({translator for translator, _ in shares}) < 2:
            translator = next((each for each, _ in shares), self.likely(None, request.target))
            return await translator.translate(request)
        results = await _all_of(
            [
                translator.translate(_share(request, source, indices))
                for (translator, source), indices in shares.items()
            ]
        )
        return _joined(request, languages, list(shares.values()), results)

    async def _resolve(self, request: TranslationRequest) -> list[ResolvedLanguage]:
        """Detect the language of each text. Raises InvalidRequest, UnsupportedLanguages."""
        self._languages.check(None, request.target)
        await self._languages.wait_for_detector()

        def resolve() -> list[ResolvedLanguage]:
            return [
                self._languages.resolve(
                    parse_source(request, index).prose, request.target, field=f"text[{index}]"
                )
                for index in range(len(request.texts))
            ]

        return await self.default.off_loop(resolve)


def _share(request: TranslationRequest, source: str, indices: Sequence[int]) -> TranslationRequest:
    """Return a request for some of the texts, which are in one language."""
    prefixes = request.target_prefixes
    return request._replace(
        texts=tuple(request.texts[index] for index in indices),
        source=source,
        target_prefixes=tuple(prefixes[index] for index in indices) if prefixes else (),
    )


async def _all_of(
    requests: Sequence[Coroutine[Any, Any, TranslationResult]],
) -> list[TranslationResult]:
    """Return all results. If one request fails, cancel the others and raise its error."""
    tasks = [asyncio.ensure_future(request) for request in requests]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _joined(
    request: TranslationRequest,
    languages: Sequence[ResolvedLanguage],
    shares: Sequence[Sequence[int]],
    results: Sequence[TranslationResult],
) -> TranslationResult:
    """Return the results of all shares as one. A text without a share is unchanged. Each time is the longest one."""
    num_hypotheses = request.options.num_hypotheses if request.options else 1
    found = [
        Translation(text, (text,) * num_hypotheses, (), language.source, language.confidence)
        for text, language in zip(request.texts, languages, strict=True)
    ]
    for indices, result in zip(shares, results, strict=True):
        for index, translation in zip(indices, result.translations, strict=True):
            found[index] = translation._replace(confidence=languages[index].confidence)
    return TranslationResult(
        source_tokens=sum(result.source_tokens for result in results),
        target_tokens=sum(result.target_tokens for result in results),
        num_sentences=sum(result.num_sentences for result in results),
        timings=Timings(*map(max, zip(*(result.timings for result in results), strict=True))),
        num_cached=sum(result.num_cached for result in results),
        model=results[0].model,
        translations=tuple(found),
    )
