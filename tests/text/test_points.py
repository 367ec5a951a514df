"""Markup without words, such as an image, keeps its spaces and its side of the punctuation in the translation."""

from __future__ import annotations

import pytest

from app.text.parsed_text import ParseOptions, Splitting, TextFormat, parse_text
from app.text.segments import SegmentTranslation
from app.text.xml_reader import XmlRules
from benchmarks.roundtrip_models import copied
from tests.text.fake_models import translate_with
from tests.text.markup_samples import aligned

HTML = ParseOptions("en", "de", TextFormat.HTML)
XML = ParseOptions("en", "de", TextFormat.XML, xml=XmlRules(is_outlined=False))
POINTS = ["<img/>", "<i></i>", "<a><img/></a>", "<img/><i></i>", "<img/> <img/>"]


def rendered(markup: str, options: ParseOptions, target: str, pairs: list[tuple[int, int]]) -> str:
    """A sentence with this translation. pairs: (target word, source word), punctuation marks count as words."""
    parsed = parse_text(markup, options)
    (segment,) = parsed.segments(lambda _source: True)
    return parsed.render(segment, SegmentTranslation(target, aligned(segment.source, target, pairs)))


# @ is the point.
@pytest.mark.parametrize(
    ("markup", "target", "pairs", "expected"),
    [
        ("The dog @ sleeps.", "Der Hund schläft.", [(0, 0), (1, 1), (2, 2), (3, 3)], "Der Hund @ schläft."),
        ("Go to @ to eat.", "Geh, um zu essen.", [(0, 0), (3, 2), (4, 3), (5, 4)], "Geh @, um zu essen."),
        ("Geh @, um zu essen.", "Go to eat.", [(0, 0), (2, 4), (3, 5)], "Go @ to eat."),
        # before the closing mark, also if that is aligned to a word before the point
        ("The end is @.", "Das Ende ist.", [(0, 0), (1, 1), (2, 2), (3, 1)], "Das Ende ist @."),
        ("Mach @ auf!", "Open!", [(0, 0), (1, 0)], "Open @!"),
        ("I read (on @).", "Ich lese (an).", [(0, 0), (1, 1), (3, 3), (5, 1)], "Ich lese (an @)."),
        ("The dog ( @ ) ran.", "Der Hund () lief.", [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)], "Der Hund ( @ ) lief."),
        # not inside characters that have no space between them
        ("Our mail @ is here.", "Die E-Mail ist da.", [(0, 0), (1, 1), (3, 2), (4, 2)], "Die @ E-Mail ist da."),
        ("Eat @ rice.", "\u5403\u996d\u3002", [(0, 0), (1, 1), (2, 2)], "\u5403@\u996d\u3002"),
    ],
)  # fmt: skip
def test_a_point_has_spaces_where_the_source_has_them(
    markup: str, target: str, pairs: list[tuple[int, int]], expected: str
) -> None:
    for options in (HTML, XML):
        for point in POINTS:
            written = rendered(markup.replace("@", point), options, target, pairs)
            assert written == expected.replace("@", point)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(
    "text", ["so @ !", "one, @ two", "( @ ) is", "one @ (two)", "a @ \u201cb\u201d", "a @  - b"]
)
def test_a_copied_point_keeps_its_spaces(point: str, text: str) -> None:
    markup = text.replace("@", point)
    assert translate_with(markup, XML).text == markup


@pytest.mark.parametrize(
    ("markup", "options", "source"),
    [
        ("One <x/> two", XML, "One two"),
        ("One <x/>  <y/> two", XML, "One two"),
        ("One. <x/> Two", XML._replace(splitting=Splitting.LINES), "One. Two"),
        ("One <b> two</b> three", XML, "One two three"),
        ("Am 3. <x/> Mai", XML._replace(source_language="de"), "Am 3. Mai"),
        # spaces without a tag between them are layout
        ("One  two <x/> three", XML, "One  two three"),
        ("One<x/>  two", XML, "One  two"),
    ],
)
def test_spaces_around_a_tag_are_one_space_for_the_model(
    markup: str, options: ParseOptions, source: str
) -> None:
    parsed = parse_text(markup, options)
    assert [segment.source for segment in parsed.segments(lambda _source: True)] == [source]
    assert translate_with(markup, options).text == markup


