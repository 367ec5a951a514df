"""Chooses the model that translates a request, and splits a request whose texts need several models.

The first model that serves a language pair translates it, unless the request names another one. A pair without a model
may be translated through a pivot language (`app.translator.pivot`). If the languages of a request's texts are detected,
each text goes to the model of its pair, and the results are joined.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.engine.stats import Health, WorkerHealth
from app.errors import InvalidRequest, UnsupportedLanguages
from app.text.detection import LazyDetector, Ranked
from app.translator.all_of import all_of
from app.translator.languages import Languages, ResolvedLanguage
from app.translator.model_translator import ModelTranslator
from app.translator.pivot import PairTranslator, find_pivots
from app.translator.planning import parse_source
from app.translator.request import (
    AnswerCount,
    ModelVersion,
    ScoreRequest,
    ScoreResult,
    Timings,
    Translation,
    TranslationRequest,
    TranslationResult,
)

# The maximum number of languages that `detect` returns for one text.
MAX_DETECTED = 5


@dataclass(frozen=True)
class ServedModel:
    """A model that serves requests. precision: of the served variant. path: the folder of its bundle, if any.

    kernels, provider: `used_kernels` and `provider` of its `app.workers.model_spec.ModelSpec`; empty if unknown.
    """

    translator: ModelTranslator
    precision: str
    path: Path | None = None
    kernels: str = ""
    provider: str = ""

    @property
    def name(self) -> str:
        """The name in its manifest. Requests choose a model by this name."""
        return self.translator.manifest.name

    @property
    def version(self) -> str:
        """The version in its manifest."""
        return self.translator.manifest.version


class Models:
    """The models of a server, in the order of their bundles. All methods run on the event loop."""

    def __init__(
        self,
        served: Sequence[ServedModel],
        detector: LazyDetector | None = None,
        *,
        pivots: Sequence[str] = (),
    ) -> None:
        """served: at least one model, each with a different name. detector: None if no language is detected.

        A model that a reload has kept may have an older detector, for other languages.
        pivots: languages through which pairs without a model are translated, in order of preference.
        """
        self._by_name = {model.name: model for model in served}
        self._by_pair: dict[tuple[str, str], ModelTranslator] = {}
        pairs = []
        for model in served:
            for pair in model.translator.manifest.language_pairs:
                if (pair.source, pair.target) not in self._by_pair:
                    self._by_pair[pair.source, pair.target] = model.translator
                    pairs.append(pair)
        self.pivoted = find_pivots(self._by_pair, pivots)
        self._direct_languages = Languages(pairs, detector)
        self._languages = Languages([*pairs, *(each.pair for each in self.pivoted.values())], detector)
        # Resolvers for the models that a reload has kept with an older detector, by name.
        self._languages_of = {
            model.name: self._languages.of_pairs(model.translator.manifest.language_pairs)
            for model in served
            if not model.translator.languages.has(detector)
        }
        self.default = served[0].translator
        self.pairs = frozenset(self._by_pair) | frozenset(self.pivoted)
        # The models that write each target. The second model of a pivoted pair is among them, because it has a direct
        # pair into the target.
        self._writers: dict[str, tuple[ModelTranslator, ...]] = {}
        for (_, target), translator in self._by_pair.items():
            self._writers[target] = tuple(dict.fromkeys((*self._writers.get(target, ()), translator)))
        self._num_holders = 0
        self._released = asyncio.Event()

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    @contextlib.contextmanager
    def held(self) -> Iterator[Models]:
        """The scope of a request that uses these models. Their engines must run until no scope is open."""
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
        """Return the joint health of the engines of all loaded models."""
        return Health.joint([health for model in self if (health := model.translator.health()) is not None])

    def workers(self) -> list[tuple[str, WorkerHealth]]:
        """Return each worker of the loaded models with its model's name."""
        healths = ((model.name, model.translator.health()) for model in self)
        return [(name, worker) for name, health in healths if health is not None for worker in health.workers]

    def named(self, name: str) -> ServedModel | None:
        """Return the model of this name, or None."""
        return self._by_name.get(name)

    def likely(self, source: str | None, target: str, name: str | None = None) -> ModelTranslator:
        """Return the model that writes the translation, or the likely one if the source is detected.

        source: None if it is detected. name: the model's name, if the request has one. The result is the first of these
        models that exists:

        1. the model of this name
        2. the second model of the pivoted pair
        3. the first model of the pair
        4. without source, the first model that translates into the target
        5. without source, the first model that translates from the target, because a text in the target language is
           returned unchanged
        6. the default model
        """
        if name is not None and name in self._by_name:
            return self._by_name[name].translator
        if source is not None and (source, target) in self.pivoted:
            return self.pivoted[source, target].last
        if source is not None:
            return self._by_pair.get((source, target), self.default)
        found = (model for side in (1, 0) for pair, model in self._by_pair.items() if pair[side] == target)
        return next(found, self.default)

    def candidates(
        self, source: str | None, target: str, name: str | None = None
    ) -> tuple[ModelTranslator, ...]:
        """Return the models of which each may write a translation into the target; arguments as for `likely`.

        It is the likely model alone, unless the source is detected and several models write the target.
        """
        if source is None and name not in self._by_name and target in self._writers:
            return self._writers[target]
        return (self.likely(source, target, name),)

    def translate(self, request: TranslationRequest) -> Coroutine[Any, Any, TranslationResult]:
        """Translate every text, as `Translator.translate` does, with the pairs of all models.

        Also raises InvalidRequest if the request names an unknown model.
        """
        if len(self) == 1 and request.model is None and not self.pivoted and not self._languages_of:
            return self.default.translate(request)
        return self._translate(request)

    async def score(self, request: ScoreRequest) -> ScoreResult:
        """Score every pair, as `Translator.score` does, with the pairs of all models.

        Also raises InvalidRequest if the request names an unknown model, and UnsupportedLanguages for a pivoted pair,
        because no model has the probabilities of its translations.
        """
        pivoted = self.pivoted.get((request.source, request.target))
        if pivoted is not None and request.model is None:
            raise UnsupportedLanguages(
                f"this pair is translated through {pivoted.pivot}, and has no scores; score {request.source} to "
                f"{pivoted.pivot} and {pivoted.pivot} to {request.target}",
                source=request.source,
                target=request.target,
            )
        return await self._model_of(request.source, request.target, request.model).score(request)

    async def detect(self, texts: Sequence[str], *, caller: str) -> list[Ranked]:
        """Return the most probable languages of each text, with probabilities, in descending order.

        A text has at most MAX_DETECTED languages, served or not; none if it has no letters. Raises InvalidRequest if
        the server has no detector.
        """
        self._languages.check_detector()
        await self._languages.wait_for_detector()
        return await self.default.text_threads.run(
            lambda: [self._languages.detect(text)[:MAX_DETECTED] for text in texts], caller=caller
        )

    async def source_of(self, text: str, target: str, *, caller: str) -> str:
        """Return the language to translate a text from, or the target language if the text needs no translation.

        Raises UnsupportedLanguages as `Languages.resolve` does, and for a target that is not served. Raises
        InvalidRequest if the server has no detector.
        """
        self._languages.check(None, target)
        await self._languages.wait_for_detector()
        language = await self.default.text_threads.run(
            lambda: self._languages.resolve(text, target, field="text"), caller=caller
        )
        return target if language.pair is None else language.source

    async def only_translator(self, request: TranslationRequest) -> tuple[PairTranslator, TranslationRequest]:
        """Return the model or the pivoted pair that translates all texts of a request, and the request for it.

        Raises UnsupportedLanguages, and InvalidRequest if the texts need several models or the named model is unknown.
        """
        if self._needs_no_detection(request):
            return self._translator_of(request), request
        languages = await self._resolve(request)
        if request.model is not None:
            return self._translator_of(request), request._replace(languages=tuple(languages))
        translators = {
            self._of_pair(each.source, request.target) for each in languages if each.pair is not None
        }
        if len(translators) > 1:
            raise InvalidRequest(
                "the texts are in languages of different models: name the source, or send them one by one",
                field="source",
            )
        translator = translators.pop() if translators else self.likely(None, request.target)
        return translator, request._replace(languages=tuple(languages))

    def _needs_no_detection(self, request: TranslationRequest) -> bool:
        """Whether the source is known, or one model alone may translate the texts and detects their languages."""
        if request.source is not None:
            return True
        is_alone = len(self) == 1 and not self.pivoted
        return (is_alone or request.model is not None) and (
            request.model or self.default.version.name
        ) not in self._languages_of

    def _of_pair(self, source: str, target: str) -> PairTranslator:
        """Return what translates a pair: its first model, or else a pivot. Raises KeyError if nothing does."""
        return self._by_pair.get((source, target)) or self.pivoted[source, target]

    def _translator_of(self, request: TranslationRequest) -> PairTranslator:
        """Return what translates a request. Raises InvalidRequest, UnsupportedLanguages."""
        if request.model is None and request.pivot:
            self._languages.check(request.source, request.target)
            if (pivoted := self.pivoted.get((request.source or "", request.target))) is not None:
                return pivoted
        return self._model_of(request.source, request.target, request.model)

    def _model_of(self, source: str | None, target: str, name: str | None) -> ModelTranslator:
        """Return the model of this name, or the first of a pair. Raises InvalidRequest, UnsupportedLanguages."""
        if name is not None and name not in self._by_name:
            names = ", ".join(self._by_name)
            raise InvalidRequest(f"there is no model of this name; there are: {names}", field="model")
        if name is None:
            self._direct_languages.check(source, target)
        return self.likely(source, target, name)

    async def _translate(self, request: TranslationRequest) -> TranslationResult:
        if self._needs_no_detection(request):
            return await self._translator_of(request).translate(request)
        languages = await self._resolve(request)
        if request.model is not None:
            return await self._translator_of(request).translate(request._replace(languages=tuple(languages)))
        groups: dict[tuple[PairTranslator, str], list[int]] = {}  # indices of texts
        for index, language in enumerate(languages):
            if language.pair is not None:
                key = (self._of_pair(language.source, request.target), language.source)
                groups.setdefault(key, []).append(index)
        translators = {translator for translator, _ in groups} or {self.likely(None, request.target)}
        if len(translators) == 1 and isinstance(translator := translators.pop(), ModelTranslator):
            return await translator.translate(request._replace(languages=tuple(languages)))
        for translator, _ in groups:
            translator.checked_options(request.options)  # no group is translated if another one is refused
        request = request._replace(answer_count=AnswerCount())
        results = await all_of(
            [
                translator.translate(_subrequest(request, source, indices))
                for (translator, source), indices in groups.items()
            ]
        )
        return _joined(request, languages, list(groups.values()), results)

    async def _resolve(self, request: TranslationRequest) -> list[ResolvedLanguage]:
        """Detect the language of each text. Raises InvalidRequest, UnsupportedLanguages."""
        if request.model is not None:
            known = self._languages_of[request.model]
        else:
            known = self._languages if request.pivot else self._direct_languages
        known.check(None, request.target)
        await known.wait_for_detector()

        def resolve() -> list[ResolvedLanguage]:
            return [
                known.resolve(parse_source(request, index).prose, request.target, field=f"text[{index}]")
                for index in range(len(request.texts))
            ]

        return await self.default.text_threads.run_for(request, resolve)


