"""Fields, tracked changes, bookmarks and blanks of a Word paragraph are in its translation as Word needs them."""

from __future__ import annotations

import re
from io import BytesIO
from zipfile import ZipFile

import pytest

from app.files import FileFormat
from app.files.reading import read_file
from tests.files.samples import BOLD, docx
from tests.files.test_limits import WORD
from tests.text.growth import check_near_linear

UNDERLINED = '<w:rPr><w:u w:val="single"/></w:rPr>'
CODE = "<w:instrText>PAGE</w:instrText>"


def run(inner: str, properties: str = "") -> str:
    return f"<w:r>{properties}{inner}</w:r>"


def text(words: str, properties: str = "") -> str:
    return run(f'<w:t xml:space="preserve">{words}</w:t>', properties)


def character(kind: str) -> str:
    return f'<w:fldChar w:fldCharType="{kind}"/>'


BEGIN, SEPARATE, END = map(character, ("begin", "separate", "end"))
FIELD = run(BEGIN) + run(CODE) + run(SEPARATE)
LINK = '<w:hyperlink w:anchor="a">'
START, STOP = '<w:bookmarkStart w:id="7" w:name="b"/>', '<w:bookmarkEnd w:id="7"/>'
INNER = '<w:bookmarkStart w:id="8" w:name="c"/>'


def translated(paragraph: str, source: str, translation: str) -> str:
    """The paragraph's XML with the translation. source: the text of its unit, which is checked."""
    file = read_file(docx(WORD.format(f"<w:p>{paragraph}</w:p>")), FileFormat.DOCX)
    assert file.units[0].text == source
    with ZipFile(BytesIO(file.write([translation, *[unit.text for unit in file.units[1:]]]))) as archive:
        written = archive.read("word/document.xml").decode()
    match = re.search(r"<w:p>(.*)</w:p>", written)
    assert match is not None
    return match[1]


def test_both_branches_of_a_text_box_get_the_same_translation() -> None:
    """Word writes a text box twice: for itself, and for versions of Word that do not know its shape."""
    box = f"<w:txbxContent><w:p>{text('Mind the door')}</w:p></w:txbxContent>"
    choice = f'<mc:Choice Requires="wps"><w:drawing><wps:txbx>{box}</wps:txbx></w:drawing></mc:Choice>'
    fallback = f"<mc:Fallback><w:pict><v:textbox>{box}</v:textbox></w:pict></mc:Fallback>"
    branches = run(f"<mc:AlternateContent>{choice}{fallback}</mc:AlternateContent>")
    file = read_file(docx(WORD.format(f"<w:p>{text('Beside it')}{branches}</w:p>")), FileFormat.DOCX)
    inside = [unit for unit in file.units if unit.text == "Mind the door"]
    assert len(inside) == 2
    assert inside[0] == inside[1]
    translations = [unit.text.replace("Mind the door", "Vorsicht") for unit in file.units]
    with ZipFile(BytesIO(file.write(translations))) as archive:
        written = archive.read("word/document.xml").decode()
    assert written.count(f"<w:p>{text('Vorsicht')}</w:p>") == 2
    assert "Mind the door" not in written


def test_a_run_with_a_field_and_text_is_divided() -> None:
    """The library docx of npm writes a page number and its text into one run."""
    words = '<w:t xml:space="preserve">{}</w:t>'
    inner = words.format("Page ") + BEGIN + CODE + SEPARATE + END + words.format(" of it")
    expected = "".join(run(part, BOLD) for part in (BEGIN, CODE, SEPARATE, END))
    written = translated(run(inner, BOLD), 'Page <g id="1"></g> of it', 'Seite <g id="1"></g> davon')
    assert written == text("Seite ", BOLD) + expected + text(" davon", BOLD)


def test_text_before_and_after_a_field_in_its_runs_is_translated() -> None:
    field = (
        run("<w:t>On</w:t>" + BEGIN)
        + run(CODE)
        + run(SEPARATE + "<w:t>one</w:t>")
        + run(END + "<w:t>it</w:t>")
    )
    written = translated(field, 'On<g id="1">one</g>it', 'Auf<g id="1">eins</g>es')
    assert written == text("Auf") + FIELD + text("eins") + run(END) + text("es")


