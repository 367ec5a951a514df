"""Texts are translated with fake models. Everything except the translated text is unchanged for any model."""

from __future__ import annotations

import itertools
import re
from collections import Counter

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.text.casing import Casing
from app.text.glossary import Glossary, Term
from app.text.number_check import ChangedNumbers
from app.text.parsed_text import ParseOptions, Splitting, TextFormat, parse_text
from app.text.protected_spans import PLACEHOLDER_CODE_POINTS
from app.text.segments import Fallback, SegmentTranslation, with_number_placeholders
from app.text.xml_reader import XmlRules
from benchmarks.roundtrip_models import MODELS as BY_NAME
from benchmarks.roundtrip_models import Model, copied, reversed_words
from tests.text.fake_models import squeezed, translate_with, without_placeholders
from tests.text.markup_samples import is_well_formed

PLAIN = ParseOptions("en", "de")
HTML = ParseOptions("en", "de", TextFormat.HTML)
NO_NEWLINES = ParseOptions("en", "de", splitting=Splitting.NO_NEWLINES)
LINES = ParseOptions("en", "de", splitting=Splitting.LINES)
XML = ParseOptions("en", "de", TextFormat.XML)
WORDS = [
    "bread", "Anna", "is", "late.", "Mr. Ray", "{name}", "%s", "https://example.org/a?b=c", "a@example.org", "12:30",
    "\U0001f600", "\u200bzero", "\u202eback\u202c", "e\u0301", "\U000f0000", "(so)", "\u4f60\u597d", "1.234,5",
    "<x/>", "{{", "&amp;",
]  # fmt: skip
GAPS = [" ", "  ", "\n", "\r\n", "\t", "\u2028", "\n\n   - ", "\n1. ", "\u00a0", "", ". ", ", "]
PROSE = st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(GAPS)), max_size=30).map(
    lambda parts: "".join(itertools.chain(*parts))
)
TAGS = re.compile(r"<[^<>]*>")
MODELS = [*BY_NAME.values(), lambda source: SegmentTranslation(source.upper())]


@settings(deadline=None)
@given(st.one_of(PROSE, st.text(max_size=120)), st.integers(1, 60))
def test_a_copied_text_is_unchanged(text: str, limit: int) -> None:
    segments = parse_text(text, PLAIN).segments(lambda source: len(source) <= limit)
    assume(all(segment.casing is Casing.PLAIN for segment in segments))
    finished = translate_with(text, PLAIN, limit=limit)
    assert finished.text == text
    for segment in finished.segments:
        assert segment.source == segment.target


@settings(deadline=None)
@given(PROSE, st.sampled_from(MODELS))
def test_line_breaks_are_unchanged_for_any_model(text: str, model: Model) -> None:
    finished = translate_with(text, PLAIN, model)
    breaks = re.compile("[\n\r\t\u2028]")
    assert breaks.findall(finished.text) == breaks.findall(text)


RUNS = [
    "bread ",
    "Anna is late. ",
    "{name} ",
    "&amp; ",
    "caf&eacute; ",
    "<br/>",
    "<!-- n --> ",
    "%d ",
    "<img src='x'/>",
]
ELEMENTS = ["p", "b", "i", "span class='x'", "code", "li"]
PIECES = st.recursive(
    st.sampled_from(RUNS),
    lambda inner: st.tuples(st.sampled_from(ELEMENTS), st.lists(inner, max_size=4)).map(
        lambda parts: f"<{parts[0]}>{''.join(parts[1])}</{parts[0].split()[0]}>"
    ),
    max_leaves=15,
)
MARKUP = st.lists(PIECES, max_size=5).map("".join)


@settings(deadline=None)
@given(MARKUP)
def test_copied_markup_is_unchanged(markup: str) -> None:
    # In HTML, a run of white space in a segment becomes one space.
    assert squeezed(translate_with(markup, HTML).text) == squeezed(markup)
    assert translate_with(markup.replace("&eacute;", "&#xe9;"), XML).text == markup.replace(
        "&eacute;", "&#xe9;"
    )


@settings(deadline=None)
@given(MARKUP, st.sampled_from(MODELS), st.sampled_from([HTML, XML]))
def test_tags_are_the_same_and_well_formed_for_any_model(
    markup: str, model: Model, options: ParseOptions
) -> None:
    markup = markup.replace("&eacute;", "&#xe9;")
    result = translate_with(markup, options, model).text
    assert Counter(TAGS.findall(result)) == Counter(TAGS.findall(markup))
    assert is_well_formed(TAGS.sub(lambda tag: "" if tag.group().startswith("<!") else tag.group(), result))
    assert result.count("{name}") == markup.count("{name}")
    assert result.count("%d") == markup.count("%d")


