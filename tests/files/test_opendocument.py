"""Paragraphs of OpenDocument files are read and written as LibreOffice needs them."""

from __future__ import annotations

import re
from io import BytesIO
from zipfile import ZipFile

import pytest

from app.files import FileFormat
from app.files.reading import read_file
from tests.files.opendocuments import (
    COMMENT,
    NOTE,
    PAGE,
    STYLES,
    content,
    frame,
    master_styles,
    odf,
    paragraph,
    span,
    style,
)
from tests.text.growth import check_near_linear

LINK = '<text:a xlink:href="#a">'


def texts(data: bytes) -> list[str]:
    return [unit.text for unit in read_file(data, FileFormat.ODT).units]


def translated(inner: str, source: str, translation: str, styles: str = STYLES) -> str:
    """The content of a paragraph with its translation. source: the text of its unit, which is checked."""
    file = read_file(odf(content(paragraph(inner), styles=styles)), FileFormat.ODT)
    assert file.units[0].text == source
    with ZipFile(BytesIO(file.write([translation, *[unit.text for unit in file.units[1:]]]))) as archive:
        written = archive.read("content.xml").decode()
    match = re.search(r'<text:p text:style-name="P1">(.*)</text:p>', written)
    assert match is not None
    return match[1]


@pytest.mark.parametrize("name", ["T2", "T3", ""])
def test_spans_that_change_nothing_are_one_text_with_their_neighbours(name: str) -> None:
    """LibreOffice writes a span for each time that a text was changed."""
    assert translated("A ti" + span("tle", name), "A title", "Ein Titel") == "Ein Titel"


def test_a_style_that_users_may_change_is_not_looked_up() -> None:
    source = 'A ti<g id="1">tle</g>'
    written = translated("A ti" + span("tle", "Source_20_Text"), source, source.replace("A", "Ein"))
    assert written == "Ein ti" + span("tle", "Source_20_Text")


def test_spans_that_look_the_same_are_one_text() -> None:
    styles = STYLES + style(
        "T9", 'officeooo:rsid="00aaaaaa" fo:font-weight="bold" style:font-weight-asian="bold"'
    )
    inner = "The bread is " + span("old", "T1") + span(" and", "T9") + " so"
    source = 'The bread is <g id="1">old and</g> so'
    written = translated(inner, source, '<g id="1">alt und</g> so', styles)
    assert written == span("alt und", "T1") + " so"


def test_a_style_with_another_parent_looks_different() -> None:
    parent = ' style:parent-style-name="Emphasis"'
    styles = style("T1", 'officeooo:rsid="1"', parent) + style("T2", 'officeooo:rsid="2"')
    source = 'The <g id="1">old</g> house'
    inner = "The " + span("old", "T1") + span(" house", "T2")
    assert translated(inner, source, source.replace("old", "alte"), styles) == (
        "The " + span("alte", "T1") + " house"
    )


def test_the_style_of_most_characters_has_no_marks() -> None:
    inner = span("Bread is ", "T1") + span(span("very", "T4"), "T1") + span(" old", "T1")
    source = 'Bread is <g id="1">very</g> old'
    written = translated(inner, source, '<g id="1">Sehr</g> alt ist Brot')
    assert written == span(span("Sehr", "T4"), "T1") + span(" alt ist Brot", "T1")


def linked(words: str) -> str:
    return f"{LINK}{words}</text:a>"


def test_the_style_of_a_text_is_that_of_all_spans_around_it() -> None:
    inner = "The bread is " + span("old", "T4") + span(span(" and so", "T4"), "T1")
    source = 'The bread is <g id="1">old</g><g id="4"> and so</g>'
    assert translated(inner, source, source.replace("old", "alt")) == inner.replace("old", "alt")


def test_a_link_moves_with_its_words() -> None:
    inner = "See " + linked(span("the page of terms", "T1")) + " now"
    source = 'See <g id="1">the page of terms</g> now'
    written = translated(inner, source, '<g id="1">Seite</g> jetzt')
    assert written == linked(span("Seite", "T1")) + " jetzt"


def test_a_link_in_a_span_stays_in_it() -> None:
    """Impress loses the text of a span in a link."""
    inner = span("See ", "T1") + span(linked("the page"), "T4") + span(" now", "T1")
    source = 'See <g id="1">the page</g> now'
    written = translated(inner + span(" and then", "T1"), f"{source} and then", f"{source} und")
    assert written == span("See ", "T1") + span(linked("the page"), "T4") + span(" now und", "T1")


def test_a_link_with_bold_words_is_one_link_for_the_translation() -> None:
    source = 'See <g id="1">the old <g id="3">page</g></g>'
    written = translated(
        "See " + linked(f"the old {span('page', 'T1')}"), source, source.replace("old", "alte")
    )
    assert written == "See " + linked("the alte ") + linked(span("page", "T1"))


def test_a_word_between_two_links_gets_neither() -> None:
    inner = linked("one") + " " + linked("two").replace("#a", "#b")
    source = '<g id="0">one</g> <g id="4">two</g>'
    written = translated(inner, source, source.replace("</g>", "</g> and", 1))
    assert written == inner.replace("</text:a> ", "</text:a> and ")