def test_a_field_in_two_tracked_changes_stays_tracked() -> None:
    def tracked(inner: str) -> str:
        return f'<w:ins w:id="1" w:author="A">{inner}</w:ins>'

    field = tracked(run(BEGIN) + run(CODE)) + "<w:r/>" + tracked(run(SEPARATE) + text("page") + run(END))
    source = 'See <g id="1"><g id="2">page</g></g> now'
    written = translated(text("See ") + field + text(" now"), source, source.replace("page", "Seite"))
    parts = [
        tracked(run(BEGIN)),
        tracked(run(CODE)),
        "<w:r/>",
        tracked(run(SEPARATE)),
        tracked(text("Seite")),
    ]
    assert written == "".join([text("See "), *parts, tracked(run(END)), text(" now")])


def test_a_tracked_change_with_the_end_of_one_field_and_the_start_of_the_next_is_divided() -> None:
    def tracked(inner: str) -> str:
        return f'<w:ins w:id="1">{inner}</w:ins>'

    change = tracked(run(END) + text("and") + run(BEGIN))
    paragraph = FIELD + text("one") + change + run(CODE) + run(SEPARATE) + text("two") + run(END)
    source = '<g id="0">one</g><g id="3">and</g><g id="6">two</g>'
    assert translated(paragraph, source, source.replace("and", "und"))


def test_a_field_inside_a_tracked_change_is_not_divided() -> None:
    tracked = f'<w:ins w:id="1">{FIELD}{text("page")}{run(END)}</w:ins>'
    written = translated(tracked, '<g id="0"><g id="1">page</g></g>', '<g id="0"><g id="1">Seite</g></g>')
    assert written == tracked.replace("page", "Seite")


@pytest.mark.parametrize(("start", "end"), [(START, STOP), (FIELD, run(END))], ids=["bookmark", "field"])
@pytest.mark.parametrize(
    ("paragraph", "source", "translation", "expected"),
    [
        ("a ( b ) c", 'a<g id="1">b</g>c', 'c<g id="1">b</g>a', "c ( b ) a"),
        ("( a [ b ] )", '<g id="0">a<g id="2">b</g></g>', '<g id="0"><g id="2">b</g>a</g>', "( [ b ] a )"),
        ("[ ( a ] b )", '<g id="0"><x id="1"/>a</g>b<x id="5"/>',
         'b<x id="5"/><g id="0">a<x id="1"/></g>', "b ( [ a ) ]"),
        ("( a [ b ) ]", '<x id="0"/>a<g id="2">b<x id="4"/></g>',
         '<g id="2"><x id="4"/>b</g>a<x id="0"/>', "[ ( b ] a )"),
    ],
)  # fmt: skip
def test_a_start_stays_before_its_end(
    start: str, end: str, paragraph: str, source: str, translation: str, expected: str
) -> None:
    """Parentheses are the pair, and brackets a link. If they do not nest, the pair is two points, which may swap."""
    xml = {"(": start, ")": end, "[": LINK, "]": "</w:hyperlink>"} | {word: text(word) for word in "abc"}
    written = translated("".join(map(xml.__getitem__, paragraph.split())), source, translation)
    assert written == "".join(map(xml.__getitem__, expected.split()))


def test_of_two_ranges_that_overlap_one_is_a_pair() -> None:
    """A comment may have the id of a bookmark."""
    begin, end = '<w:commentRangeStart w:id="7"/>', '<w:commentRangeEnd w:id="7"/>'
    paragraph = begin + text("one") + START + text("two") + end + text("three") + STOP
    source = '<x id="0"/>one<g id="2">two<x id="4"/>three</g>'
    written = translated(paragraph, source, '<g id="2">three<x id="4"/>two</g><x id="0"/>one')
    assert written == START + text("three") + begin + text("two") + STOP + end + text("one")


def test_a_bookmark_after_the_end_of_a_field_of_another_paragraph_is_a_pair() -> None:
    paragraph = run(END) + START + text("one") + STOP + FIELD + text("two")
    source = '<x id="0"/><g id="1">one</g><x id="4"/>two'
    assert translated(paragraph, source, source.replace("two", "zwei")) == paragraph.replace("two", "zwei")