@settings(deadline=None)
@given(st.text(st.sampled_from("<>/!-ab &;#\"'=x? \n[]"), max_size=60), st.sampled_from(MODELS))
def test_malformed_html_is_no_error(markup: str, model: Model) -> None:
    result = translate_with(markup, HTML, model).text
    assert not set(map(ord, result)) & set(PLACEHOLDER_CODE_POINTS[:10])


@pytest.mark.parametrize(
    "model", [without_placeholders(copied, is_aligned=aligned) for aligned in (True, False)]
)
def test_a_lost_placeholder_is_restored_once(model: Model) -> None:
    text = "Dear {name}, go to https://example.org/x or write to a@example.org {name}"
    finished = translate_with(text, PLAIN, model)
    for placeholder in ("https://example.org/x", "a@example.org"):
        assert finished.text.count(placeholder) == 1
    assert finished.text.count("{name}") == 2
    assert finished.segments[0].fallbacks


def test_a_repeated_placeholder_is_kept_once() -> None:
    finished = translate_with(
        "Dear {name}, hello", PLAIN, lambda source: SegmentTranslation(source + " " + source)
    )
    assert finished.text.count("{name}") == 1
    assert finished.segments[0].fallbacks == (Fallback.PLACEHOLDER_REPEATED,)


def test_spans_count_from_the_start_of_the_text() -> None:
    text = "  Go to {place}. - Come!"
    finished = translate_with(
        text, PLAIN, lambda source: SegmentTranslation(source.replace("Go to", "Geh zu"))
    )
    assert finished.text == "  Geh zu {place}. - Come!"
    assert [text[slice(*segment.source)] for segment in finished.segments] == ["Go to {place}.", "- Come!"]
    assert [finished.text[slice(*segment.target)] for segment in finished.segments] == [
        "Geh zu {place}.",
        "- Come!",
    ]


def test_spans_count_the_characters_of_markup() -> None:
    text = "<p>Go &amp; see</p><p>it</p>"
    finished = translate_with(text, HTML)
    assert [text[slice(*segment.source)] for segment in finished.segments] == ["Go &amp; see", "it"]


def test_a_span_covers_a_term_and_not_its_longer_replacement() -> None:
    text = "The water"
    parsed = parse_text(text, PLAIN._replace(glossary=Glossary([Term("water", "Brausewasser")], "en")))
    (segment,) = parsed.segments(lambda _source: True)
    assert parsed.span(segment) == (0, 9)


def test_the_range_of_a_placeholder_for_a_number_is_the_range_of_the_number() -> None:
    text = "We sold 12,345 tickets in 2024."
    parsed = parse_text(text, PLAIN)
    (segment,) = parsed.segments(lambda _source: True)
    with_placeholders = with_number_placeholders(segment, text)
    found = [
        text[slice(*parsed.source_range(with_placeholders, place, place + 1))]
        for place, character in enumerate(with_placeholders.source)
        if character in dict(with_placeholders.numbers)
    ]
    assert found == ["12,345", "2024"]
    assert parsed.source_range(with_placeholders, 0, len(with_placeholders.source)) == (0, len(text))


def test_a_segments_span_has_its_tags_and_a_words_span_has_none() -> None:
    text = "<p><b>It is</b> late.</p>"
    parsed = parse_text(text, HTML)
    (segment,) = parsed.segments(lambda _source: True)
    assert text[slice(*parsed.span(segment))] == "<b>It is</b> late."
    assert text[slice(*parsed.source_range(segment, 3, 5))] == "is"
    assert text[slice(*parsed.source_range(segment, 6, 11))] == "late."


@pytest.mark.parametrize(
    ("text", "options", "sources"),
    [
        ("One line\nis cut. Here", PLAIN, ["One line", "is cut.", "Here"]),
        ("One line\nis not. Here", NO_NEWLINES, ["One line is not.", "Here"]),
        ("One line. Here\n- and there", LINES, ["One line. Here", "- and there"]),
        ("<p>One\n  <b>line</b></p>", HTML, ["One line"]),
        ("<p>One</p>text<br>more", HTML, ["One", "text", "more"]),
        ("a <b>bold. And</b> so", HTML, ["a bold.", "And so"]),
        ("&lt;b&gt; is a tag &amp; so is this", HTML, ["\U000f0000 is a tag & so is this"]),
        ("<script>x</script><p translate='no'>One</p><p class='a notranslate'>Two</p>", HTML, []),
        ("Use <code>x = 1</code> here", HTML, ["Use \U000f0000 here"]),
        ("Water is H<sub>2</sub>O here", HTML, ["Water is \U000f0000 here"]),
        ("The x<sub>i</sub> are under<b>line</b>d", HTML, ["The \U000f0000 are underlined"]),
        ("\U0001f600 12:30 --- {name}", PLAIN, []),
        ("MIND THE GAP", PLAIN, ["Mind the gap"]),
    ],
)  # fmt: skip
def test_what_the_model_reads(text: str, options: ParseOptions, sources: list[str]) -> None:
    segments = parse_text(text, options).segments(lambda _source: True)
    assert [segment.source for segment in segments] == sources


