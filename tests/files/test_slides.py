"""Paragraphs of PowerPoint presentations are read and written as PowerPoint needs them."""

from __future__ import annotations

import re
from io import BytesIO
from zipfile import ZipFile

import pytest

from app.files import FileError, FileFormat
from app.files.reading import read_file
from tests.files.presentations import BOLD, END, LINKED, number, paragraph, pptx, run, slide
from tests.text.growth import check_near_linear

PLAIN = '<a:rPr lang="en-US"/>'
BREAK = '<a:br><a:rPr lang="en-US"/></a:br>'


def texts(data: bytes) -> list[str]:
    return [unit.text for unit in read_file(data, FileFormat.PPTX).units]


def translated(content: str, source: str, translation: str) -> str:
    """The content of a paragraph with its translation. source: the text of its unit, which is checked."""
    file = read_file(pptx(slide(f"<a:p>{content}</a:p>")), FileFormat.PPTX)
    assert [unit.text for unit in file.units] == [source]
    with ZipFile(BytesIO(file.write([translation]))) as archive:
        written = archive.read("ppt/slides/slide1.xml").decode()
    match = re.search(r"<a:p>(.*)</a:p>", written)
    assert match is not None
    return match[1]


@pytest.mark.parametrize(
    "other",
    [
        '<a:rPr lang="de-DE" altLang="en-US" kumimoji="1" dirty="0"/>',
        "<a:rPr lang='en-US' dirty='0' err='1'></a:rPr>",
        '<a:rPr noProof="1" smtClean="0" smtId="4" bmk="a" />',
        "",
    ],
)
def test_runs_that_look_the_same_are_one_text(other: str) -> None:
    """PowerPoint splits runs at spelling errors, and where the keyboard's language changes."""
    written = translated(run("A ti") + run("tle", other), "A title", "Ein Titel")
    assert written == run("Ein Titel", PLAIN)


def test_the_notes_of_the_spelling_check_are_left_out_and_the_language_stays() -> None:
    properties = (
        '<a:rPr lang="en-GB" sz="2400" dirty="0" err="1" smtClean="0"><a:latin typeface="Arial"/></a:rPr>'
    )
    kept = '<a:rPr lang="en-GB" sz="2400"><a:latin typeface="Arial"/></a:rPr>'
    assert translated(run("One", properties), "One", "Eins") == run("Eins", kept)


def test_properties_of_the_paragraph_and_of_its_end_stay_at_their_places() -> None:
    head = '<a:pPr marL="0" indent="0"><a:buNone/></a:pPr>'
    written = translated(f"\n{head}{run('One')}\n {END}\n", "One", "Eins")
    assert written == head + run("Eins", PLAIN) + END


def test_bold_words_move() -> None:
    written = translated(
        run("The ") + run("old", BOLD) + run(" house"),
        'The <g id="1">old</g> house',
        'Haus, <g id="1">alt</g>',
    )
    assert written == run("Haus, ", PLAIN) + run("alt", BOLD.replace(' dirty="0"', ""))


def test_a_link_moves_with_its_words_and_no_other_word_gets_it() -> None:
    """The link is the longer part of the paragraph."""
    link = LINKED.replace(' dirty="0"', "")
    written = translated(
        run("See ") + run("the long page ", LINKED) + run("of terms", LINKED) + run(" now"),
        'See <g id="1">the long page of terms</g> now',
        '<g id="1">die lange Seite</g> jetzt ansehen',
    )
    assert written == run("die lange Seite", link) + run(" jetzt ansehen", PLAIN)


def test_a_link_with_bold_words_is_one_link() -> None:
    strong = LINKED.replace("<a:rPr", '<a:rPr b="1"').replace(' dirty="0"', "")
    link = LINKED.replace(' dirty="0"', "")
    source = 'See <g id="1">the old <g id="3">page</g></g>'
    content = run("See ") + run("the old ", link) + run("page", strong)
    written = translated(content, source, 'Die <g id="1"><g id="3">Seite</g> von</g> ihm')
    assert written == run("Die ", PLAIN) + run("Seite", strong) + run(" von", link) + run(" ihm", PLAIN)


