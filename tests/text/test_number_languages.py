"""Numbers are read in the notation of each language, and no letter of a script without spaces belongs to a number."""

from __future__ import annotations

import re

import pytest

from app.text.language_codes import decimal_marks
from app.text.language_names import KNOWN_LANGUAGES
from app.text.number_check import changed_numbers, may_have_number, number_spans
from tests.text.growth import check_near_linear
from tests.text.test_formulas import formulas_of

WITH_COMMA = "ro hu bg el no nn vi id sk hr ca sr sr-Latn sl lt lv et kk gl eu is fr-CH de-CH es-MX ar fa xx"


@pytest.mark.parametrize("code", WITH_COMMA.split())
def test_a_decimal_comma_is_no_change(code: str) -> None:
    assert not changed_numbers("It costs 3.5 euros.", "3,5", "en", code)
    assert changed_numbers("It costs 3.5 euros.", "4,5", "en", code)


@pytest.mark.parametrize("code", ["ro", "id", "vi", "ar", "xx", "de-CH"])
def test_either_notation_of_groups_is_no_change_if_the_language_has_it(code: str) -> None:
    assert not changed_numbers("1,234,567 people", "1.234.567", "en", code)


def test_a_decimal_mark_of_another_language_is_a_change() -> None:
    assert changed_numbers("It costs 3.5 euros.", "3,5", "en", "zh")
    assert changed_numbers("It costs 1.5 euros.", "1.51", "en", "ro")


@pytest.mark.parametrize(
    ("source", "target", "code"),
    [
        ("3.5", "\u0663\u066b\u0665", "ar"),
        ("3.5", "\u06f3\u066b\u06f5", "fa"),
        ("1,234,567", "\u0661\u066c\u0662\u0663\u0664\u066c\u0665\u0666\u0667", "ar"),
        ("1,234,567", "\uff11\uff0c\uff12\uff13\uff14\uff0c\uff15\uff16\uff17", "ja"),
        ("3.5", "\uff13\uff0e\uff15", "zh"),
        ("1 and 200", "\uff11\uff0c\uff12\uff10\uff10", "zh"),
        ("1,234,567", "12,34,567", "hi"),
        ("1,23,456", "1,23,456", "bn"),
        ("1,23,456", "123.456", "de"),
        ("12/31/2024", "31.12.2024", "ro"),
        ("December 31", "31.12", "xx"),
        ("100,000 people", "10\u4e07\u4eba", "ja"),
        ("100,000 people", "10 \u4e07\u4eba", "zh"),
        ("1.5 million", "150\u4e07", "zh"),
        ("350 million", "3\u51045000\u4e07", "zh"),
        ("12,000", "1\u4e072\u5343", "ja"),
        ("35,000 and 7", "3\ub9cc 5\ucc9c, 7", "ko"),
        ("two million", "200\u4e07", "zh"),
        ("5 kg", "5\u5343\u514b", "zh"),
        ("100,000 people", "10\u00a0\u4e07\u4eba", "zh"),
        ("12,345 yen", "1\u4e072345\u5186", "ja"),
        ("234,567,890 yen", "2\u51043456\u4e077890\u5186", "ja"),
        ("12,345 won", "1\ub9cc2345\uc6d0", "ko"),
        ("12,345 won", "1\ub9cc 2345\uc6d0", "ko"),
        ("25,000", "2\u4e075000", "zh"),
        ("10.2 million", "1\ucc9c20\ub9cc", "ko"),
        ("15 million", "1\ucc9c5\ubc31\ub9cc", "ko"),
        ("100,000 and 7", "10\u4e07 7", "zh"),
    ],
)
def test_a_notation_of_the_language_is_no_change(source: str, target: str, code: str) -> None:
    assert not changed_numbers(source, target, "en", code)
    assert not changed_numbers(target, source, code, "en")


def test_another_multiplied_number_is_a_change() -> None:
    """A number may be multiplied: \u4e07 stands for ten thousand, and \u5104 for a hundred million."""
    found = changed_numbers("10\u4e07\u4eba", "200,000 people", "zh", "en")
    assert (found.missing, found.added) == (("10\u4e07",), ("200,000",))
    assert changed_numbers("3\u51045000\u4e07", "300 million", "zh", "en")
    assert changed_numbers("1" * 1_000_000 + "\u4e07", "2", "zh", "en"), "more than a decimal can have"
    assert changed_numbers("1\u4e072345", "12,346", "ja", "en").missing == ("1\u4e072345",)
    assert changed_numbers("1\u4e07" + "1.2.3\u4e07", "10,000", "zh", "en").missing == ("1.2.3",)