def test_capitals_are_restored_and_placeholders_keep_their_case() -> None:
    finished = translate_with(
        "CLOSE THE STREET {name}, <b>",
        PLAIN,
        lambda source: SegmentTranslation(source.replace("street", "straße")),
    )
    assert finished.text == "CLOSE THE STRASSE {name}, <b>"


def test_capitals_follow_the_rules_of_both_languages() -> None:
    for options in (ParseOptions("tr", "en"), ParseOptions("tr", "en", TextFormat.HTML)):
        (segment,) = parse_text("KAPIYI KAPATIN", options).segments(bool)
        assert segment.source == "Kap\u0131y\u0131 kapat\u0131n"
    glossary = Glossary([Term("medicine", "ila\u00e7")], "en")
    options = ParseOptions("en", "tr", glossary=glossary)
    parsed = parse_text("TAKE THE MEDICINE", options)
    (segment,) = parsed.segments(bool)
    assert parsed.missing_terms(segment, "ila\u00e7 i\u00e7in") == []
    assert (
        parsed.render(segment, SegmentTranslation("ila\u00e7 i\u00e7in"))
        == "\u0130LA\u00c7 \u0130\u00c7\u0130N"
    )


def test_tags_keep_their_places_in_text_that_grows_in_capitals() -> None:
    markup = "<i>MIND</i> THE <b>STREET</b> HERE"
    finished = translate_with(markup, HTML, copied)
    assert finished.text == markup


def test_tags_around_a_whole_sentence_need_no_alignment() -> None:
    finished = translate_with(
        "<i><b>One two.</b></i> <u>Three</u>", HTML, lambda source: SegmentTranslation(source.upper())
    )
    assert finished.text == "<i><b>ONE TWO.</b></i> <u>THREE</u>"
    assert [segment.fallbacks for segment in finished.segments] == [(), ()]


@pytest.mark.parametrize(("target", "gap"), [("en", " "), ("de-AT", " "), ("ja", "")])
def test_sentences_without_a_space_get_one_in_a_language_that_has_spaces(target: str, gap: str) -> None:
    first, second = "\u4ed6\u6765\u4e86\u3002", "\u5979\u8d70\u4e86\u3002"
    plain = translate_with(f"{first}{second}\n{first}", ParseOptions("zh-Hans", target))
    assert plain.text == f"{first}{gap}{second}\n{first}"
    assert plain.segments[1].target == (len(first + gap), len(first + gap + second))
    markup = f"<p>{first}<b>{second}</b></p>"
    tagged = translate_with(markup, ParseOptions("zh-Hans", target, TextFormat.HTML))
    assert tagged.text == markup.replace("<b>", f"{gap}<b>")


def test_spaces_between_tags_stay_between_them() -> None:
    markup = "Bread <!-- a -->  <!-- b -->\n<img> and  <b> tea</b>"
    assert translate_with(markup, HTML).text == markup.replace("and  <b>", "and <b>")


def test_the_prose_of_a_text_excludes_markup() -> None:
    markup = "<p>Bread &amp; <b>tea</b> {name}</p><pre>x = 1</pre><p>12</p>Jam"
    assert parse_text(markup, HTML).prose == "Bread & tea  \nJam"


def test_references_keep_the_spelling_of_the_source() -> None:
    def translate(source: str) -> SegmentTranslation:
        return SegmentTranslation(source.replace("and", "<und>") + " \u2014 \u00a0 \u00e9")

    finished = translate_with("Bread &mdash; and&nbsp;tea &#233;", HTML, translate)
    assert finished.text == "Bread &mdash; &lt;und&gt; tea &#233; &mdash; &nbsp; &#233;"


def test_a_link_with_a_url_as_text_is_unchanged() -> None:
    markup = '<a href="x"><span class="a">https://</span><span>example.org/page</span></a> is <b>good</b>'
    finished = translate_with(markup, HTML, reversed_words)
    assert '<span class="a">https://</span><span>example.org/page</span>' in finished.text
    assert finished.text.startswith("<b>good</b> is ")


def test_a_segment_fits_with_placeholders_for_its_terms_too() -> None:
    """A placeholder counts as ten characters, so the sentence fits only with its terms as words."""

    def fits(source: str) -> bool:
        return len(source) + 9 * sum(ord(each) in PLACEHOLDER_CODE_POINTS for each in source) <= 50

    text = "The old box is here, and the new box is there"
    glossary = Glossary([Term("box", "Kiste")], "en")
    parsed_text = parse_text(text, PLAIN._replace(glossary=glossary))
    segments = parsed_text.segments(fits)
    assert [segment.source for segment in segments] == ["The old box is here,", "and the new box is there"]
    assert all(fits(parsed_text.with_term_placeholders(segment).source) for segment in segments)