def test_two_links_stay_two_links() -> None:
    other = LINKED.replace("rId2", "rId3")
    content = run("one", LINKED) + run("two", other) + run(" and three")
    source = '<g id="0">one</g><g id="3">two</g> and three'
    written = translated(content, source, source.replace("one", "eins"))
    assert re.findall(r'r:id="(\w+)"/></a:rPr><a:t>(\w+)', written) == [("rId2", "eins"), ("rId3", "two")]


def test_a_link_with_a_break_and_a_field_is_one_link() -> None:
    link = LINKED.replace(' dirty="0"', "")
    content = run("See ", PLAIN) + run("one", link) + BREAK + number() + run("two", link)
    source = 'See <g id="1">one<br id="3"/><x id="4" translate="no"/>two</g>'
    assert translated(content, source, source.replace("one", "eins")) == content.replace("one", "eins")


def test_a_break_beside_a_link_is_outside_of_it() -> None:
    link = LINKED.replace(' dirty="0"', "")
    content = BREAK + run("one", link) + BREAK
    source = '<br id="0"/><g id="1">one</g><br id="4"/>'
    expected = BREAK + run("eins", link) + BREAK + "<a:r><a:t> da</a:t></a:r>"
    assert translated(content, source, source.replace("one", "eins") + " da") == expected
    other = run("one", link) + BREAK + run("two", PLAIN)
    assert translated(other, '<g id="0">one</g><br id="3"/>two', '<br id="3"/><g id="0">eins</g>') == (
        BREAK + run("eins", link)
    )


@pytest.mark.parametrize("between", [run(" "), BREAK, ""])
def test_a_word_between_two_links_gets_neither(between: str) -> None:
    link = LINKED.replace(' dirty="0"', "")
    content = run("one", link) + between + run("two", link.replace("rId2", "rId3"))
    source = read_file(pptx(slide(paragraph(content))), FileFormat.PPTX).units[0].text
    written = translated(content, source, source.replace("</g>", "</g> and ", 1))
    assert re.search(r"<a:r>(<a:rPr[^>]*/>)?<a:t> and *</a:t></a:r>", written)
    assert written.count("hlinkClick") == 2


def test_a_paragraph_that_is_one_link_has_no_marks() -> None:
    written = translated(run("the page", LINKED) + END, "the page", "die Seite")
    assert written == run("die Seite", LINKED.replace(' dirty="0"', "")) + END


@pytest.mark.parametrize("kind", ["slidenum", "datetime1", "datetimeFigureOut", "footer"])
def test_a_field_is_a_word_that_stays(kind: str) -> None:
    field = number(kind, "December 1")
    written = translated(
        run("Page ") + field + run(" of 9"), 'Page <x id="1" translate="no"/> of 9', 'Von 9 <x id="1"/>'
    )
    assert written == run("Von 9 ", PLAIN) + field


def test_a_paragraph_of_fields_has_no_text() -> None:
    assert texts(pptx(slide(paragraph(number("datetime1", "Monday")) + paragraph(run("One"))))) == ["One"]


def test_a_break_ends_a_sentence() -> None:
    written = translated(run("One") + BREAK + run("two"), 'One<br id="1"/>two', 'Eins<br id="1"/>zwei')
    assert written == run("Eins", PLAIN) + BREAK + run("zwei", PLAIN)


@pytest.mark.parametrize("control", ["\t", "_x000B_", "_x000D_", "_x0009_"])
def test_a_tab_and_a_control_character_end_a_sentence_and_stay(control: str) -> None:
    bold = BOLD.replace(' dirty="0"', "")
    content = run(f"Bread{control}two", bold) + run(f"{control}x", PLAIN)
    source = 'Bread<br id="1"/>two<br id="3"/><g id="4">x</g>'
    written = translated(content, source, source.replace("Bread", "Brot"))
    parts = [run("Brot", bold), run(control, bold), run("two", bold), run(control, PLAIN), run("x", PLAIN)]
    assert written == "".join(parts)


def test_a_line_end_in_the_xml_is_a_space() -> None:
    assert translated(run("One\r\n  two"), "One   two", "Eins") == run("Eins", PLAIN)


