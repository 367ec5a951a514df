"""Texts whose source language is detected, and texts whose source language the request sets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from app.errors import InvalidRequest, PayloadTooLarge, UnsupportedLanguages
from app.language_pairs import LanguagePair
from app.text.detection import LanguageDetector, LazyDetector
from app.text.glossary import Term
from app.text.parsed_text import TextFormat
from app.text.tokenizer import Tokenizer
from app.translator import AnswerLimits, Models, ServedModel, Translation, TranslationResult
from app.translator.languages import Languages, ResolvedLanguage
from tests.api.echo import Behaviour
from tests.model.sentences import write_tokenizer
from tests.translator.scripted import ScriptedTranslator, request

ENGLISH = "Where is the nearest railway station, and how late is it?"
GERMAN = "Wo ist hier der nächste Bahnhof, und wie spät ist es jetzt?"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer(write_tokenizer(tmp_path_factory.mktemp("languages") / "tokenizer.spm"))


@pytest.fixture(scope="module")
def detector() -> LanguageDetector:
    return LanguageDetector(("en", "de"))


def stretched(source: str) -> str:
    return source.replace("a", "aa")


def test_each_text_has_its_own_language(tokenizer: Tokenizer, detector: LanguageDetector) -> None:
    script = ScriptedTranslator(tokenizer, stretched, detector=detector)
    texts = [ENGLISH, GERMAN, "Gift", "42", f"{GERMAN} https://www.example.com/where/is/the/station"]
    translations = script.result(texts, source=None).translations
    assert [each.source for each in translations] == ["en", "de", "en", "en", "de"]
    assert [each.text == text for each, text in zip(translations, texts, strict=True)] == [
        False, True, True, True, True,
    ]  # fmt: skip
    assert translations[0].confidence > 0.95
    assert translations[1].confidence > 0.95
    assert translations[1].segments == ()
    assert 0 < translations[2].confidence < 0.95
    assert translations[3].confidence == 0
    assert len(script.engine.submitted) == 2  # the English text and the short one


def test_loading_the_detector_blocks_no_other_request(
    tokenizer: Tokenizer, detector: LanguageDetector
) -> None:
    may_end = threading.Event()

    def load() -> LanguageDetector:
        assert may_end.wait(60)
        return detector

    script = ScriptedTranslator(tokenizer, stretched, detector=LazyDetector(load))

    async def run() -> tuple[TranslationResult, TranslationResult]:
        first = asyncio.ensure_future(script.translator.translate(request([ENGLISH], source=None)))
        # The text is long, so it is prepared on the only text thread.
        stated = await asyncio.wait_for(script.translator.translate(request([f"{ENGLISH} " * 8])), 60)
        assert not first.done()
        may_end.set()
        return await first, stated

    detected, stated = asyncio.run(run())
    assert [detected.translations[0].source, stated.translations[0].source] == ["en", "en"]
    assert script.text_threads.num_submits >= 2


def test_a_source_in_the_request_is_not_checked(tokenizer: Tokenizer, detector: LanguageDetector) -> None:
    script = ScriptedTranslator(tokenizer, stretched, detector=detector)
    (gift, german) = script.result(["Gift", GERMAN]).translations
    assert len(script.engine.submitted) == 2
    assert (gift.source, gift.confidence) == (german.source, german.confidence) == ("en", 1.0)


def test_markup_does_not_count_for_detection(tokenizer: Tokenizer, detector: LanguageDetector) -> None:
    script = ScriptedTranslator(tokenizer, stretched, detector=detector)
    page = f'<p title="the station of the town">{GERMAN}</p><script>{ENGLISH * 5}</script>'
    translation = script(page, source=None, text_format=TextFormat.HTML)
    assert (translation.source, translation.text) == ("de", page)


def test_terms_have_the_endings_of_the_detected_language(
    tokenizer: Tokenizer, detector: LanguageDetector
) -> None:
    script = ScriptedTranslator(tokenizer, lambda source: source, detector=detector, has_alignment=True)
    translation = script("Two stations are open now.", source=None, terms=(Term("station", "Halt"),))
    assert translation.source == "en"
    assert translation.text == "Two Halt are open now."


@pytest.mark.parametrize(("source", "target"), [(None, "fr"), ("de", "en"), ("en", "en"), ("fr", "de")])
def test_an_unknown_pair_is_an_error_that_lists_the_pairs(
    tokenizer: Tokenizer, detector: LanguageDetector, source: str | None, target: str
) -> None:
    script = ScriptedTranslator(tokenizer, stretched, detector=detector)
    with pytest.raises(UnsupportedLanguages, match="en to de"):
        script(ENGLISH, source=source, target=target)


@pytest.mark.parametrize(
    ("source", "target", "field"),
    [
        (None, "fr", "target"),
        ("en", "fr", "target"),
        ("en", "en", "target"),
        ("fr", "de", "source"),
        ("x", "y", "source"),
    ],
)
def test_the_error_of_an_unknown_pair_names_the_wrong_language(
    tokenizer: Tokenizer, detector: LanguageDetector, source: str | None, target: str, field: str
) -> None:
    with pytest.raises(UnsupportedLanguages) as caught:
        ScriptedTranslator(tokenizer, stretched, detector=detector)(ENGLISH, source=source, target=target)
    assert caught.value.field == field


def resolved(served: Sequence[LanguagePair], text: str) -> ResolvedLanguage:
    """The language of a text that is to be translated into the first pair's target."""
    detector = LanguageDetector({code for pair in served for code in (pair.source, pair.target)})
    languages = Languages(served, LazyDetector(lambda: detector))
    return languages.resolve(text, served[0].target, field="text")