def test_terms_of_a_glossary_stand_in_the_translation() -> None:
    glossary = Glossary([Term("mail box", "Briefkasten"), Term("R&D", "F&E")], "en")
    options = ParseOptions("en", "de", TextFormat.HTML, glossary=glossary)
    parsed_text = parse_text("Mail boxes of R&amp;D and {mail box}", options)
    assert [hit.surface for hit in parsed_text.glossary_hits] == ["Mail boxes", "R&D", "mail box"]
    finished = translate_with("Mail boxes of R&amp;D", options)
    assert finished.text == "Briefkasten of F&amp;E"


@pytest.mark.parametrize(
    ("markup", "translated"),
    [
        ("a green <a href=x>tree</a> here", "a <a href=x>Gr&uuml;nbaum</a> here"),
        ("a <b>green</b> t<i>r</i>ee here", "a <b>Gr&uuml;nbaum</b><i></i> here"),
        ("a green <img src=y>tree here", "a <img src=y>Gr&uuml;nbaum here"),
    ],
)
def test_tags_inside_a_term_stand_around_its_translation(markup: str, translated: str) -> None:
    glossary = Glossary([Term("green tree", "Gr\u00fcnbaum")], "en")
    finished = translate_with(markup, ParseOptions("en", "de", TextFormat.HTML, glossary=glossary))
    assert finished.text == translated.replace("&uuml;", "\u00fc")


def test_a_term_inside_a_placeholder_is_no_hit() -> None:
    options = ParseOptions("en", "de", glossary=Glossary([Term("box", "Kiste")], "en"))
    parsed_text = parse_text("A {box} on https://example.org/box", options)
    assert parsed_text.glossary_hits == ()


def test_ignored_elements_of_xml_are_unchanged() -> None:
    options = ParseOptions("en", "de", TextFormat.XML, xml=XmlRules(ignored=frozenset({"x"})))
    finished = translate_with('Hello <x id="12"></x>, see <x>this <b>thing</b></x>', options, reversed_words)
    assert finished.text.count('<x id="12"></x>') == 1
    assert finished.text.count("<x>this <b>thing</b></x>") == 1


def test_pieces_of_a_long_sentence_and_changed_numbers_are_reported() -> None:
    finished = translate_with(
        "one two 33 four five six", PLAIN, lambda s: SegmentTranslation(s.replace("33", "34")), 14
    )
    assert [segment.is_part for segment in finished.segments] == [True, True]
    assert finished.segments[0].changed_numbers == ChangedNumbers(("33",), ("34",))
    assert not finished.segments[1].changed_numbers


def test_number_retries_need_a_changed_number_and_must_fit() -> None:
    parsed_text = parse_text("Take <b>33</b> of 4 now", HTML)
    (segment,) = parsed_text.segments(lambda _source: True)
    whole, changed = SegmentTranslation("Nimm 33 von 4"), SegmentTranslation("Nimm 34 von 4")
    assert parsed_text.number_retries(segment, whole, lambda _source: True) == []
    assert parsed_text.number_retries(segment, changed, lambda _source: False) == []
    first, with_placeholders = parsed_text.number_retries(segment, changed, lambda _source: True)
    assert first.source == "Take \U000f0000 of 4 now"
    assert parsed_text.number_retries(with_placeholders, changed, lambda _source: True) == []
    assert with_placeholders.source == "Take \U000f0000 of \U000f0001 now"
    assert (
        parsed_text.finish([with_placeholders], [copied(with_placeholders.source)]).text
        == "Take <b>33</b> of 4 now"
    )


def test_digits_of_a_placeholder_are_no_numbers() -> None:
    finished = translate_with(
        "Take {0} of https://example.org/33 now", PLAIN, without_placeholders(copied, is_aligned=True)
    )
    assert not finished.segments[0].changed_numbers


def test_every_segment_needs_a_translation() -> None:
    parsed_text = parse_text("One. Two.", PLAIN)
    with pytest.raises(ValueError, match="1 translations for 2 segments"):
        parsed_text.finish(parsed_text.segments(lambda _source: True), [SegmentTranslation("x")])


def test_a_shortcode_and_its_end_may_be_in_different_blocks() -> None:
    parsed = parse_text("<p>[box]</p><p>Some [sic] text</p><p>[/box]</p>", HTML)
    assert [segment.source for segment in parsed.segments(bool)] == ["Some [sic] text"]
    assert parsed.prose.split() == ["Some", "[sic]", "text"]