def test_two_points_in_one_gap_keep_the_space_between_them() -> None:
    written = rendered("See <x/> or read <y/> now.", XML, "Jetzt.", [(0, 3), (1, 4)])
    assert written == "<x/> <y/> Jetzt."


@pytest.mark.parametrize(
    ("markup", "target", "pairs", "expected"),
    [
        ("The dog (<x/>) ran.", "Der Hund (lief).", [(0, 0), (1, 1), (2, 2), (3, 4)], "Der Hund (<x/> lief)."),
        ("A dog (<x/> big) ran.", "Ein grosser lief.", [(0, 0), (1, 3), (2, 5)], "Ein <x/> grosser lief."),
        ("The big<x/> dog ran.", "Ein Hund, gross.", [(1, 2), (3, 1), (4, 4)], "Ein Hund, gross<x/>."),
        ("A dog is big<x/> now.", "Er ist gross.", [(0, 1), (1, 2), (2, 3), (3, 3)], "Er ist gross<x/>."),
        ("The <x/>dog <y/> ran.", "Lief Hund.", [(0, 2), (1, 1), (2, 3)], "<y/> Lief <x/>Hund."),
        ("Our <x/>mail is here.", "Die E-Mail ist da.", [(1, 0), (3, 1), (4, 2)], "Die E-<x/>Mail ist da."),
    ],
)  # fmt: skip
def test_a_point_that_touches_a_word_gets_no_space_and_one_that_touches_a_mark_may(
    markup: str, target: str, pairs: list[tuple[int, int]], expected: str
) -> None:
    assert rendered(markup, XML, target, pairs) == expected


def test_points_around_a_word_get_no_space() -> None:
    """A Word file has such points around the text of a field. They show nothing."""
    assert rendered("He did <x/>not<y/> come.", XML, "Er kam.", [(0, 0), (1, 3), (2, 4)]) == "Er <x/><y/>kam."


def test_an_element_that_gets_no_word_gets_no_space() -> None:
    options = XML._replace(source_language="zh", target_language="en")
    written = rendered("\u6211<b>\u5f88</b><i>\u597d</i>", options, "Good", [(0, 2)])
    assert written == "<i></i><b>Good</b>"


def test_a_space_after_an_element_is_left_out_before_a_comma() -> None:
    markup, pairs = "A <b>dog </b> in it", [(0, 0), (1, 1), (3, 2), (4, 3)]
    assert rendered(markup, XML, "Ein Hund, in ihm", pairs) == "Ein <b>Hund</b>, in ihm"


@pytest.mark.parametrize(
    ("markup", "target", "pairs", "expected"),
    [
        ("A <b>dog</b> ran.", "Er lief.", [(1, 2), (2, 1)], "<b>Er</b> lief."),
        ("See the <b>(big)</b>.", "Siehe das (grosse).", [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 3)],
         "Siehe das <b>(grosse)</b>."),
        # a mark that the element contains in the source stays in it
        ("He ran. <b>So it is.</b> Go", "Geh. Er lief.", [(0, 7), (2, 3), (3, 4), (4, 6)], "Geh. <b>Er lief.</b>"),
    ],
)  # fmt: skip
def test_an_element_does_not_get_the_closing_mark_of_its_sentence(
    markup: str, target: str, pairs: list[tuple[int, int]], expected: str
) -> None:
    assert rendered(markup, XML._replace(splitting=Splitting.LINES), target, pairs) == expected


@pytest.mark.parametrize(
    "markup",
    [
        "<a href='x'>Home <img src='y'></a> and more",
        "Call <b>us <i class='icon'></i></b> today.",
        "bread <x/><b><x/> old </b>",
    ],
)
def test_an_element_that_ends_with_a_point_gets_no_space_before_its_end(markup: str) -> None:
    assert translate_with(markup, HTML, copied).text == markup