def test_a_bookmark_that_ends_in_another_paragraph_is_a_point() -> None:
    paragraph = START + INNER + text("one") + STOP
    assert translated(paragraph, '<g id="0"><x id="1"/>one</g>', '<g id="0">eins<x id="1"/></g>') == (
        START + text("eins") + INNER + STOP
    )


def test_the_range_of_a_comment_encloses_its_words() -> None:
    start, end = '<w:commentRangeStart w:id="7"/>', '<w:commentRangeEnd w:id="7"/>'
    written = translated(
        start + text("one") + end + text("two"), '<g id="0">one</g>two', 'zwei<g id="0">eins</g>'
    )
    assert written == text("zwei") + start + text("eins") + end


def test_attributes_may_be_in_single_quotes() -> None:
    paragraph = START + text("one") + STOP + FIELD + text("two") + run(END) + INNER
    source = '<g id="0">one</g><g id="3">two</g><x id="6"/>'
    quoted = paragraph.replace('"', "'").replace("xml:space='preserve'", 'xml:space="preserve"')
    assert translated(quoted, source, source.replace("one", "eins")) == quoted.replace("one", "eins")


@pytest.mark.parametrize("name", ['u w:val="single"', "strike", 'highlight w:val="red"', 'shd w:fill="F00"'])
def test_a_blank_keeps_what_shows_on_it(name: str) -> None:
    blank = text(" " * 12, f"<w:rPr><w:{name}/></w:rPr>")
    written = translated(
        text("Name: ") + blank + text(" now"), 'Name: <x id="1"/> now', 'Ihr Name: <x id="1"/> so'
    )
    assert written == text("Ihr Name: ") + blank + text(" so")


@pytest.mark.parametrize(
    ("before", "blank", "after", "source"),
    [
        (text("Name:"), text("    ", UNDERLINED), text("now"), 'Name: <x id="1"/>now'),
        (text("Name:"), text("    ", UNDERLINED), text(" now"), 'Name:<x id="1"/> now'),
        (text("Name:"), text(" ", UNDERLINED), text("now"), "Name: now"),
        (text("Name:"), text("  ", BOLD), text("now"), "Name:  now"),
        (text("Name:", UNDERLINED), text("  ", UNDERLINED.replace("<w:u", "<w:b/><w:u")), "", "Name:  "),
        (text("Name:", UNDERLINED), text("  "), text("now", UNDERLINED), 'Name: <x id="1"/>now'),
    ],
)
def test_only_two_or_more_spaces_with_another_visible_style_are_a_point(
    before: str, blank: str, after: str, source: str
) -> None:
    assert translated(before + blank + after, source, source)


def control(inner: str) -> str:
    return f'<w:sdt><w:sdtPr><w:tag w:val="t"/></w:sdtPr><w:sdtContent>{inner}</w:sdtContent></w:sdt>'


BLANKS = [text("     "), text("\u2002" * 5), text(" "), text("\u2002") + text("\u2002", BOLD)]


@pytest.mark.parametrize("blanks", BLANKS)
@pytest.mark.parametrize("kind", ["field", "field in a bookmark", "control", "field in a control"])
def test_a_blank_to_fill_in_is_kept_with_its_markup(kind: str, blanks: str) -> None:
    blank = control(blanks) if kind == "control" else FIELD + blanks + run(END)
    blank = control(blank) if kind == "field in a control" else blank
    blank = START + blank + STOP if kind == "field in a bookmark" else blank
    mark = '<x id="1"/>' if "in" not in kind.split() else '<g id="1"><x id="2"/></g>'
    written = translated(
        text("It is ") + blank + text(" a month."), f"It is {mark} a month.", f"{mark} im Monat."
    )
    assert written == blank + text(" im Monat.")


def test_a_blank_to_fill_in_between_words_gets_a_space() -> None:
    written = translated(
        text("Name:") + control(text("    ")) + text("now"), 'Name: <x id="1"/>now', 'Jetzt <x id="1"/>Name'
    )
    assert written == text("Jetzt ") + control(text("    ")) + text("Name")


def test_other_blanks_in_elements_are_text() -> None:
    paragraph = (
        text("one") + f'<w:ins w:id="1">{text("  ")}</w:ins>' + control(text("two")) + LINK + text(" ")
    )
    paragraph += "</w:hyperlink>"
    source = 'one<g id="1">  </g><g id="4">two</g><g id="7"> </g>'
    assert translated(paragraph, source, source.replace("one", "eins")) == paragraph.replace("one", "eins")


