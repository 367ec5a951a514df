"""Language detection of texts; text without letters has no language."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from py3langid import langid  # type: ignore[import-untyped]

from app.text import detection, detector_arrays
from app.text.detection import LanguageDetector, LazyDetector, foreign_language, is_in_target, restrict_to
from app.text.detector_arrays import NAMES, read_arrays, unpack, write_arrays

ENGLISH = "The children were playing in the garden when it began to rain."
GERMAN = "Die Kinder spielten im Garten, als es zu regnen begann."
FRENCH = "Les enfants jouaient dans le jardin quand il a commenc\u00e9 \u00e0 pleuvoir."
RUSSIAN = "\u041f\u0440\u0438\u0432\u0435\u0442, \u043a\u0430\u043a \u0434\u0435\u043b\u0430?"
# Two sentences of each of some fifty languages.
SENTENCES = [
    tuple(line.split("\t"))
    for line in Path(__file__).with_name("languages.tsv").read_text("utf-8").splitlines()
]


@pytest.fixture(scope="module")
def detector() -> LanguageDetector:
    return LanguageDetector(["de", "en", "fr", "pt-BR", "xx"])


@pytest.mark.parametrize(("text", "language"), [(ENGLISH, "en"), (GERMAN, "de"), (FRENCH, "fr")])
def test_sentences_are_detected(detector: LanguageDetector, text: str, language: str) -> None:
    for written in (text, text.upper(), f"https://example.org/the/children {text} \U0001f600"):
        found = detector.detect(written)
        assert found[0][0] == language
        assert found[0][1] > 0.9
        assert len(found) > 60
        assert sum(confidence for _, confidence in found) == pytest.approx(1.0, abs=1e-3)
        assert found == sorted(found, key=lambda entry: -entry[1])


@pytest.mark.parametrize(("language", "text"), SENTENCES)
def test_the_language_is_detected_whether_it_is_served_or_not(
    detector: LanguageDetector, language: str, text: str
) -> None:
    found, confidence = detector.detect(text)[0]
    assert found.partition("-")[0] == language
    assert confidence > 0.4


@pytest.mark.parametrize(("language", "text"), SENTENCES)
def test_foreign_text_is_recognised(detector: LanguageDetector, language: str, text: str) -> None:
    found = foreign_language(text, detector.detect(text), {"en", "de"})
    if language in {"en", "de"}:
        assert found is None
    else:
        assert found is not None
        assert found.partition("-")[0] == language


NO_LANGUAGE_FOR_SURE = (
    "OK", "Hallo", "Hola", "Bonjour", "Ciao", "No", "Ja", "42", "3.5 %", "Gift", "Hotel", "Menu", "PDF", "Taxi",
    "Anna", "Berlin", "Paris", "Rio de Janeiro", "Fran\u00e7ois Dupont", "Agnieszka Radwa\u0144ska",
    "Nguy\u1ec5n V\u0103n An", "Jos\u00e9 Mar\u00eda Fern\u00e1ndez", "Recep Tayyip Erdo\u011fan",
    "\u0418\u0432\u0430\u043d \u041f\u0435\u0442\u0440\u043e\u0432", "\u7530\u4e2d\u592a\u90ce",
    "Caf\u00e9", "d\u00e9j\u00e0 vu", "ABC-123", "iPhone 15 Pro", "L'Or\u00e9al", "", "...",
)  # fmt: skip


@pytest.mark.parametrize("text", NO_LANGUAGE_FOR_SURE)
def test_the_language_of_words_numbers_and_names_is_never_certain(
    detector: LanguageDetector, text: str
) -> None:
    assert foreign_language(text, detector.detect(text), {"en", "de"}) is None


@pytest.mark.parametrize(("text", "language"), [("van Dijk, Anna", None), ("Dijk van Anna", "nl")])
def test_a_lower_case_word_makes_a_phrase_only_after_the_first_word(text: str, language: str | None) -> None:
    assert foreign_language(text, [("nl", 1.0)], {"en", "de"}) == language


@pytest.mark.parametrize(
    ("text", "language"), [("Comment \u00e7a va?", "fr"), ("La maison est petite.", "fr"), (RUSSIAN, "ru")]
)
def test_a_short_phrase_can_be_certain(detector: LanguageDetector, text: str, language: str) -> None:
    assert foreign_language(text, detector.detect(text), {"en", "de"}) == language


@pytest.fixture(scope="module")
def packed() -> Mapping[str, NDArray[Any]]:
    """The arrays of the packed model, unpacked once."""
    return unpack()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written") / "arrays"
    write_arrays(folder)
    return folder


@pytest.mark.seconds
def test_mapped_arrays_equal_the_arrays_of_the_packed_model(
    written: Path, packed: Mapping[str, NDArray[Any]]
) -> None:
    mapped = read_arrays(written)
    assert all(isinstance(mapped[name], np.memmap) for name in NAMES)
    assert all(np.array_equal(mapped[name], packed[name]) for name in NAMES)


@pytest.mark.seconds
def test_a_detector_with_mapped_arrays_gives_the_same_probabilities(
    written: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(detection, "folder_of_environment", lambda: written)
    mapped = LanguageDetector(["de", "en"])
    monkeypatch.setattr(detection, "folder_of_environment", lambda: tmp_path / "missing")
    unpacked = LanguageDetector(["de", "en"])
    for text in ("Der Zug nach Bremen hat heute Verspätung.", "ok", "été", "日本語のテキスト"):
        assert mapped.detect(text) == unpacked.detect(text)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("is_empty", [False, True])
def test_no_file_is_mapped_if_one_is_truncated(
    written: Path,
    packed: Mapping[str, NDArray[Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    is_empty: bool,
) -> None:
    """`read_arrays` returns the result of `unpack`. To save time, `unpack` is replaced: it returns `packed`."""
    for each in NAMES:
        (tmp_path / f"{each}.npy").symlink_to(written / f"{each}.npy")
    content = (written / f"{name}.npy").read_bytes()
    (tmp_path / f"{name}.npy").unlink()
    (tmp_path / f"{name}.npy").write_bytes(b"" if is_empty else content[:-1])
    monkeypatch.setattr(detector_arrays, "unpack", lambda: packed)
    assert read_arrays(tmp_path) is packed


def test_a_truncated_packed_model_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    packed = (langid.MODEL_DIR / langid.MODEL_FILE).read_bytes()
    (tmp_path / "half").write_bytes(packed[: len(packed) // 2])
    monkeypatch.setattr(langid, "MODEL_DIR", tmp_path)
    monkeypatch.setattr(langid, "MODEL_FILE", "half")
    with pytest.raises(EOFError, match="truncated"):
        unpack()


def test_arrays_are_written_again_over_damaged_ones(
    packed: Mapping[str, NDArray[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "arrays"
    folder.mkdir()
    (folder / "ptc.npy").write_bytes(b"")
    monkeypatch.setattr(detector_arrays, "unpack", lambda: packed)
    write_arrays(folder)
    assert isinstance(read_arrays(folder)["ptc"], np.memmap)
    assert [path.name for path in tmp_path.iterdir()] == ["arrays"]


def test_a_model_that_cannot_be_unpacked_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise EOFError("py3langid's model file is truncated")

    monkeypatch.setattr(detector_arrays, "unpack", fail)
    with pytest.raises(EOFError):
        write_arrays(tmp_path / "arrays")
    assert not list(tmp_path.iterdir())


def test_restricted_probabilities_add_up_to_one(detector: LanguageDetector) -> None:
    detected = detector.detect(FRENCH)
    assert restrict_to(detected, ["fr"]) == [("fr", 1.0)]
    assert {code for code, _ in restrict_to(detected, ["de", "en"])} == {"de", "en"}
    assert sum(share for _, share in restrict_to(detected, ["de", "en"])) == pytest.approx(1.0)
    assert restrict_to(detected, ["xx"]) == restrict_to([("de", 0.0)], ["fr"]) == []
    assert restrict_to([("de", 0.0), ("fr", 1.0)], ["de"]) == [("de", 0.0)]


PORTUGUESE = "As crian\u00e7as brincavam no jardim quando come\u00e7ou a chover."


@pytest.mark.parametrize("target", ["pt", "pt-BR"])
def test_each_code_of_a_language_has_the_whole_probability_of_the_language(target: str) -> None:
    served = ["en", "pt-BR", "pt"]
    detected = LanguageDetector(served).detect(PORTUGUESE)
    assert [code for code, _ in detected[:2]] == ["pt", "pt-BR"]
    ranked = restrict_to(detected, served)
    assert ranked[0][1] == ranked[1][1] > 0.95
    assert ranked[0][1] + ranked[2][1] == pytest.approx(1.0)
    assert is_in_target(PORTUGUESE, target, ranked)
    assert foreign_language(PORTUGUESE, detected, {"en", target}) is None
    assert foreign_language(PORTUGUESE, detected, {"en"}) == "pt"


def test_a_code_with_a_region_is_returned_unchanged(detector: LanguageDetector) -> None:
    found = [code for code, _ in detector.detect("As crian\u00e7as brincavam no jardim.")]
    assert found[0] == "pt-BR"
    assert "pt" not in found


@pytest.mark.parametrize(
    ("code", "text"),
    [("nb", "Jeg vet ikke hvor jeg har lagt n\u00f8klene mine."), ("zh-Hans", "\u4f60\u597d\u5417")],
)
def test_a_served_code_may_differ_from_the_code_of_the_detector(code: str, text: str) -> None:
    assert LanguageDetector(["en", code]).detect(text)[0][0] == code


@pytest.mark.parametrize(
    "text", ["", "  \n", "\U0001f600\u2764\ufe0f", "12:30, 3.5 %", "https://example.org/a", "{name} %s"]
)
def test_text_without_letters_has_no_language(detector: LanguageDetector, text: str) -> None:
    assert detector.detect(text) == []


def test_an_unknown_language_is_not_detected(detector: LanguageDetector) -> None:
    assert "xx" not in {code for code, _ in detector.detect(ENGLISH)}
    assert "xx" not in detector.languages
    assert "de" in detector.languages


@given(text=st.text(max_size=50))
def test_any_text_is_accepted(detector: LanguageDetector, text: str) -> None:
    detected = detector.detect(text)
    for code, confidence in detected:
        assert code in detector.languages
        assert 0 <= confidence <= 1.001
    assert foreign_language(text, detected, {"en", "de"}) not in {"en", "de"}


def test_the_end_of_a_long_text_is_not_read(detector: LanguageDetector) -> None:
    long = ENGLISH + " " + "Garten " * 100_000
    assert detector.detect(long) == detector.detect(long[:1000])


def test_text_that_is_certainly_in_the_target_language_is_recognised(detector: LanguageDetector) -> None:
    def is_certain(text: str, target: str = "de") -> bool:
        return is_in_target(text, target, restrict_to(detector.detect(text), ["de", "en"]))

    assert is_certain(GERMAN)
    assert not is_certain(ENGLISH)
    assert is_certain(ENGLISH, "en")
    assert not is_certain("Gift")
    assert not is_certain("Die Kinder")
    assert not is_certain("\U0001f600")


@pytest.mark.parametrize(
    ("letters", "confidence", "expected"), [(21, 0.95, True), (20, 1.0, False), (21, 0.94, False)]
)
def test_certainty_needs_21_letters_and_0_95(letters: int, confidence: float, expected: bool) -> None:
    assert is_in_target("a" * letters + " 123", "de", [("de", confidence), ("en", 0.0)]) is expected


def test_the_letters_of_a_url_do_not_make_a_text_certain() -> None:
    text = "Die Kinder https://example.org/im/garten/spielten/die/kinder"
    assert not is_in_target(text, "de", [("de", 1.0), ("en", 0.0)])


class BlockingLoader:
    """A load function that waits for `may_end` and counts its calls. The first `num_failures` calls fail."""

    def __init__(self, detector: LanguageDetector, *, num_failures: int = 0) -> None:
        self.may_end = threading.Event()
        self.count = 0
        self._detector = detector
        self._num_failures = num_failures

    def __call__(self) -> LanguageDetector:
        self.count += 1
        assert self.may_end.wait(60)
        if self.count <= self._num_failures:
            raise OSError("no room")
        return self._detector


def test_a_detector_is_loaded_once_by_the_first_call(detector: LanguageDetector) -> None:
    loading = BlockingLoader(detector)
    lazy = LazyDetector(loading)
    assert loading.count == 0
    with ThreadPoolExecutor(8) as callers:
        futures = list(callers.map(lambda _: lazy.start_loading(), range(64)))
    loading.may_end.set()
    assert {id(future.result(60)) for future in (*futures, lazy.start_loading())} == {id(detector)}
    assert loading.count == 1


def test_a_cancelled_wait_does_not_end_the_loading(detector: LanguageDetector) -> None:
    loading = BlockingLoader(detector)
    lazy = LazyDetector(loading)

    async def give_up() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.wrap_future(lazy.start_loading())

    with pytest.raises(TimeoutError):
        asyncio.run(give_up())
    loading.may_end.set()
    assert lazy.start_loading().result(60) is detector
    assert loading.count == 1


def test_the_call_after_a_failed_load_loads_again(detector: LanguageDetector) -> None:
    loading = BlockingLoader(detector, num_failures=1)
    loading.may_end.set()
    lazy = LazyDetector(loading)
    with pytest.raises(OSError, match="no room"):
        lazy.start_loading().result(60)
    assert lazy.start_loading().result(60) is detector
    assert loading.count == 2
