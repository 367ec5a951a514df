"""The model reads plain spaces and hyphens, and no soft hyphens. The translation gets the text's own ones back.

`written` is the text that the model reads, with the spaces and hyphens that the caller wrote.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.text.glossary import Glossary, Term
from app.text.model_input import INVISIBLE, model_input, with_common_quotes, with_written_characters
from app.text.parsed_text import ParsedText, ParseOptions, TextFormat, parse_text
from app.text.segments import SegmentTranslation, SourceSegment, with_number_placeholders
from benchmarks.roundtrip_models import copied, reversed_words
from tests.text.fake_models import translate_with

HTML = ParseOptions("en", "de", TextFormat.HTML)
PLAIN = ParseOptions("en", "de")
SPACES = "\u00a0\u202f\u2000\u2009\u200a\u205f\u3000"
HYPHENS = "\u2010\u2011\u2212"
PARTS = st.text(st.sampled_from("ab1.,-\u0301 \u4f60" + HYPHENS + SPACES + "".join(INVISIBLE)), max_size=20)


def parsed_sentence(text: str, options: ParseOptions) -> tuple[ParsedText, SourceSegment]:
    parsed = parse_text(text, options)
    (segment,) = parsed.segments(lambda _source: True)
    return parsed, segment


@pytest.mark.parametrize("space", SPACES)
def test_the_model_reads_a_single_wide_space_as_a_plain_one(space: str) -> None:
    text = f"10{space}km, the{space}end"
    source, written, positions = model_input(text)
    assert (source, written) == ("10 km, the end", text)
    assert list(positions) == list(range(len(text)))


@pytest.mark.parametrize("hyphen", HYPHENS)
def test_the_model_reads_every_hyphen_and_minus_sign_as_a_plain_hyphen(hyphen: str) -> None:
    text = f"A well{hyphen}known sum is 3 {hyphen} 4 = {hyphen}1"
    source, written, positions = model_input(text)
    assert (source, written) == ("A well-known sum is 3 - 4 = -1", text)
    assert positions == range(len(text))


@pytest.mark.parametrize(
    "text",
    [
        "the house\u00a0\u00a0is red",
        "the house \u00a0 is red",
        "the\u00a0 \u00a0house",
        "\u00a0red\u202f",
        "\u5c71\u7530\u3000\u592a\u90ce",
        "\u5c71\u7530\u3000Anna",
        "Anna\uff01\u3000Tom",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "\u0915\u094d\u200d\u0937",
        "\U0001f468\u200d\U0001f469",
        "left \u200eto\u200f \u202eright\u202c",
    ],
)
def test_runs_of_spaces_joiners_and_marks_of_direction_stay(text: str) -> None:
    assert model_input(text) == (text, text, range(len(text)))


@pytest.mark.parametrize("text", ["terms\u00a0 and", "terms \u00a0and"])
def test_a_wide_and_a_plain_space_are_one_plain_space(text: str) -> None:
    read = model_input(text)
    assert (read.source, read.written) == ("terms and", "terms\u00a0and")
    assert [text[position] for position in read.positions] == list(read.written)
    assert translate_with(text, PLAIN, reversed_words).text == "and terms"


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("The weath\u00ader", "The weather"),
        ("agri\u200bcultural", "agricultural"),
        ("word\u2060joiner", "wordjoiner"),
        ("a mark \ufeff in it", "a mark in it"),
        ("a\u00ad\u00a0b", "a b"),
        ("a \u200bb  c", "a b  c"),
    ],
)
def test_the_model_reads_no_invisible_character(text: str, source: str) -> None:
    read = model_input(text)
    assert read.source == source
    assert [text[position] for position in read.positions] == list(read.written)


@given(PARTS, st.booleans())
def test_positions_lead_from_the_written_characters_to_the_text(text: str, collapses_spaces: bool) -> None:
    source, written, positions = model_input(text, collapses_spaces=collapses_spaces)
    assert len(source) == len(written) == len(positions)
    assert list(positions) == sorted(set(positions))
    assert "".join(text[position] for position in positions) == written
    assert INVISIBLE.isdisjoint(source)
    assert with_written_characters(source, written, source) == written
    # Nothing is left to replace.
    assert model_input(source, collapses_spaces=collapses_spaces).source == source


@pytest.mark.parametrize(
    ("text", "translation", "expected"),
    [
        ("It is 10\u00a0km to it.", "Bis dahin: 10 km.", "Bis dahin: 10\u00a0km."),
        ("(10\u202fkm)", "10 km weit", "10\u202fkm weit"),
        ("z.\u00a0B. Anna", "Anna, z. B. heute", "Anna, z.\u00a0B. heute"),
        ("5\u00a0% of it", "davon 5 %.", "davon 5\u00a0%."),
        ("the\u00a0house", "das Haus", "das Haus"),
        ("10\u00a0km and 10 km", "10 km und 10 km und 10 km", "10\u00a0km und 10 km und 10 km"),
        ("10\u00a0km and 10 km", "10\u00a0km et 10\u00a0km", "10\u00a0km et 10\u00a0km"),
        ("10 km and 10\u00a0km", "10 km und 10 km", "10 km und 10\u00a0km"),
        ("10\u00a0km and 5 km", "5 km und 10 km", "5 km und 10\u00a0km"),
        ("cafe\u0301\u00a0Anna", "caf\u00e9 Anna", "caf\u00e9\u00a0Anna"),
        ("10\u00a0km", "10  km", "10  km"),
        ("10\u00a0km", "", ""),
        ("It was \u22125 \u00b0C today", "Heute waren es -5 \u00b0C", "Heute waren es \u22125 \u00b0C"),
        ("(\u22121,200 m)", "Bei -1.200 m", "Bei \u22121.200 m"),
        ("at\u00a0\u22125 or -6", "bei -6 oder at -5", "bei -6 oder at\u00a0\u22125"),
        ("\u22125 or -5", "-5 oder -5", "\u22125 oder -5"),
        ("6\u22125 and -5", "-5 und 6-5", "-5 und 6\u22125"),
        ("the U\u2011Bahn", "die U-Bahn", "die U\u2011Bahn"),
        ("an e\u2011mail", "eine E-Mail", "eine E-Mail"),
        ("2 \u2212 1 is odd", "ungerade: 2 - 1", "ungerade: 2 \u2212 1"),
        ("caf\u00e9\u2011bar", "die caf\u00e9-bar", "die caf\u00e9\u2011bar"),
        ("\u22125", "-", "-"),
    ],
)
def test_a_space_or_hyphen_comes_back_between_the_same_neighbours(
    text: str, translation: str, expected: str
) -> None:
    source, written, _ = model_input(text)
    found = with_written_characters(source, written, translation)
    assert found == expected
    # A pivot repairs a translation twice.
    assert with_written_characters(source, written, found) == expected


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        ("Call&nbsp;us&nbsp;now", "now us Call"),
        ("10&nbsp;{unit} long", "long {unit} 10"),
        ("The weath&shy;er is good", "good is weather The"),
        ("<b>agri&#8203;cultural</b>&shy; land", "land <b>agricultural</b>"),
        ("<b>agri</b>&shy;cultural land", "land <b>agricultural</b>"),
    ],
)
def test_a_translation_has_plain_spaces_and_no_soft_hyphens(markup: str, expected: str) -> None:
    assert translate_with(markup, HTML, reversed_words).text == expected


@pytest.mark.parametrize(
    "markup",
    [
        "It is 10&nbsp;km to the&#8239;sea",
        "It is 10&nbsp;{unit} long",
        "The weath&shy;er &#8203;is agri\u200bcultural",
        "A mark \ufeff in it",
        "<b>The</b> weath&shy;er <i>is</i> <u>good&nbsp;and</u>&nbsp;warm",
        "THE WEATH&shy;ER IS&nbsp;GOOD",
        "The m\u00fcller&nbsp; house",
        "The m\u00fcller &nbsp;<b>house</b>",
        "<p>One \u200b two <b>three</b></p>",
        "<p>One&nbsp; two <b>three</b> four</p>",
        "One \u200b<i> three</i>",
        "One \u200b <b> two</b> three",
    ],
)
def test_a_copy_keeps_every_character(markup: str) -> None:
    assert translate_with(markup, HTML, copied).text == markup


def test_a_soft_hyphen_after_a_tag_stays_in_its_word() -> None:
    text = "<b>agri</b>&shy;cultural \u200b<i> \u200bland</i>"
    assert translate_with(text, HTML, copied).text == "<b>agri&shy;cultural</b> \u200b\u200b<i> land</i>"


@pytest.mark.parametrize(
    "text", ["M\u00fcller\u00a0 house", "the \u00a0house is", "a \u200b b\u00ad\u00a0 c"]
)
def test_a_copy_of_plain_text_keeps_every_character(text: str) -> None:
    assert translate_with(text, PLAIN, copied).text == text


@given(PARTS)
def test_a_copy_of_any_plain_text_is_the_text(text: str) -> None:
    assert translate_with(text, ParseOptions("en", "en"), copied).text == text


def test_a_copy_has_one_space_for_a_run_of_ascii_white_space_in_markup() -> None:
    assert translate_with("One  two\n \u200b three", HTML, copied).text == "One two  \u200b three"


def test_characters_outside_of_a_sentence_stay() -> None:
    text = "\ufeff One\u00a0two. \u200b\u00a0\u00a0- Three\u00ad\u00a0"
    finished = translate_with(text, PLAIN, lambda source: SegmentTranslation(source.upper()))
    assert finished.text == "\ufeff ONE TWO. \u200b\u00a0\u00a0- THREE\u00ad\u00a0"


def test_spans_are_positions_in_the_callers_text() -> None:
    text = "The weath&shy;er&nbsp;is&#8203; good.&nbsp;So"
    parsed = parse_text(text, HTML)
    first, second = parsed.segments(lambda _source: True)
    assert (first.source, second.source) == ("The weather is good.", "So")
    assert [text[slice(*parsed.span(segment))] for segment in (first, second)] == [
        "The weath&shy;er&nbsp;is&#8203; good.",
        "So",
    ]
    found = [
        text[slice(*parsed.source_range(first, *span))] for span in ((4, 11), (11, 14), (12, 14), (15, 20))
    ]
    assert found == ["weath&shy;er", "&nbsp;is", "is", "good."]


def test_a_finished_segment_has_the_positions_of_its_tokens() -> None:
    parsed, segment = parsed_sentence("It is 10&nbsp;km", HTML)
    translation = SegmentTranslation("Es 10 km", token_offsets=[(0, 2), (2, 5), (5, 8), (8, 8)])
    finished = parsed.finish([segment], [translation])
    offsets = finished.segments[0].token_offsets
    assert finished.text == "Es 10&nbsp;km"
    assert [finished.text[slice(*each)] for each in offsets] == ["Es", " 10", "&nbsp;km", ""]


def test_casing_ignores_invisible_characters() -> None:
    _, segment = parsed_sentence("OP\u00adEN\u00a0THE WIN\u00adDOW", PLAIN)
    assert (segment.source, segment.written) == ("Open the window", "Open\u00a0the window")


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("10\u00a0000 personnes", ParseOptions("fr", "en"), "10,000 personnes"),
        ("Il a 777\u00a0123\u00a0456 euros", ParseOptions("fr", "en"), "Il a 777,123,456 euros"),
        ("1,200.5\u00a0km of it", ParseOptions("en", "fr"), "1\u00a0200,5\u00a0km of it"),
    ],
)
def test_numbers_are_written_as_in_the_target_language(
    text: str, options: ParseOptions, expected: str
) -> None:
    parsed, segment = parsed_sentence(text, options)
    assert "\u00a0" not in segment.source
    assert parsed.finish([segment], [copied(segment.source)]).text == expected
    with_placeholders = with_number_placeholders(segment, text)
    assert with_placeholders.numbers
    assert parsed.finish([with_placeholders], [copied(with_placeholders.source)]).text == expected


def test_a_number_that_is_decoded_as_a_placeholder_has_the_spaces_of_the_text() -> None:
    parsed, segment = parsed_sentence("Il y a 10\u00a0000 personnes", ParseOptions("fr", "en"))
    (retry,) = parsed.number_retries(segment, SegmentTranslation("There are people"), lambda _source: True)
    assert [number for _, number in retry.numbers] == ["10\u00a0000"]


def test_a_missing_date_with_other_hyphens_is_found_in_the_text() -> None:
    parsed, segment = parsed_sentence("It is 8 km on 2024\u201105\u201107 again", PLAIN)
    first, _ = parsed.number_retries(segment, SegmentTranslation("Es sind 8 km"), lambda _source: True)
    assert [number for _, number in first.numbers] == ["2024\u201105\u201107"]
    assert first.source.startswith("It is 8 km on ")


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("It was \u22123.5 km", PLAIN, "It was \u22123,5 km"),
        ("The U\u2011Bahn is &minus;5", HTML, "The U\u2011Bahn is &minus;5"),
        ("<b>A</b>\u2011Z and <i>\u22125</i>", HTML, "<b>A</b>\u2011Z and <i>\u22125</i>"),
    ],
)
def test_a_copy_keeps_hyphens_and_minus_signs(text: str, options: ParseOptions, expected: str) -> None:
    assert translate_with(text, options, copied).text == expected


@pytest.mark.parametrize(
    ("term", "text"),
    [
        ("mail box", "The mail\u00a0box\u00a0is red"),
        ("mail box", "The ma\u00adil\u00a0bo\u00adx is red"),
        ("ma\u00adil box", "The mail box is red"),
    ],
)
def test_a_term_may_have_wide_spaces_and_invisible_characters_inside(term: str, text: str) -> None:
    options = PLAIN._replace(glossary=Glossary([Term(term, "Briefkasten")], "en"))
    parsed, segment = parsed_sentence(text, options)
    assert segment.source == "The mail box is red"
    (hit,) = parsed.glossary_hits
    start = segment.source.index("mail")
    assert parsed.source_range(segment, start, start + len("mail box")) == (hit.span.start, hit.span.end)
    assert parsed.source_range(segment, start + 8, start + 11) == (hit.span.end, hit.span.end + 3)
    translated = translate_with(text, options, copied)
    assert translated.text.replace("\u00a0", " ") == "The Briefkasten is red"


def test_streamed_text_has_the_spaces_of_the_text() -> None:
    parsed, segment = parsed_sentence("It is 10&nbsp;km away", HTML)
    assert parsed.preview(segment, "Es 10 km") == "Es 10&nbsp;km"


def test_german_angle_quotes_are_common_quotes_for_the_model() -> None:
    text = "\u00bbKomm!\u00ab, rief er. \u00abJa\u00bb. Weiter \u00bb"
    assert with_common_quotes(text, "de-AT") == "\u201eKomm!\u201c, rief er. \u201eJa\u201c. Weiter \u00bb"
    assert with_common_quotes(text, "fr") == text