FRENCH = "Bonjour tout le monde, comment \u00e7a va?"


def test_a_text_in_an_unsupported_language_is_refused_with_its_name(
    tokenizer: Tokenizer, detector: LanguageDetector
) -> None:
    script = ScriptedTranslator(tokenizer, stretched, detector=detector)
    with pytest.raises(UnsupportedLanguages, match=r"text\[1\] is in French \(fr\).*en to de") as caught:
        script.result([ENGLISH, FRENCH], source=None)
    assert (caught.value.source, caught.value.target, caught.value.field) == ("fr", "de", "text[1]")
    assert script.engine.submitted == []
    assert script.result(["Bonjour", "Hallo", "OK", FRENCH[:3]], source=None).translations[0].source == "en"
    assert script(FRENCH).source == "en"  # a source in the request is not checked


@pytest.mark.parametrize(
    ("pairs", "text", "source", "is_translated"),
    [
        ("xx-de", FRENCH, "xx", True),
        ("xx-de", ENGLISH, "xx", True),
        ("xx-de", "Gift", "xx", True),
        ("xx-de", GERMAN, "de", False),
        ("xx-de", "42", "xx", False),
        ("xx-yy", GERMAN, "xx", True),
        ("en-de xx-de", FRENCH, "xx", True),
        ("en-de xx-de", ENGLISH, "en", True),
        ("en-de xx-de", "Gift", "en", True),
        ("en-de xx-de", GERMAN, "de", False),
    ],
)
def test_a_text_may_be_in_a_source_language_that_the_detector_does_not_know(
    pairs: str, text: str, source: str, is_translated: bool
) -> None:
    """A text with letters is returned unchanged only if the detector is certain that it is in the target language."""
    served = [LanguagePair(source=pair[:2], target=pair[3:]) for pair in pairs.split()]
    found = resolved(served, text)
    assert (found.source, found.pair is not None) == (source, is_translated)
    assert (found.confidence > 0) == (source != "xx")


PORTUGUESE = "As crian\u00e7as brincavam no jardim quando come\u00e7ou a chover."


