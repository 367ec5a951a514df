"""Decoding options where models have different limits and defaults. The models are scripted, and copy the source."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any, cast

import pytest

from app.decoding.option_changes import OptionChanges
from app.decoding.options import DecodingOptions, EarlyStop
from app.errors import InvalidRequest
from app.text.detection import LanguageDetector, LazyDetector
from app.text.tokenizer import Tokenizer
from app.translator import (
    ModelPool,
    Models,
    ModelTranslator,
    OnDemandTranslator,
    PooledModel,
    ScoreRequest,
    ServedModel,
    TranslationResult,
)
from app.translator.text_threads import TextThreads
from tests.api.echo import Behaviour, echo_model
from tests.model.sentences import write_tokenizer
from tests.translator.scripted import ScriptedTranslator, request

GERMAN = "Anna sieht heute den Fluss, und die Kinder spielen bei dem alten Haus."
ENGLISH = "Anna sees the river today, and the children play near the old house."
# FIRST: de>en. LAST: en>fr. SHORT: de>it and en>it, with the lowest limit for the length of a translation.
FIRST = Behaviour(pairs=(("de", "en"),), name="first", alpha=0.2)
LAST = Behaviour(pairs=(("en", "fr"),), name="last", alpha=0.9)
SHORT = Behaviour(pairs=(("de", "it"), ("en", "it")), name="short", alpha=0.0, max_target_length=47)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer(write_tokenizer(tmp_path_factory.mktemp("options") / "tokenizer.spm"))


@pytest.fixture(scope="module")
def detector() -> LazyDetector:
    return LazyDetector(lambda: LanguageDetector(("de", "en")))


class Scripted:
    """Several scripted models, with German to French through English."""

    def __init__(self, tokenizer: Tokenizer, detector: LazyDetector, *behaviours: Behaviour) -> None:
        self.scripts = [
            ScriptedTranslator(tokenizer, str, detector=detector, behaviour=each) for each in behaviours
        ]
        served = [ServedModel(each.translator, "fp32") for each in self.scripts]
        self.models = Models(served, detector, pivots=("en",))

    def translate(self, *texts: str, **changes: Any) -> TranslationResult:
        return asyncio.run(self.models.translate(request(texts, **changes)))

    @property
    def options(self) -> list[list[DecodingOptions]]:
        """The options of the submitted sentences of each model."""
        return [[options for _, options in each.engine.submitted] for each in self.scripts]


def test_each_half_of_a_pivot_has_its_own_defaults(tokenizer: Tokenizer, detector: LazyDetector) -> None:
    scripted = Scripted(tokenizer, detector, FIRST, LAST, SHORT)
    for source in (None, "de"):
        for changes in (OptionChanges(), OptionChanges.of(num_alternatives=1)):
            scripted.translate(GERMAN, source=source, target="fr", options=changes)
    first, last, others = scripted.options
    assert {options.alpha for options in first} == {FIRST.alpha}
    assert {options.alpha for options in last} == {LAST.alpha}
    assert others == []


def test_both_halves_of_a_pivot_have_the_options_that_are_set(
    tokenizer: Tokenizer, detector: LazyDetector
) -> None:
    """An option that the request sets to the default of one model counts as set, too."""
    scripted = Scripted(tokenizer, detector, replace(FIRST, beam_size=1), LAST)
    for values in ({"alpha": LAST.alpha, "beam_size": 4}, {"early_stop": EarlyStop.BOUND}):
        scripted.translate(GERMAN, source="de", target="fr", options=OptionChanges.of(**values))
    (first, second), last = scripted.options
    assert (first.alpha, first.beam_size) == (LAST.alpha, 4)
    assert (second.alpha, second.early_stop, second.beam_size) == (FIRST.alpha, EarlyStop.BOUND, 4)
    assert [options.alpha for options in last] == [LAST.alpha, LAST.alpha]


def test_each_text_has_the_defaults_of_its_own_model(tokenizer: Tokenizer, detector: LazyDetector) -> None:
    german = replace(FIRST, pairs=(("de", "fr"),))
    scripted = Scripted(tokenizer, detector, german, LAST)
    scripted.translate(GERMAN, ENGLISH, source=None, target="fr", options=OptionChanges.of(beam_size=2))
    ((first,), (last,)) = scripted.options
    assert (first.alpha, first.beam_size) == (FIRST.alpha, 2)
    assert (last.alpha, last.beam_size) == (LAST.alpha, 2)


def test_nothing_is_translated_if_one_of_several_models_refuses(
    tokenizer: Tokenizer, detector: LazyDetector
) -> None:
    german = replace(FIRST, pairs=(("de", "fr"),))
    scripted = Scripted(tokenizer, detector, german, replace(LAST, max_target_length=47))
    with pytest.raises(InvalidRequest, match="max_target_length must be 1 to 47 subwords, and is 60"):
        scripted.translate(
            GERMAN, ENGLISH, source=None, target="fr", options=OptionChanges.of(max_target_length=60)
        )
    assert scripted.options == [[], []]


def test_the_candidates_are_the_models_that_may_write_the_translation(
    tokenizer: Tokenizer, detector: LazyDetector
) -> None:
    scripted = Scripted(tokenizer, detector, FIRST, LAST, SHORT, replace(SHORT, name="other"))

    def names(*languages: Any) -> list[str]:
        return [each.version.name for each in scripted.models.candidates(*languages)]

    assert names(None, "fr") == ["last"]
    assert names("de", "fr") == ["last"], "a pivoted pair"
    assert names(None, "it") == ["short"], "the first of two models has all pairs of the other one"
    assert names(None, "it", "other") == ["other"]
    assert names(None, "de") == ["first"], "German texts are returned unchanged"
    different = Scripted(tokenizer, detector, SHORT, replace(FIRST, pairs=(("fr", "it"),)))
    assert [each.version.name for each in different.models.candidates(None, "it")] == ["short", "first"]


def test_without_a_source_the_likely_model_is_the_first_that_writes_the_target(
    tokenizer: Tokenizer, detector: LazyDetector
) -> None:
    models = Scripted(tokenizer, detector, FIRST, replace(FIRST, name="back", pairs=(("en", "de"),))).models
    assert [models.likely(None, target).version.name for target in ("en", "de")] == ["first", "back"]


def test_refused_options_load_no_model(tokenizer: Tokenizer, detector: LazyDetector) -> None:
    def on_demand(behaviour: Behaviour) -> ModelTranslator:
        model = echo_model(tokenizer, behaviour, num_rows=16)

        async def load(_model: object) -> Any:
            raise AssertionError("the model is loaded")

        return OnDemandTranslator(
            model.manifest,
            model.limits,
            text_threads=TextThreads(1),
            detector=detector,
            pool=ModelPool(1, unload=cast("Any", load), listener=cast("Any", None)),
            model=PooledModel(behaviour.name, 1, load),
        )

    served = [ServedModel(on_demand(each), "fp32") for each in (FIRST, LAST)]
    models = Models(served, detector, pivots=("en",))
    for source, target in (("de", "en"), (None, "en"), ("de", "fr"), (None, "fr")):
        asked = request(
            [GERMAN], source=source, target=target, options=OptionChanges.of(max_target_length=72)
        )
        with pytest.raises(InvalidRequest, match="max_target_length"):
            asyncio.run(models.translate(asked))
    scored = ScoreRequest(
        (GERMAN,), (ENGLISH,), "de", "en", "r", "", time.monotonic() + 20,
        options=OptionChanges.of(max_target_length=72),
    )  # fmt: skip
    with pytest.raises(InvalidRequest, match="max_target_length"):
        asyncio.run(models.score(scored))