HYPERLINK = '<w:rPr><w:rStyle w:val="Hyperlink"/></w:rPr>'


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (LINK, "</w:hyperlink>"),
        ('<w:fldSimple w:instr="REF a">', "</w:fldSimple>"),
        (FIELD, run(END)),
        (f"<w:ins>{FIELD}", f"{run(END)}</w:ins>"),
    ],
)
def test_text_outside_a_link_does_not_get_the_style_of_the_link(start: str, end: str) -> None:
    paragraph = text("See ") + start + text("the long page of terms", HYPERLINK) + end + text(" now")
    file = read_file(docx(WORD.format(f"<w:p>{paragraph}</w:p>")), FileFormat.DOCX)
    source = file.units[0].text
    assert source.startswith("See <g ")
    assert source.endswith("</g> now")
    written = translated(paragraph, source, source.replace(" now", " jetzt").replace("See", "Siehe"))
    assert written == paragraph.replace(" now", " jetzt").replace("See", "Siehe")


LINK_BOLD = HYPERLINK.replace("</w:rPr>", "<w:b/></w:rPr>")


@pytest.mark.parametrize(
    ("start", "end"),
    [(LINK, "</w:hyperlink>"), (FIELD, run(END)), (f"{LINK}<w:ins>", "</w:ins></w:hyperlink>")],
)
def test_words_that_the_translation_adds_in_a_link_have_its_commonest_style(start: str, end: str) -> None:
    link = text("Read about ", HYPERLINK) + text("the book", LINK_BOLD) + text(" ") + text("of ", HYPERLINK)
    paragraph = start + link + text("it") + end + text(" before you bake bread with your friends.")
    source = read_file(docx(WORD.format(f"<w:p>{paragraph}</w:p>")), FileFormat.DOCX).units[0].text
    written = translated(paragraph, source, source.replace("about ", "about it in "))
    expected = paragraph.replace(text(" ") + text("of ", HYPERLINK), text(" of ", HYPERLINK))
    assert written == expected.replace("about ", "about it in ")


def test_a_link_of_other_links_has_the_style_around_it() -> None:
    """The entry of a table of contents is such a link or field."""
    entry = FIELD + LINK + text("the book", HYPERLINK) + "</w:hyperlink>" + run(END)
    source = 'See <g id="1"><g id="2"><g id="3">the book</g></g></g> now'
    written = translated(
        text("See ") + entry + text(" now"), source, source.replace('<g id="1">', '<g id="1">in ')
    )
    assert written == text("See ") + FIELD + text("in ") + entry.removeprefix(FIELD) + text(" now")


def test_text_after_the_end_of_a_field_of_another_paragraph_does_not_get_the_style_of_a_link() -> None:
    paragraph = run(END) + text("See ") + LINK + text("the long page of terms", HYPERLINK) + "</w:hyperlink>"
    source = '<x id="0"/>See <g id="2"><g id="3">the long page of terms</g></g>'
    written = translated(paragraph, source, source.replace("See", "Siehe"))
    assert written == paragraph.replace("See", "Siehe")


def test_white_space_in_the_code_of_a_field_is_kept() -> None:
    paragraph = run(BEGIN) + run(f"  {CODE} ") + run(SEPARATE) + text("page") + run(END)
    source = '<g id="0">page</g>'
    written = translated(paragraph, source, source.replace("page", "Seite"))
    assert written == paragraph.replace("page", "Seite")


def test_a_field_in_the_code_of_a_field_is_part_of_the_code() -> None:
    paragraph = (
        run(BEGIN) + run(CODE) + FIELD + text("1") + run(END) + run(SEPARATE) + text("page") + run(END)
    )
    source = '<g id="0">page</g>'
    written = translated(paragraph, source, source.replace("page", "Seite"))
    assert written == paragraph.replace("page", "Seite")


def test_a_control_with_an_element_after_its_content_is_kept_whole() -> None:
    whole = f"<w:sdt><w:sdtContent>{text('one')}</w:sdtContent><w:sdtEndPr/></w:sdt>"
    assert translated(text("See ") + whole, 'See <x id="1"/>', 'Siehe <x id="1"/>') == text("Siehe ") + whole