def test_a_bookmark_in_a_link_does_not_divide_it() -> None:
    start, end = '<text:bookmark-start text:name="b"/>', '<text:bookmark-end text:name="b"/>'
    source = 'See <g id="1">the <g id="3">old</g> page</g>'
    written = translated(f"See {linked(f'the {start}old{end} page')}", source, source.replace("old", "alte"))
    assert written == f"See {linked('the ')}{start}{linked('alte')}{end}{linked(' page')}"


def test_a_link_without_words_does_not_divide_a_bookmark() -> None:
    start, end = '<text:bookmark-start text:name="b"/>', '<text:bookmark-end text:name="b"/>'
    source = 'One <g id="1"> old</g>'
    inner = f"One{linked(f' {start}<text:s/>')}old{end}"
    assert translated(inner, source, source.replace("old", "alt")) == f"One {start}<text:s/>alt{end}"


def test_a_blank_absorbs_no_space() -> None:
    line = span('<text:s text:c="3"/>', "T4")
    source = 'Name:<x id="1"/> so'
    assert translated(f"Name:{line}<text:s/>so", source, source.replace("so", "an")) == f"Name:{line} an"
    other = span("\u00a0<text:s/>", "T4")
    assert translated(
        f"Name:{span(chr(160) + ' ', 'T4')} so", 'Name: <x id="1"/>so', 'Name:<x id="1"/> an'
    ) == (f"Name:{other} an")


def test_a_link_keeps_its_events_and_its_picture() -> None:
    events, picture = "<office:event-listeners/>", "<draw:frame/>"
    found = texts(odf(content(paragraph(f"See {linked(events + picture)} it now"))))
    assert found == ['See <x id="1"/> it now']
    assert translated(f"See {linked(events + picture)} it now", found[0], found[0].replace("now", "an")) == (
        f"See {linked(events + picture)}<text:s/>it an"
    )
    empty = linked("")
    assert translated(f"See{empty} it", 'See<x id="1"/> it', 'Da<x id="1"/>') == f"Da{empty}"


@pytest.mark.parametrize(
    ("inner", "source"),
    [
        ("\n  One \t\n two", "One two"),
        ("One " + span(" two", "T2"), "One two"),
        ("One <text:s/>two", "One  two"),
        ("One <text:s/> two", "One   two"),
        ('One<text:s text:c="3"/>two', "One   two"),
        (" <text:s/>One", " One"),
        ('<text:s text:c="99999"/>One', '<x id="0"/>One'),
        ("One<text:soft-page-break/> two", "One two"),
        ("One<![CDATA[ & two]]><!-- a note -->", "One & two"),
    ],
)
def test_white_space_counts_as_one_space(inner: str, source: str) -> None:
    assert translated(inner, source, source.replace("One", "Eins"))


@pytest.mark.parametrize(
    ("translation", "expected"),
    [
        ("a  b", "a <text:s/>b"),
        ("a    b", 'a <text:s text:c="3"/>b'),
        (" a", "<text:s/>a"),
        ("   a", '<text:s text:c="3"/>a'),
        ("a & b\n<c>", "a &amp; b &lt;c&gt;"),
        ("a ", "a "),
    ],
)
def test_spaces_that_would_be_lost_are_elements(translation: str, expected: str) -> None:
    assert translated("One", "One", translation) == expected
    assert texts(odf(content(paragraph(expected + "x")))) == [" ".join(translation.split("\n")) + "x"]


def test_a_space_after_a_space_is_an_element() -> None:
    source = 'One <g id="1">two</g> three'
    written = translated("One " + span("two", "T1") + " three", source, 'A <g id="1"> b </g> c')
    assert written == "A " + span("<text:s/>b ", "T1") + "<text:s/>c"


def test_the_line_to_write_on_stays() -> None:
    line = span('<text:s text:c="12"/>', "T4")
    assert translated(f"Name: {line}", 'Name: <x id="1"/>', 'Ihr Name: <x id="1"/>') == f"Ihr Name: {line}"


@pytest.mark.parametrize("name", ["text:tab", "text:line-break"])
def test_a_tab_and_a_line_break_end_a_sentence(name: str) -> None:
    inner = span(f"One<{name}/>two", "T1") + span("x", "T2")
    source = 'One<br id="1"/>two<g id="3">x</g>'
    written = translated(inner, source, source.replace("One", "Eins"))
    assert written == span("Eins", "T1") + span(f"<{name}/>", "T1") + span("two", "T1") + span("x", "T2")


@pytest.mark.parametrize(
    "field",
    [PAGE, '<text:date text:date-value="2026-01-02">January</text:date>', "<presentation:footer/>",
     '<text:bookmark-ref text:ref-name="a">A title</text:bookmark-ref>', "<text:text-input>Name</text:text-input>"],
)  # fmt: skip
def test_a_field_is_a_word_that_stays(field: str) -> None:
    written = translated(f"On {field} so", 'On <x id="1" translate="no"/> so', '<x id="1"/> an')
    assert written == f"{field} an"


