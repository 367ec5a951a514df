"""The limits of the check whether a sentence is in another language."""

from __future__ import annotations

import pytest

from model.language_check import MIN_LETTER_BYTES, LanguageCheck

pytestmark = pytest.mark.seconds  # the detector takes half a second to load


@pytest.fixture(scope="module")
def check() -> LanguageCheck:
    return LanguageCheck()


def num_letters(text: str) -> int:
    return sum(map(str.isalpha, text))


def test_a_text_is_checked_from_the_least_number_of_letters_on(check: LanguageCheck) -> None:
    short, long = "In der Stadt ist es still.", "In der Stadt ist es stille."
    assert (num_letters(short), num_letters(long)) == (MIN_LETTER_BYTES - 1, MIN_LETTER_BYTES)
    assert not check.is_other(short, "en")
    assert check.is_other(long, "en")


def test_a_language_that_is_detected_with_little_confidence_is_not_another_language(
    check: LanguageCheck,
) -> None:
    """The words are names, which several languages have."""
    text = "Restaurant Bar Casino Hotel"
    assert num_letters(text) > MIN_LETTER_BYTES
    assert not check.is_other(text, "en")


def test_a_language_that_the_detector_confuses_with_another_does_not_count_as_the_other(
    check: LanguageCheck,
) -> None:
    text = "Vi er glade for at du kom hjem igen."  # Danish
    assert check.is_other(text, "en")
    assert not any(check.is_other(text, language) for language in ("da", "nb", "sv"))
