"""The language of a text, of those that are served; text without letters has none."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.text.detection import LanguageDetector, LazyDetector, is_in_target

ENGLISH = "The children were playing in the garden when it began to rain."
GERMAN = "Die Kinder spielten im Garten, als es zu regnen begann."
FRENCH = "Les enfants jouaient dans le jardin quand il a commenc\u00e9 \u00e0 pleuvoir."


@pytest.fixture(scope="module")
def detector() -> LanguageDetector:
    return LanguageDetector(["de", "en", "fr", "pt-BR", "xx"])


@pytest.mark.parametrize(("text", "language"), [(ENGLISH, "en"), (GERMAN, "de"), (FRENCH, "fr")])
def test_sentences_are_told_apart(detector: LanguageDetector, text: str, language: str) -> None:
    for written in (text, text.upper(), f"https://example.org/the/children {text} \U0001f600"):
        found = detector.detect(written, ["de", "en", "fr"])
        assert found[0][0] == language
        assert found[0][1] > 0.9
        assert [code for code, _ in found[1:]] != []
        assert sum(confidence for _, confidence in found) == pytest.approx(1.0, abs=1e-3)
        assert found == sorted(found, key=lambda entry: -entry[1])


def test_only_what_is_allowed_is_found(detector: LanguageDetector) -> None:
    assert detector.detect(FRENCH, ["de"]) == [("de", 1.0)]
    assert {code for code, _ in detector.detect(FRENCH, ["de", "en"])} == {"de", "en"}
    assert detector.detect(FRENCH, ["de", "en", "fr"])[0][0] == "fr"


def test_a_code_with_a_region_is_given_back_as_it_was(detector: LanguageDetector) -> None:
    assert detector.detect("As crian\u00e7as brincavam no jardim.", ["de", "pt-BR"])[0][0] == "pt-BR"


@pytest.mark.parametrize(
    "text", ["", "  \n", "\U0001f600\u2764\ufe0f", "12:30, 3.5 %", "https://example.org/a", "{name} %s"]
)
def test_what_has_no_letters_has_no_language(detector: LanguageDetector, text: str) -> None:
    assert detector.detect(text, ["de", "en"]) == []


def test_a_language_that_nobody_knows_is_not_found(detector: LanguageDetector) -> None:
    assert detector.detect(ENGLISH, ["xx"]) == []
    assert [code for code, _ in detector.detect(ENGLISH, ["xx", "de"])] == ["de"]


@given(text=st.text(max_size=50))
def test_any_text_is_taken(detector: LanguageDetector, text: str) -> None:
    for code, confidence in detector.detect(text, ["de", "en"]):
        assert code in {"de", "en"}
        assert 0 <= confidence <= 1.001


def test_the_end_of_a_long_text_is_not_read(detector: LanguageDetector) -> None:
    long = ENGLISH + " " + "Garten " * 100_000
    assert detector.detect(long, ["de", "en"]) == detector.detect(long[:1000], ["de", "en"])


def test_text_in_the_target_language_is_left_alone_where_that_is_certain(detector: LanguageDetector) -> None:
    def is_kept(text: str, target: str = "de") -> bool:
        return is_in_target(text, target, detector.detect(text, ["de", "en"]))

    assert is_kept(GERMAN)
    assert not is_kept(ENGLISH)
    assert is_kept(ENGLISH, "en")
    assert not is_kept("Gift")
    assert not is_kept("Die Kinder")
    assert not is_kept("\U0001f600")


@pytest.mark.parametrize(
    ("letters", "confidence", "expected"), [(21, 0.95, True), (20, 1.0, False), (21, 0.94, False)]
)
def test_where_the_rule_begins(letters: int, confidence: float, expected: bool) -> None:
    assert is_in_target("a" * letters + " 123", "de", [("de", confidence), ("en", 0.0)]) is expected


class Loading:
    """Loads when it is let; counts. failures: how often it fails first."""

    def __init__(self, detector: LanguageDetector, *, failures: int = 0) -> None:
        self.may_end = threading.Event()
        self.count = 0
        self._detector = detector
        self._failures = failures

    def __call__(self) -> LanguageDetector:
        self.count += 1
        assert self.may_end.wait(60)
        if self.count <= self._failures:
            raise OSError("no room")
        return self._detector


def test_a_detector_is_loaded_by_the_first_who_asks_and_once(detector: LanguageDetector) -> None:
    loading = Loading(detector)
    lazy = LazyDetector(loading)
    assert loading.count == 0
    with ThreadPoolExecutor(8) as callers:
        futures = list(callers.map(lambda _: lazy.loaded(), range(64)))
    loading.may_end.set()
    assert {id(future.result(60)) for future in (*futures, lazy.loaded())} == {id(detector)}
    assert loading.count == 1


def test_who_stops_waiting_does_not_end_the_loading(detector: LanguageDetector) -> None:
    loading = Loading(detector)
    lazy = LazyDetector(loading)

    async def give_up() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.wrap_future(lazy.loaded())

    with pytest.raises(TimeoutError):
        asyncio.run(give_up())
    loading.may_end.set()
    assert lazy.loaded().result(60) is detector
    assert loading.count == 1


def test_what_could_not_be_loaded_is_tried_again(detector: LanguageDetector) -> None:
    loading = Loading(detector, failures=1)
    loading.may_end.set()
    lazy = LazyDetector(loading)
    with pytest.raises(OSError, match="no room"):
        lazy.loaded().result(60)
    assert lazy.loaded().result(60) is detector
    assert loading.count == 2