def test_a_paragraph_of_fields_has_no_text() -> None:
    assert texts(odf(content(paragraph(f"{PAGE} / {PAGE}") + paragraph("One")))) == ["One"]


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ('<text:bookmark-start text:name="b"/>', '<text:bookmark-end text:name="b"/>'),
        ('<text:reference-mark-start text:name="b"/>', '<text:reference-mark-end text:name="b"/>'),
        ('<text:change-start text:change-id="ct1"/>', '<text:change-end text:change-id="ct1"/>'),
        ('<text:toc-mark-start text:id="i"/>', '<text:toc-mark-end text:id="i"/>'),
        COMMENT,
    ],
)
def test_a_range_moves_with_its_words(start: str, end: str) -> None:
    source = 'The <g id="1">old</g> house'
    written = translated(f"The {start}old{end} house", source, 'Haus, <g id="1">alt</g>')
    assert written == f"Haus, {start}alt{end}"
    overlapping = f"{start}The <text:meta>old{end} house</text:meta>"
    kept = '<x id="0"/>The <g id="2">old<x id="4"/> house</g>'
    assert translated(overlapping, kept, kept.replace("The", "Das")) == overlapping.replace("The", "Das")


def test_a_footnote_is_translated_and_a_comment_stays() -> None:
    body = paragraph(f"One{NOTE}{COMMENT[0]} two")
    source = ['One<x id="1"/><x id="2"/> two', "A footnote."]
    assert texts(odf(content(body))) == source
    written = translated(f"One{NOTE}{COMMENT[0]} two", source[0], source[0].replace("One", "Eins"))
    assert written == f"Eins{NOTE}{COMMENT[0]} two"


def test_an_equation_is_a_word_of_its_sentence_and_a_picture_is_none() -> None:
    equation = '<draw:frame text:anchor-type="as-char"><draw:object xlink:href="./Object 1"/></draw:frame>'
    assert texts(odf(content(paragraph(f"Speed {equation}.")))) == ['Speed <x id="1" translate="no"/>.']
    picture = equation.replace("draw:object", "draw:image")
    assert texts(odf(content(paragraph(f"Speed {picture}.")))) == ['Speed <x id="1"/>.']


def test_the_base_of_furigana_is_translated_and_its_reading_is_left_out() -> None:
    ruby = "<text:ruby><text:ruby-base>\u65e5\u672c</text:ruby-base><text:ruby-text>\u306b</text:ruby-text></text:ruby>"
    assert translated(f"{ruby}\u3078", "\u65e5\u672c\u3078", "nach Japan") == "nach Japan"


def test_the_footer_of_slides_is_translated_without_elements() -> None:
    declared = '<presentation:footer-decl presentation:name="f">One</presentation:footer-decl>'
    file = read_file(odf(content(declared, "presentation")), FileFormat.ODP)
    with ZipFile(BytesIO(file.write(["Eins  &"]))) as archive:
        assert declared.replace("One", "Eins  &amp;") in archive.read("content.xml").decode()


def test_prompts_and_alternative_texts_stay() -> None:
    prompt = frame("<text:p>Click here</text:p>", ' presentation:placeholder="true"')
    pages = f'<style:master-page style:name="a">{prompt}{frame("<text:p>Shown</text:p>")}</style:master-page>'
    assert texts(odf(content(paragraph("<svg:desc>A picture</svg:desc>")), master_styles(pages))) == ["Shown"]


@pytest.mark.parametrize("kind", ["title", "outline", "notes", "footer"])
def test_a_prompt_of_a_master_page_is_text_on_a_slide(kind: str) -> None:
    """Only the footer of a master page is no prompt."""
    text = frame("<text:p>Click here</text:p>", f' presentation:class="{kind}"')
    pages = f'<style:master-page style:name="a">{text}</style:master-page>'
    assert texts(odf(content("", "presentation"), master_styles(pages))) == ["Click here"] * (
        kind == "footer"
    )
    assert texts(odf(content(text, "presentation"))) == ["Click here"]


@pytest.mark.seconds
@pytest.mark.parametrize(
    "seed",
    [span("a", "T1"), span("a", "T1") + "b", LINK + "a</text:a>", "<text:s/>", '<text:s text:c="9"/>', "<text:tab/>",
     '<text:bookmark-start text:name="a"/>', '<text:bookmark-end text:name="a"/>', COMMENT[0], PAGE, "a  ",
     "a<!--b-->", "<text:a/>"],
)  # fmt: skip
def test_a_long_paragraph_is_read_in_linear_time(seed: str) -> None:
    def read(size: int) -> None:
        texts(odf(content(paragraph("The house" + seed * (size // len(seed))))))

    check_near_linear(read, 100_000)


@pytest.mark.seconds
@pytest.mark.parametrize(
    "seed", [' fo:language="', " officeooo:rsid =", " fo:background-color='", " style:name="]
)
def test_long_styles_are_read_in_linear_time(seed: str) -> None:
    def read(size: int) -> None:
        properties = "a='" + seed.replace("'", "") * (size // len(seed)) + "'"
        texts(odf(content(paragraph(span("The house", "T1")), styles=style("T1", properties))))

    check_near_linear(read, 100_000)
