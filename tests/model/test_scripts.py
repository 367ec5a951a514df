"""The script of a language code."""

from __future__ import annotations

import pytest

from model.scripts import _BLOCKS, _CODES, is_in_script, script_of


@pytest.mark.parametrize(
    ("language", "script"),
    [
        ("de", "Latin"),
        ("pt-BR", "Latin"),
        ("KK", "Cyrillic"),
        ("kk-Latn", "Latin"),
        ("kk-Latn-KZ", "Latin"),
        ("hi-latn", "Latin"),
        ("sr-Cyrl", "Cyrillic"),
        ("zh-Hant-TW", "Chinese"),
        ("sl-1994", "Latin"),  # four digits name a variant, not a script
        ("ff-Adlm", None),
        ("de-Dsrt", None),
        ("sr", None),
    ],
)
def test_the_script_of_a_code(language: str, script: str | None) -> None:
    assert script_of(language) == script


def test_each_script_has_a_code() -> None:
    assert _CODES.keys() == _BLOCKS.keys()


def test_a_text_is_checked_for_the_script_of_its_code() -> None:
    assert is_in_script("Бүгін жаңбыр жауады.", script_of("kk"))
    assert not is_in_script("Бүгін жаңбыр жауады.", script_of("kk-Latn"))
    assert is_in_script("Búgin jańbyr jaýady.", script_of("kk-Latn"))