@pytest.mark.parametrize(
    ("pairs", "text", "source", "is_translated"),
    [
        ("en>pt-BR en>pt", PORTUGUESE, "pt-BR", False),
        ("en>pt en>pt-BR", PORTUGUESE, "pt", False),
        ("en>pt en>pt-BR", "Bom dia", "en", True),
        ("en>pt en>pt-BR", ENGLISH, "en", True),
        ("pt>pt-BR en>pt-BR", PORTUGUESE, "pt", True),
        ("pt-BR>en pt>en", PORTUGUESE, "pt", True),
    ],
)
def test_a_language_with_two_codes(pairs: str, text: str, source: str, is_translated: bool) -> None:
    """The detector gives both codes the same probability."""
    codes = [pair.split(">") for pair in pairs.split()]
    found = resolved([LanguagePair(source=first, target=second) for first, second in codes], text)
    assert (found.source, found.pair is not None) == (source, is_translated)


def test_a_text_in_the_target_language_is_unchanged_if_two_codes_serve_it_as_a_source() -> None:
    served = [LanguagePair(source=code, target="en") for code in ("pt", "pt-BR")]
    detector = LazyDetector(lambda: LanguageDetector(("pt", "pt-BR", "en")))
    found = Languages(served, detector).resolve("crian\u00e7as", "pt-BR", field="text")
    assert (found.source, found.pair) == ("pt-BR", None)


def test_a_text_is_not_returned_unchanged_if_the_detector_knows_no_served_language() -> None:
    languages = Languages(
        [LanguagePair(source="xx", target="yy")], LazyDetector(lambda: LanguageDetector(()))
    )
    with pytest.raises(UnsupportedLanguages, match="not translated into xx"):
        languages.resolve("Gift", "xx", field="text")


def test_a_language_that_is_served_only_as_a_source_is_no_target(
    tokenizer: Tokenizer, detector: LanguageDetector
) -> None:
    script = ScriptedTranslator(tokenizer, stretched, detector=detector)
    assert script(ENGLISH, source=None, target="en").text == ENGLISH
    with pytest.raises(UnsupportedLanguages) as caught:
        script(GERMAN, source=None, target="en")
    assert (caught.value.source, caught.value.target) == ("de", "en")


def test_a_short_text_is_refused_if_no_pair_has_the_requested_target() -> None:
    """The requested target is English, which is served only as a source. A short text is not certainly German."""
    served = [LanguagePair(source=code, target="de") for code in ("en", "fr")]
    languages = Languages(served, LazyDetector(lambda: LanguageDetector(("de", "en", "fr"))))
    with pytest.raises(UnsupportedLanguages) as caught:
        languages.resolve("Guten Morgen", "en", field="text")
    assert (caught.value.source, caught.value.target) == ("de", "en")


def test_a_text_in_a_language_that_only_the_second_model_has_is_unchanged(
    tokenizer: Tokenizer, detector: LanguageDetector
) -> None:
    known = LazyDetector(lambda: detector)
    served = [
        ServedModel(
            ScriptedTranslator(
                tokenizer, stretched, detector=known, behaviour=Behaviour(pairs=(pair,), name="-".join(pair))
            ).translator,
            "fp32",
        )
        for pair in (("de", "fr"), ("en", "de"))
    ]
    models = Models(served, known)
    asked = request([ENGLISH, ENGLISH], source=None, target="en")
    assert asyncio.run(models.only_translator(asked))[0] is served[1].translator
    result = asyncio.run(models.translate(asked))
    assert [each.text for each in result.translations] == [ENGLISH, ENGLISH]


def models_into_english(
    tokenizer: Tokenizer, sources: Sequence[str], *, limits: AnswerLimits | None = None
) -> tuple[Models, list[ScriptedTranslator]]:
    """Models from each source language into English, with one detector, and the scripts of these models."""
    known = LazyDetector(lambda: LanguageDetector(("en", *sources)))
    scripts = [
        ScriptedTranslator(
            tokenizer,
            stretched,
            detector=known,
            behaviour=Behaviour(pairs=((source, "en"),), name=f"{source}-en"),
            answer_limits=limits,
        )
        for source in sources
    ]
    return Models([ServedModel(script.translator, "fp32") for script in scripts], known), scripts


