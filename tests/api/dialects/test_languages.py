"""Language codes in the forms that callers use."""

from __future__ import annotations

import pytest

from app.api.languages import find_language, served_language, served_pair, target_for_detected_source
from app.api.v2.languages import source_rows, target_rows

SERVED = ["de", "en", "pt-BR", "zh-Hans"]


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("PT-br", "pt-BR"),
        ("pt_BR", "pt-BR"),
        ("pb", "pt-BR"),
        ("zh", "zh-Hans"),
        ("en-US", None),
        ("xx", None),
    ],
)
def test_a_code_or_its_alias(code: str, found: str | None) -> None:
    assert find_language(code, SERVED) == found


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("EN-GB", "en"),
        ("en-419", "en"),
        ("PT-BR", "pt-BR"),
        ("PT", "pt-BR"),
        ("PT-PT", None),
        ("ZH-HANS", "zh-Hans"),
        ("ZH-HANT", None),
        ("DE-LATN", None),
        ("", None),
    ],
)
def test_a_code_with_or_without_its_region(code: str, found: str | None) -> None:
    assert served_language(code, SERVED) == found


@pytest.mark.parametrize("code", ["zh-TW", "zh_hk", "zh-Hant-TW", "zt"])
def test_traditional_chinese_by_its_script_or_its_region(code: str) -> None:
    assert served_language(code, ["zh-Hans", "zh-Hant"]) == "zh-Hant"
    assert served_language(code, ["zh", "zh-Hant"]) == "zh-Hant"
    assert served_language(code, ["en", "zh-Hans"]) is None
    assert served_language(code, ["en", "zh"]) is None


@pytest.mark.parametrize("code", ["zh-CN", "zh_SG", "ZH-HANS-CN"])
def test_simplified_chinese_without_its_region(code: str) -> None:
    assert served_language(code, ["zh-Hans", "zh-Hant"]) == "zh-Hans"
    assert served_language(code, ["zh-Hant"]) is None


@pytest.mark.parametrize("code", ["zh", "ZH"])
def test_zh_is_never_traditional_chinese(code: str) -> None:
    for traditional in ("zh-Hant", "zh-TW", "zh-Hant-HK"):
        assert served_language(code, ["en", traditional]) is None
        assert served_language(code, [traditional, "zh-CN"]) == "zh-CN"
        assert served_language(code, [traditional, "zh-Hans"]) == "zh-Hans"
        assert served_pair("en", code, [("en", traditional)]) == ("en", code)
        assert target_for_detected_source(code, {(traditional, "en")}) == code


def test_the_languages_that_v2_lists() -> None:
    pairs = {("de", "en"), ("pt-BR", "en"), ("en", "pt"), ("en", "zh-Hans")}
    assert source_rows(pairs) == [
        {"language": "DE", "name": "German"},
        {"language": "EN", "name": "English"},
        {"language": "PT", "name": "Portuguese"},
    ]
    assert [(row["language"], row["name"]) for row in target_rows(pairs)] == [
        ("EN-GB", "English (British)"),
        ("EN-US", "English (American)"),
        ("PT-BR", "Portuguese (Brazilian)"),
        ("PT-PT", "Portuguese (European)"),
        ("ZH-HANS", "Chinese (simplified)"),
    ]


PAIRS = [("en", "de"), ("en", "pt-BR"), ("fr", "pt-PT"), ("fr", "pt-BR")]


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        (("en", "de"), ("en", "de")),
        (("EN", "DE"), ("en", "de")),
        (("en-US", "de_AT"), ("en", "de")),
        (("en", "pt"), ("en", "pt-BR")),
        (("fr", "pt"), ("fr", "pt")),  # ambiguous, because two variants are served
        (("fr", "pt-AO"), ("fr", "pt-AO")),
        (("en-Latn", "de"), ("en-Latn", "de")),  # no served pair names a script
        (("xx", "de"), ("xx", "de")),
        (("de", "en"), ("de", "en")),
    ],
)
def test_the_pair_that_two_codes_mean(requested: tuple[str, str], expected: tuple[str, str]) -> None:
    assert served_pair(*requested, PAIRS) == expected


@pytest.mark.parametrize("target", ["en", "EN", "en-US"])
def test_the_target_for_detected_source_texts_may_be_served_only_as_a_source(target: str) -> None:
    assert target_for_detected_source(target, {("en", "de")}) == "en"
    assert target_for_detected_source("DE", {("en", "de")}) == "de"
    assert target_for_detected_source("xx", {("en", "de")}) == "xx"