def test_an_equation_is_a_word_of_its_sentence() -> None:
    equation = "<m:oMath><m:r><m:t>v</m:t></m:r></m:oMath>"
    source, translation = (f'{word} <x id="1" translate="no"/>.' for word in ("Speed", "Tempo"))
    assert translated(text("Speed ") + equation + text("."), source, translation) == (
        text("Tempo ") + equation + text(".")
    )


def test_a_paragraph_that_is_one_link_keeps_the_style_of_the_link() -> None:
    paragraph = LINK + text("the page", HYPERLINK) + "</w:hyperlink>" + text(" ")
    assert translated(paragraph, '<g id="0">the page</g> ', '<g id="0">die Seite</g>') == (
        LINK + text("die Seite", HYPERLINK) + "</w:hyperlink>"
    )


def test_the_base_of_furigana_is_translated_and_its_reading_is_left_out() -> None:
    reading, base = text("\u306b\u307b\u3093"), text("\u65e5\u672c")
    ruby = f"<w:ruby><w:rubyPr/><w:rt>{reading}</w:rt><w:rubyBase>{base}</w:rubyBase></w:ruby>"
    paragraph = text("\u5c71", BOLD) + run(ruby) + text("\u3078\u884c\u304f")
    source = '<g id="0">\u5c71</g>\u65e5\u672c\u3078\u884c\u304f'
    written = translated(paragraph, source, '<g id="0">Berg</g> nach Japan')
    assert written == text("Berg", BOLD) + text(" nach Japan")


INDENTED = "<w:t>\n  The house\t is\n  old \n</w:t>"


@pytest.mark.parametrize(
    ("inner", "words"),
    [
        ("<w:t> The house </w:t>", "The house"),
        (INDENTED, "The house\t is   old"),
        ("<w:t>One</w:t><w:t> </w:t><w:t>house</w:t>", "Onehouse"),
        ("<w:t>\u00a0One\u2002</w:t>", "\u00a0One\u2002"),
        ('<w:t xml:space="preserve"> The house </w:t>', " The house "),
        ("<w:t xml:space = 'preserve'> The house </w:t>", " The house "),
        ('<w:t xml:space="default"> The house </w:t>', "The house"),
    ],
)
def test_white_space_at_the_ends_of_text_counts_only_if_it_is_preserved(inner: str, words: str) -> None:
    assert "Haus" in translated(run(inner), words, "Haus")


def test_a_document_may_preserve_all_white_space() -> None:
    root = WORD.replace("<w:document ", '<w:document xml:space="preserve" ')
    file = read_file(
        docx(root.format(f"<w:p>{run('<w:t>The </w:t>')}{run('<w:t>house</w:t>')}</w:p>")), FileFormat.DOCX
    )
    assert file.units[0].text == "The house"


@pytest.mark.parametrize(
    ("inner", "words"),
    [
        ("<![CDATA[Salt & <pepper>]]>", "Salt & <pepper>"),
        ("Salt &amp;amp; <![CDATA[&amp;]]><!-- note --><?x note?> pepper", "Salt &amp; &amp; pepper"),
    ],
)
def test_references_and_cdata_are_decoded_and_comments_are_left_out(inner: str, words: str) -> None:
    assert "no" in translated(run(f"<w:t>{inner}</w:t>"), words, "no")


@pytest.mark.seconds
@pytest.mark.parametrize(
    "seed",
    [START, STOP, run(BEGIN), run(END), run(SEPARATE), BEGIN, END, f"<w:t>a</w:t>{BEGIN}", text("  ", UNDERLINED),
     f"<w:ins>{run(BEGIN)}</w:ins>", START + run(END), LINK + START + "</w:hyperlink>", "<w:t>a<!--b--></w:t>"],
)  # fmt: skip
def test_a_long_run_of_marks_is_read_in_linear_time(seed: str) -> None:
    """The seed is repeated. A seed that is part of a run is repeated inside one long run."""

    def read(size: int) -> None:
        seeds = seed * (size // len(seed))
        inner = seeds if seed.startswith(("<w:r>", "<w:ins>", "<w:hyper", "<w:book")) else run(seeds)
        read_file(docx(WORD.format(f"<w:p>{text('The house')}{inner}</w:p>")), FileFormat.DOCX)

    check_near_linear(read, 100_000)
