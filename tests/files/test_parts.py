"""Long texts are split after sentences, at spaces or else anywhere, in linear time. The parts join to the original."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.files import FileError, Unit, UnitFormat
from app.files.parts import cut, join_parts, split_unit

SIZE = 40


def texts(unit: Unit, size: int = SIZE) -> list[str]:
    return [part.text for part in split_unit(unit, size)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Short.", ["Short."]),
        (
            "One sentence. Another one, which is longer. x",
            ["One sentence. ", "Another one, which is longer. x"],
        ),
        ("a" * 90, ["a" * 40, "a" * 40, "a" * 10]),
        ("word " * 20, ["word " * 8, "word " * 8, "word " * 4]),
        ("\u6211\u662f\u3002" * 20, ["\u6211\u662f\u3002" * 13, "\u6211\u662f\u3002" * 7]),
    ],
)
def test_text_is_split_after_sentences_then_spaces_then_anywhere(text: str, expected: list[str]) -> None:
    assert texts(Unit(text)) == expected


@pytest.mark.parametrize("beginning", ["", "</i> "])
def test_markup_is_split_outside_its_elements(beginning: str) -> None:
    text = beginning + "<b>A house. It is old.</b> Then more. " * 3
    found = texts(Unit(text, UnitFormat.HTML))
    assert "".join(found) == text
    assert all(part.count("<b>") == part.count("</b>") for part in found)
    points = 'Words here <x id="1"/> and there. ' * 4
    assert len(texts(Unit(points, UnitFormat.XML))) == 4


@pytest.mark.parametrize("inside", ['<img src="a.png"></img>', "</br>", "</x>"])
def test_the_closing_tag_of_an_element_without_content_ends_no_other_element(inside: str) -> None:
    text = f"<b>See {inside} it. {'A house is old. ' * 10}</b>"
    assert texts(Unit(text, UnitFormat.HTML)) == [text]


def test_a_comment_and_an_attribute_are_not_split() -> None:
    inside = "Once. It was < long > and <p>old. " * 5
    for markup in (f"<!-- {inside}-->", f'<img alt="{inside}">', f"<a title='{inside}'>x</a>"):
        found = texts(Unit(f"One house. {markup} And another house.", UnitFormat.HTML))
        assert len(found) >= 2
        assert sum(markup in part for part in found) == 1


@pytest.mark.parametrize("gap", ["", " "])
def test_parts_without_white_space_get_a_gap(gap: str) -> None:
    sentence = "\u4ed6\u8bf4\u300c\u597d\u3002\u300d"
    unit = Unit(sentence * 10 + " " + sentence)
    found = texts(unit)
    assert found == [sentence * 6, f"{sentence * 4} {sentence}"]
    assert join_parts([unit], SIZE, found, gap) == [gap.join([sentence * 6, unit.text[len(sentence * 6) :]])]


@pytest.mark.parametrize("separator", [" ", " \n", "\u3000"])
def test_white_space_after_a_chinese_sentence_gets_no_further_gap(separator: str) -> None:
    unit = Unit(("\u4ed6\u662f\u5b66\u751f\u3002" + separator) * 500)
    found = texts(unit, 2048)
    assert len(found) == 2
    assert join_parts([unit], 2048, found, " ") == [unit.text]


def test_an_element_that_is_too_long_is_an_error() -> None:
    text = "<b>" + "A house. " * 100 + "</b>"
    assert texts(Unit(text, UnitFormat.HTML), 100) == [text]
    assert texts(Unit(text + " ", UnitFormat.HTML), 100) == [text + " "]
    with pytest.raises(FileError, match="more than the 400 characters"):
        split_unit(Unit(text, UnitFormat.HTML), SIZE)


def test_an_element_may_be_ten_times_as_long_as_a_part() -> None:
    text = "<b>" + "a" * (10 * SIZE - 7) + "</b>"
    assert texts(Unit(text, UnitFormat.HTML)) == [text]
    with pytest.raises(FileError, match="more than the 400 characters"):
        split_unit(Unit(text.replace("</b>", "a</b>"), UnitFormat.HTML), SIZE)


@settings(deadline=None)
@given(st.text(alphabet="ab.! \n<>/\u3002"), st.sampled_from(UnitFormat), st.integers(2, 30))
def test_the_parts_join_to_the_text(text: str, kind: UnitFormat, size: int) -> None:
    unit = Unit(text, kind)
    try:
        found = texts(unit, size)
    except FileError:
        return
    assert "".join(found) == text
    assert join_parts([unit, unit], size, [*found, *found]) == [text, text]
    assert kind is not UnitFormat.TEXT or all(len(part) <= size for part in found)


@pytest.mark.seconds
def test_a_very_long_line_is_split_in_linear_time() -> None:
    started = time.process_time()
    for seed in ("The house. ", "a", "a "):
        assert len(texts(Unit(seed * (2_000_000 // len(seed))), 2_000)) >= 1_000
    assert time.process_time() - started < 20


@pytest.mark.parametrize(
    ("seed", "size"),
    [
        ("<a ", 25_000),
        ('<a b="', 50_000),
        ("<!-- ", 250_000),
        ("</", 2_000_000),
        ("<b>", 100_000),
        ("</b>", 100_000),
        ("<b>A house. </b> ", 150_000),
    ],
)
def test_very_long_markup_is_split_in_linear_time(seed: str, size: int) -> None:
    """size: characters of the text. Linear work on them takes less than a second, and quadratic work far more."""
    text = seed * (size // len(seed))
    started = time.process_time()
    assert "".join(cut(text, 2_000, is_text=False)) == text
    assert time.process_time() - started < 5


def test_a_wrong_number_of_translations_is_an_error() -> None:
    with pytest.raises(ValueError, match="1 translations for 3 parts"):
        join_parts([Unit("a" * 90)], SIZE, ["a"])