@pytest.mark.parametrize("name", [None, "de-en"])
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_model_that_a_reload_has_kept_serves_with_the_new_detector(
    tokenizer: Tokenizer, is_stream: bool, name: str | None
) -> None:
    """One reload adds a model from Luxembourgish, another removes it. Without this model the text counts as German."""
    text = "Moien, ech hunn haut muer net vill Zäit, mee ech kommen de Mëtteg bei dech heem."
    (alone, _), (both, _) = (models_into_english(tokenizer, sources) for sources in (["de"], ["de", "lb"]))
    added = Models([*alone, [*both][1]], LazyDetector(lambda: LanguageDetector(("de", "en", "lb"))))
    removed = Models([next(iter(both))], LazyDetector(lambda: LanguageDetector(("de", "en"))))

    async def translated(models: Models) -> TranslationResult:
        asked = request([text], source=None, target="en", model=name)
        if not is_stream:
            return await models.translate(asked)
        translator, asked = await models.only_translator(asked)
        return await translator.translate(asked)

    for models, language in ((alone, "de"), (both, "lb"), (added, "lb"), (removed, "de")):
        assert asyncio.run(models.detect([text], caller=""))[0][0][0] == language
        if language == "de" or name is None:
            assert asyncio.run(translated(models)).translations[0].source == language
            continue
        with pytest.raises(UnsupportedLanguages) as caught:
            asyncio.run(translated(models))
        assert caught.value.source == "lb"


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(
    ("other", "text"),
    [
        (
            "nl",
            "Let us meet at the Hauptbahnhof in Berlin tomorrow",
        ),  # the German model alone leaves it unchanged
        ("fr", "hier het huis"),  # the French model alone refuses it as Dutch
    ],
)
def test_a_texts_language_does_not_depend_on_the_other_texts(
    tokenizer: Tokenizer, other: str, text: str, is_stream: bool
) -> None:
    models, scripts = models_into_english(tokenizer, ("de", other))

    async def translated(*texts: str) -> Translation:
        asked = request(texts, source=None, target="en")
        if is_stream:
            translator, asked = await models.only_translator(asked)
            return (await translator.translate(asked)).translations[0]
        return (await models.translate(asked)).translations[0]

    alone = asyncio.run(translated(text))
    assert alone.source == other
    assert [len(script.engine.submitted) for script in scripts] == [0, 1]
    beside = (text,) if is_stream else (GERMAN,)
    assert asyncio.run(translated(text, *beside)) == alone


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, r"more than 5 sentences; send fewer"),
        ({"token_scores": True}, r"3 lists, 6 with the other texts, the limit is 5"),
    ],
)
def test_texts_for_several_models_share_the_limits_of_the_answer(
    tokenizer: Tokenizer, changes: dict[str, bool], message: str
) -> None:
    limits = AnswerLimits(max_sentences=100 if changes else 5, max_token_lists=5)
    models, _ = models_into_english(tokenizer, ("de", "fr"), limits=limits)
    french = "Où est la gare la plus proche, et quelle heure est-il maintenant ?"
    texts = [GERMAN, french] * 3
    with pytest.raises(PayloadTooLarge, match=message):
        asyncio.run(models.translate(request(texts, source=None, target="en", **changes)))
    result = asyncio.run(models.translate(request(texts[:5], source=None, target="en", **changes)))
    assert [each.source for each in result.translations] == ["de", "fr", "de", "fr", "de"]


def test_without_a_detector_a_source_is_needed(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(tokenizer, stretched)
    with pytest.raises(InvalidRequest) as caught:
        script(ENGLISH, source=None)
    assert caught.value.field == "source"


def test_a_message_lists_some_pairs_and_counts_the_others() -> None:
    codes = [f"a{chr(ord('a') + number)}" for number in range(23)]
    languages = Languages([LanguagePair(source=code, target="en") for code in codes], None)
    with pytest.raises(UnsupportedLanguages, match=r"supported: aa to en, .*, at to en and 3 more$"):
        languages.check("en", "aa")
    with pytest.raises(UnsupportedLanguages, match=r"supported: aw to en, aa to en, .* and 3 more$"):
        languages.check("aw", "de")
    listed = Languages([LanguagePair(source=code, target="en") for code in codes[:20]], None)
    with pytest.raises(UnsupportedLanguages, match=r"supported: aa to en, .*, at to en$"):
        listed.check("en", "aa")