def _subrequest(request: TranslationRequest, source: str, indices: Sequence[int]) -> TranslationRequest:
    """Return a request for the texts at these indices. source: the language of these texts."""
    prefixes = request.target_prefixes
    return request._replace(
        texts=tuple(request.texts[index] for index in indices),
        source=source,
        target_prefixes=tuple(prefixes[index] for index in indices) if prefixes else (),
    )


def _joined(
    request: TranslationRequest,
    languages: Sequence[ResolvedLanguage],
    groups: Sequence[Sequence[int]],
    results: Sequence[TranslationResult],
) -> TranslationResult:
    """Join the results of all groups of texts into one. Each timing is the longest of all groups.

    groups: indices of texts. A text in no group is returned unchanged.
    """
    translations = [
        Translation(text, (text,) * request.options.num_hypotheses, (), language.source, language.confidence)
        for text, language in zip(request.texts, languages, strict=True)
    ]
    for indices, result in zip(groups, results, strict=True):
        for index, translation in zip(indices, result.translations, strict=True):
            translations[index] = translation._replace(confidence=languages[index].confidence)
    return TranslationResult(
        source_tokens=sum(result.source_tokens for result in results),
        target_tokens=sum(result.target_tokens for result in results),
        num_sentences=sum(result.num_sentences for result in results),
        timings=Timings(*map(max, zip(*(result.timings for result in results), strict=True))),
        num_cached=sum(result.num_cached for result in results),
        model=results[0].model,
        models=_models_of(results),
        num_rows=sum(result.num_rows for result in results),
        num_steps=max(result.num_steps for result in results),
        shares=_summed(result.sentences_by_model for result in results),
        translations=tuple(translations),
    )


def _summed(counts: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    total = Counter[str]()
    for each in counts:
        total.update(each)
    return total


def _models_of(results: Sequence[TranslationResult]) -> tuple[ModelVersion, ...]:
    """Return all models of a request in order, each once; empty if no text was translated through a pivot."""
    if not any(result.models for result in results):
        return ()
    return tuple(dict.fromkeys(each for result in results for each in result.models or (result.model,)))