def test_a_multiplied_number_is_compared_as_fast_as_a_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    original = re.sub

    def counted(pattern: str, by: str, text: str) -> str:
        calls.append(text)
        return original(pattern, by, text)

    monkeypatch.setattr("app.text.number_check.re.sub", counted)
    source = ", ".join(f"{number}\u4e07" for number in range(1, 400, 2))
    target = ", ".join(f"{number}\u4e07" for number in range(401, 800, 2))
    assert changed_numbers(source, target, "zh", "ja")
    assert len(calls) < 20 * 400


def test_the_decimal_mark_is_known_for_all_languages_but_four() -> None:
    unknown = {code for code in KNOWN_LANGUAGES if len(decimal_marks(code)) > 1}
    assert unknown == {"ar", "fa", "km", "ps"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("\u4eca\u5929\u67093\u4e2a\u82f9\u679c", ["3"]),
        ("2024\u5e74\u306b3\u4eba\u304c\u6765\u305f\u3002", ["2024", "3"]),
        ("3\uba85\uc774 \uc654\ub2e4", ["3"]),
        ("\u0e21\u0e353\u0e04\u0e19 \u0e55\u0e04\u0e19", ["3", "\u0e55"]),
        ("\u724810A4\u7248", ["10A4"]),
        ("10\u4e07\u4eba 1,000\u4e07 7", ["7"]),
        ("1\u4e072345\u5186", []),
        ("10 \u4e072345\u5186", []),
        ("2024 \ubc31\uc11c", ["2024"]),
        ("\ucf54\ub85c\ub09819 \ubc31\uc2e0", ["19"]),
    ],
)
def test_only_letters_of_scripts_with_spaces_belong_to_a_number(text: str, found: list[str]) -> None:
    assert [span.of(text) for span in number_spans(text)] == found


def test_numbers_are_found_in_near_linear_time() -> None:
    check_near_linear(lambda size: number_spans("\u6709a" * size + "1"), 8_000)
    check_near_linear(lambda size: changed_numbers("1" + "\u4e07" * size, "1", "zh", "en"), 8_000)
    check_near_linear(lambda size: changed_numbers("1.2.3\u4e07" * size, "1", "zh", "en"), 2_000)
    check_near_linear(lambda size: changed_numbers("1\u4e07" * size, "1", "zh", "en"), 8_000)


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<p>\u6211\u6709<b>3</b>\u4e2a\u82f9\u679c\uff0c\u5f88\u597d\u3002</p>", []),
        ("<p>\u4f1a\u8b70\u306b\u306f<strong>10\u4e07\u4eba</strong>\u304c\u6765\u305f\u3002</p>", []),
        ("<p><b>3</b>\uba85\uc774 \uc654\ub2e4.</p>", []),
        ("<p>\u662f10m<sup>2</sup>\u7684\u623f\u95f4</p>", ["10m2"]),
        ("<p>H<sub>2</sub>O\ub294 \ubb3c</p>", ["H2O"]),
        ("<p>the 1<sup>st</sup> and A<b>4</b> un<b>do</b></p>", ["1st", "A4"]),
    ],
)
def test_a_formula_has_no_letter_of_a_script_without_spaces(html: str, expected: list[str]) -> None:
    assert formulas_of(html) == expected


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        ("Anna draws cats.", "en", False),
        ("Anna draws 3 cats.", "en", True),
        ("Anna draws three cats.", "en-GB", True),
        ("fifty-one cats", "en", True),
        ("half a \u00bd cup", "en", True),
        ("le quinze mai", "fr", True),
        ("achtzig Katzen", "de", True),
        ("Katzen", "de", False),
        ("\u4e8c\u3007\u4e8c\u56db\u5e74\u4e94\u6708", "zh", True),
        ("mil novecientos ochenta y cuatro", "es", True),
        ("gatos", "es", True),
    ],
)
def test_a_text_may_have_a_number_if_the_number_words_of_its_language_are_unknown(
    text: str, code: str, expected: bool
) -> None:
    assert may_have_number(text, code) is expected