def test_an_equation_is_a_word_of_its_sentence() -> None:
    equation = (
        '<mc:AlternateContent><mc:Choice Requires="a14"><a14:m><m:oMath><m:r><m:t>v</m:t></m:r></m:oMath></a14:m>'
        "</mc:Choice><mc:Fallback><a:r><a:t>v squared</a:t></a:r></mc:Fallback></mc:AlternateContent>"
    )
    written = translated(
        run("Speed ") + equation + run("."), 'Speed <x id="1" translate="no"/>.', 'Tempo <x id="1"/>.'
    )
    assert written == run("Tempo ", PLAIN) + equation + run(".", PLAIN)


def test_the_line_to_write_on_stays() -> None:
    line = '<a:rPr lang="en-US" u="sng"/>'
    written = translated(run("Name: ") + run(" " * 12, line), 'Name: <x id="1"/>', 'Ihr Name: <x id="1"/>')
    assert written == run("Ihr Name: ", PLAIN) + run(" " * 12, line)


def test_references_are_decoded_and_special_characters_are_escaped() -> None:
    content = run("Salt &amp; &#60;pepper&gt;<![CDATA[ & oil]]><!-- a note -->")
    written = translated(content, "Salt & <pepper> & oil", "Salz & <Pfeffer>\nund")
    assert written == run("Salz &amp; &lt;Pfeffer&gt; und", PLAIN)


def test_an_unknown_element_of_a_run_stays() -> None:
    content = f"<a:r>{PLAIN}<a:t>One</a:t><a:x/><a:t> two</a:t></a:r>"
    written = translated(content, 'One<x id="1"/> two', 'Eins<x id="1"/> zwei')
    assert written == run("Eins", PLAIN) + f"<a:r>{PLAIN}<a:x/></a:r>" + run(" zwei", PLAIN)


def test_both_branches_of_a_shape_are_translated() -> None:
    """PowerPoint writes both if older versions cannot show the first one."""
    box = paragraph(run("One"))
    content = f"<mc:AlternateContent><mc:Choice>{box}</mc:Choice><mc:Fallback>{box}</mc:Fallback></mc:AlternateContent>"
    assert texts(pptx(slide(content))) == ["One", "One"]


def test_a_lost_mark_and_a_forbidden_character_are_errors() -> None:
    file = read_file(pptx(slide(paragraph(run("One ") + run("two", BOLD)))), FileFormat.PPTX)
    with pytest.raises(ValueError, match="lacks a tag"):
        file.write(["Eins zwei"])
    with pytest.raises(FileError, match=r"ppt/slides/slide1\.xml: .* character that XML cannot contain"):
        file.write([file.units[0].text + "\x0b"])


@pytest.mark.seconds
@pytest.mark.parametrize(
    "seed",
    [run("a"), run("a", BOLD) + run("b"), run("a", LINKED) + run("b"), BREAK, number(), run("a\tb"),
     run("  ", '<a:rPr u="sng"/>'), run("_x000"), "<a:x>a</a:x>"],
)  # fmt: skip
def test_a_long_paragraph_is_read_in_linear_time(seed: str) -> None:
    def read(size: int) -> None:
        content = seed * (size // len(seed))
        read_file(pptx(slide(f"<a:p>{run('The house')}{content}</a:p>")), FileFormat.PPTX)

    check_near_linear(read, 100_000)


@pytest.mark.seconds
@pytest.mark.parametrize(
    ("start", "seed", "end"),
    [
        ("<a:rPr a='", ' dirty="', "'/>"),
        ('<a:rPr a="', " u='", '"/>'),
        ('<a:rPr a="', " dirty =", '"/>'),
        ("<a:rPr>", "<a:highlight/>", "</a:rPr>"),
        ("<a:rPr>", "<a:hlinkClick/>", "</a:rPr>"),
    ],
)
def test_long_properties_of_a_run_are_read_in_linear_time(start: str, seed: str, end: str) -> None:
    def read(size: int) -> None:
        properties = start + seed * (size // len(seed)) + end
        read_file(pptx(slide(paragraph(run("The house", properties)))), FileFormat.PPTX)

    check_near_linear(read, 100_000)
