"""A changed number is reported. A number in the notation of the target language is no change."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.text.number_check import ChangedNumbers, changed_numbers, number_spans
from tests.text.growth import check_near_linear


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("It costs 1,234.5 dollars", "Es kostet 1.234,5 Dollar"),
        ("1,234.5", "1,234.5"),
        ("10,000 people", "10.000 Menschen"),
        ("10,000 people", "10\u202f000 Menschen"),
        ("10,000 people", "10 000 Menschen"),
        ("10,000 people", "10000 Menschen"),
        ("1.50", "1,5"),
        ("0.5", "0,5"),
        ("1.5 million", "1,5 Millionen"),
        ("12/31/2024", "31.12.2024"),
        ("4.5/5 stars", "4,5/5 Sterne"),
        ("8:15-9:30", "9:30 bis 8:15"),
        ("1.5-2.5 kg", "1,5-2,5 kg"),
        ("2024-05-01", "1. Mai 2024"),
        ("May 1, 2024", "1. Mai 2024"),
        ("12/2024", "12.2024"),
        ("March 3, 1990", "3.3.1990"),
        ("5%", "5 %"),
        ("the 21st century", "das 21. Jahrhundert"),
        ("the 1990s", "die 1990er"),
        ("3 pm", "15 Uhr"),
        ("3:30 p.m.", "15:30 Uhr"),
        ("03:30 pm", "15:30 Uhr"),
        ("10:30 pm", "22:30 Uhr"),
        ("12:05", "12.05 Uhr"),
        ("version 1.2.3", "Version 1.2.3"),
        ("pages 3-5", "Seiten 3 bis 5"),
        ("five cats", "5 Katzen"),
        ("5 cats", "f\u00fcnf Katzen"),
        ("the 1st of 3", "der erste von drei"),
        ("\uff11\uff12 and \u0663", "12 und 3"),
        ("2 of 3", "3 von 2"),
        ("rooms 1 and 202", "Zimmer 1 202"),
        ("no number", "keine Zahl"),
    ],
)
def test_another_notation_is_no_change(source: str, target: str) -> None:
    assert not changed_numbers(source, target, "en", "de")


@pytest.mark.parametrize(
    ("source", "target", "missing", "added"),
    [
        ("1,234", "1.235", ("1,234",), ("1.235",)),
        ("15", "51", ("15",), ("51",)),
        ("1.5", "15", ("1.5",), ("15",)),
        ("10%", "100 %", ("10",), ("100",)),
        ("3 cats", "Katzen", ("3",), ()),
        ("cats", "3 Katzen", (), ("3",)),
        ("2 and 3", "2 und 2", ("3",), ("2",)),
        ("12/31/2024", "31.12.2023", ("12/31/2024",), ("31.12.2023",)),
        ("12/31/2024", "12.31/2024", ("12/31/2024",), ("12.31/2024",)),
        ("12/31/2024", "12.31.2024", ("12/31/2024",), ("12.31.2024",)),
        ("12/31/2024", "12./31.2024", ("12/31/2024",), ("31.2024",)),
        ("12/31/2024", "12 31.2024", ("12/31/2024",), ("31.2024",)),
        ("2024-05-01", "1. Juni 2024", ("2024-05-01",), ()),
        ("2024-05-01 to 2024-05-01", "1. Mai 2024", ("2024-05-01",), ()),
        ("5 cats", "Katzen im Mai", ("5",), ()),
        ("1.2.3", "1.2", ("1.2.3",), ()),
        ("0.5", "5,0", ("0.5",), ("5,0",)),
        ("12:30", "13:30", ("12:30",), ("13:30",)),
        ("3 am", "15 Uhr", ("3",), ("15",)),
        ("12 pm", "24 Uhr", ("12",), ("24",)),
        ("100 pm", "16 Uhr", ("100",), ("16",)),
        ("5 and 5", "f\u00fcnf", ("5",), ()),
        ("1,234.5 and 7", "1.234,5", ("7",), ()),
    ],
)
def test_changes_are_reported(
    source: str, target: str, missing: tuple[str, ...], added: tuple[str, ...]
) -> None:
    found = changed_numbers(source, target, "en", "de")
    assert (found.missing, found.added) == (missing, added)
    assert found


def test_a_date_written_with_a_comma_is_a_change() -> None:
    found = changed_numbers("Am 24.12. ist zu.", "Closed on 24,12.", "de", "en")
    assert (found.missing, found.added) == (("24.12",), ("24,12",))
    assert not changed_numbers("Am 24.12. ist zu.", "Closed on 12/24.", "de", "en")


def test_the_source_is_read_in_its_own_notation() -> None:
    assert not changed_numbers("1.234,5 am 3.10.1990", "1,234.5 on October 3, 1990", "de", "en")
    assert changed_numbers("1,234", "1.234", "de", "en") == ChangedNumbers((), ())
    assert changed_numbers("1.234", "1.234,0", "en", "de").missing == ("1.234",)


NUMBERS = st.one_of(
    st.integers(0, 10**7).map(lambda n: (f"{n:,}", f"{n:,}".replace(",", "."))),
    st.decimals(0, 10**6, places=2).map(
        lambda n: (f"{n:,}", f"{n:,}".replace(",", "_").replace(".", ",").replace("_", "."))
    ),
)


@given(st.lists(NUMBERS, max_size=8), st.randoms())
def test_numbers_in_german_notation_are_equal(
    numbers: list[tuple[str, str]], shuffler: random.Random
) -> None:
    german = [other for _, other in numbers]
    shuffler.shuffle(german)
    assert not changed_numbers(" and ".join(n for n, _ in numbers), " und ".join(german), "en", "de")


@given(st.text(max_size=60))
def test_a_text_has_its_own_numbers(text: str) -> None:
    assert not changed_numbers(text, text, "en", "de")
    assert not changed_numbers(text, text, "xx", "yy")


def test_numbers_are_found_with_the_letters_of_their_word() -> None:
    text = "Gate A4, the 21st_2nd: 1,234.5x"
    assert [span.of(text) for span in number_spans(text)] == ["A4", "21st", "2nd", "1,234.5x"]
    assert [span.of(text) for span in number_spans(text, {"4", "2"})] == ["A4", "2nd"]


def test_a_range_with_an_en_dash_is_found_as_a_whole() -> None:
    text = "5\u20137, 1,000\u20132,000m, 8 \u2013 9, \u20134, 6\u2013x"
    found = ["5\u20137", "1,000\u20132,000m", "8", "9", "4", "6"]
    assert [span.of(text) for span in number_spans(text)] == found
    assert [span.of(text) for span in number_spans(text, {"7", "9"})] == ["5\u20137", "9"]


def test_a_long_word_without_digits_is_read_in_near_linear_time() -> None:
    check_near_linear(lambda size: number_spans("a" * size), 16_000)
