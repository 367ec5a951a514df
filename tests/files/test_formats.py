"""In every format, unchanged texts give the same file, and translations change only the texts."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from io import BytesIO
from zipfile import ZipFile

import polib
import pytest
from markdown_it import MarkdownIt

from app.files import SUFFIXES, FileError, FileFormat, FileLimits, UnitFormat, format_of
from app.files.reading import read_file
from app.files.tagged_text import Mark, MarkKind, Piece, TaggedText
from tests.files.sample_texts import TEXTS_OF
from tests.files.samples import BOLD, DOCUMENT, JSON, MARKDOWN, PO, SAMPLES, SRT, docx

UNCHANGED = re.compile(r"(<[^<>]*>|&#?\w+;|\{+[^{}]*\}+|%\(\w+\)\w|%\w)")


def with_swapped_case(text: str) -> str:
    """Another text with the same tags and placeholders."""
    parts = UNCHANGED.split(text)
    return "".join(part if place % 2 else part.swapcase() for place, part in enumerate(parts))


def changed(data: bytes, file_format: FileFormat) -> bytes:
    file = read_file(data, file_format)
    return file.write([with_swapped_case(unit.text) for unit in file.units])


# Archives, whose unchanged entries stay as they are. The runs of a paragraph are joined.
OFFICE = {FileFormat.DOCX, FileFormat.PPTX, FileFormat.ODT, FileFormat.ODP}


@pytest.mark.parametrize("file_format", FileFormat)
def test_the_units_of_each_format(file_format: FileFormat) -> None:
    assert [unit.text for unit in read_file(SAMPLES[file_format], file_format).units] == TEXTS_OF[file_format]


@pytest.mark.parametrize("file_format", FileFormat)
def test_unchanged_texts_give_the_same_file(file_format: FileFormat) -> None:
    data = SAMPLES[file_format]
    file = read_file(data, file_format)
    assert len(file.units) >= 2
    assert file.write([unit.text for unit in file.units]) == data


@pytest.mark.parametrize("file_format", sorted(set(FileFormat) - {FileFormat.PO, FileFormat.XLIFF}))
def test_translations_replace_the_texts(file_format: FileFormat) -> None:
    """The output has the translations as its texts. Translated back, it is the original file, except in OFFICE.

    PO and XLIFF are left out, because a message with a translation is no text to translate.
    """
    data = SAMPLES[file_format]
    file = read_file(data, file_format)
    out = changed(data, file_format)
    assert [unit.text for unit in read_file(out, file_format).units] == [
        with_swapped_case(unit.text) for unit in file.units
    ]
    assert out != data
    if file_format not in OFFICE:
        assert changed(out, file_format) == data


@pytest.mark.parametrize("file_format", FileFormat)
@pytest.mark.parametrize("index", [0, 1, -1])
def test_one_translation_changes_only_its_text(file_format: FileFormat, index: int) -> None:
    data = SAMPLES[file_format]
    file = read_file(data, file_format)
    texts = [unit.text for unit in file.units]
    texts[index] = with_swapped_case(texts[index])
    out = file.write(texts)
    if file_format in OFFICE:
        before, after = ZipFile(BytesIO(data)), ZipFile(BytesIO(out))
        same = [info.filename for info in before.infolist() if after.read(info.filename) == before.read(info)]
        assert len(same) == len(before.infolist()) - 1
        assert [info.filename for info in after.infolist()] == [info.filename for info in before.infolist()]
        picture = next(info for info in after.infolist() if info.filename.endswith(".png"))
        assert picture.date_time == (2001, 2, 3, 4, 5, 6)
        return
    lines, others = data.splitlines(), out.splitlines()
    blocks = [each for each in SequenceMatcher(None, lines, others).get_opcodes() if each[0] != "equal"]
    assert len(blocks) == 1
    _, start, end, _, _ = blocks[0]
    assert end - start <= 4


@pytest.mark.parametrize("file_format", FileFormat)
def test_a_wrong_number_of_translations_and_lost_marks_are_errors(file_format: FileFormat) -> None:
    file = read_file(SAMPLES[file_format], file_format)
    with pytest.raises(ValueError, match="translations for"):
        file.write(["x"])
    for place, unit in enumerate(file.units):
        if unit.format is UnitFormat.XML:
            texts = [each.text for each in file.units]
            texts[place] = "no tags"
            with pytest.raises(ValueError, match="lacks a tag"):
                file.write(texts)


@pytest.mark.parametrize("character", ["\x0b", "\ud800"])
@pytest.mark.parametrize("place", [0, 1], ids=["without marks", "with marks"])
def test_a_character_that_xml_cannot_have_is_an_error_in_a_document(place: int, character: str) -> None:
    file = read_file(docx(), FileFormat.DOCX)
    texts = [unit.text for unit in file.units]
    texts[place] += character
    with pytest.raises(FileError, match=r"word/document\.xml: .* character that XML cannot contain"):
        file.write(texts)


@pytest.mark.parametrize(
    "translation",
    ['<x id="2"/>a<x id="0"/>', '<g id="2">a</g>', '<g id="0">a', '</g>a<g id="0">', '<g id="0">a</g></g>'],
)
def test_an_element_of_another_kind_is_an_error(translation: str) -> None:
    pieces: list[Piece[str]] = [Mark(MarkKind.OPEN, "*"), "a", Mark(MarkKind.CLOSE, "*")]
    tagged = TaggedText.of(pieces)
    assert tagged.unit(is_wrapped=False).text == '<g id="0">a</g>'
    with pytest.raises(ValueError, match="a tag"):
        tagged.read(translation)


def test_a_suffix_in_any_case_names_its_format() -> None:
    assert {format_of(f"a.b{suffix}") for suffix in SUFFIXES} == set(FileFormat)
    assert format_of("A.DOCX") is FileFormat.DOCX
    assert format_of("a.exe") is None


@pytest.mark.parametrize(
    ("file_format", "data", "message"),
    [
        ("txt", b"one\ntw\xff", "line 2 is not UTF-8 (byte 7 of the file)"),
        ("txt", b"\xef\xbb\xbfone\ntw\xff", "line 2 is not UTF-8 (byte 10 of the file)"),
        ("txt", "\ufeff\u0a05\n\u0a05".encode("utf-16-le") + b"\0\xd8", "line 2 is not UTF-16-LE (byte 9 of the file)"),
        ("txt", "\ufeffone".encode("utf-32-le"), "the file is UTF-32"),
        ("txt", "\ufeffone".encode("utf-32-be"), "the file is UTF-32"),
        ("json", b'{"a": 1,\n "b": }', "line 2, column 7"),
        ("json", b"[" * 100_000, "nested too deeply"),
        ("srt", b"1\n00:00:01,000 --> 00:00:02,000\nyes\n\n2\nno times\n", "line 6: expected the times of a cue"),
        ("srt", b"1\n", "line 2: expected the times of a cue"),
        ("vtt", b"00:01.000 --> 00:02.000\nyes\n", "line 1: a WebVTT file must begin with WEBVTT"),
        ("vtt", b"WEBVTT\n\n00:01 --> 00:02.000\nyes\n", "line 3: expected the times of a cue"),
        ("po", b'msgid "a"\nmsgstr "b\n', "line 2: expected a keyword and a string"),
        ("po", b'msgid "a"\n\nmsgid "b"\nmsgstr ""\n', "line 1: a msgid without its msgstr"),
        ("po", b'\r\r\n\nmsgid "a"\r', "line 4: a msgid without its msgstr"),
        ("po", b'msgstr "a"\n', "line 1: a msgstr without its msgid"),
        ("po", b'"a"\n', "line 1: a string without a keyword"),
        ("po", b'msgid ""\nmsgstr "Content-Type: text/plain; charset=moon\\n"\n', "an encoding that is not supported"),
        ("html", b"<meta charset=base64><p>a", "an encoding that"),
        ("docx", b"PK no", "the file is damaged"),
        ("docx", docx("<a><b></a>"), "word/document.xml, line 1: malformed XML"),
        ("docx", docx("<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>"), "document type"),
        ("docx", docx("<a>" * 600 + "</a>" * 600), "nested more than 500 deep"),
    ],
)  # fmt: skip
def test_a_malformed_file_is_an_error_with_its_place(file_format: str, data: bytes, message: str) -> None:
    with pytest.raises(FileError) as raised:
        read_file(data, FileFormat(file_format))
    assert message in str(raised.value)


def test_a_zip_bomb_is_not_unpacked() -> None:
    limits = FileLimits(max_unpacked_bytes=1_000_000)
    bomb = docx(word__bomb=b"\0" * 5_000_000)
    assert len(bomb) < 20_000
    with pytest.raises(FileError, match="limit of 1000000 unpacked bytes"):
        read_file(bomb, FileFormat.DOCX, limits)


def test_an_archive_with_too_many_entries_is_an_error() -> None:
    parts = {f"part{number}": b"" for number in range(30)}
    many = docx(DOCUMENT, **parts)
    with pytest.raises(FileError, match="entries and exceeds the limit of 20"):
        read_file(many, FileFormat.DOCX, FileLimits(max_parts=20))


def test_a_zip_bomb_with_a_false_size_is_not_unpacked() -> None:
    bomb = bytearray(docx(word__bomb=b"\0" * 5_000_000))
    true_size, false_size = (5_000_000).to_bytes(4, "little"), (50).to_bytes(4, "little")
    assert bomb.count(true_size) == 2
    with pytest.raises(FileError, match="the file is damaged"):
        read_file(
            bytes(bomb).replace(true_size, false_size),
            FileFormat.DOCX,
            FileLimits(max_unpacked_bytes=1_000_000),
        )


def test_polib_reads_the_same_catalogue() -> None:
    before, after = polib.pofile(PO.decode()), polib.pofile(changed(PO, FileFormat.PO).decode())
    assert [entry.msgid for entry in after] == [entry.msgid for entry in before]
    for one, other in zip(before, after, strict=True):
        assert (one.comment, one.flags, one.msgctxt, one.occurrences, one.previous_msgid, one.obsolete) == (
            other.comment, other.flags, other.msgctxt, other.occurrences, other.previous_msgid, other.obsolete,
        )  # fmt: skip
        if one.obsolete or one.msgstr or not any(map(str.isalpha, one.msgid)):
            assert other.msgstr == one.msgstr
        elif one.msgid_plural:
            forms = [with_swapped_case(one.msgid), *[with_swapped_case(one.msgid_plural)] * 2]
            assert other.msgstr_plural == dict(enumerate(forms))
        else:
            assert other.msgstr == with_swapped_case(one.msgid)
    assert after.metadata == before.metadata


def test_of_several_plural_forms_all_are_written_or_none() -> None:
    entry = b'msgid "One %s"\nmsgid_plural "Some %s"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    for content in (entry, entry.replace(b"Some %s", b"%d pages")):
        file = read_file(content, FileFormat.PO)
        texts = [unit.text for unit in file.units]
        assert file.write(texts) == content
        written = file.write(["Un %s", texts[1]]).decode()
        assert f'msgstr[0] "Un %s"\nmsgstr[1] "{texts[1]}"\n' in written


def test_a_single_plural_form_uses_the_plural() -> None:
    file = read_file(b'msgid "a file"\nmsgid_plural "%d files"\nmsgstr[0] ""\n', FileFormat.PO)
    assert [unit.text for unit in file.units] == ["%d files"]


def test_markdown_renders_to_the_same_structure() -> None:
    """The parser renders original and output. Both have the same elements and differ only in text."""
    renderer = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    before = renderer.render(MARKDOWN.decode())
    after = renderer.render(changed(MARKDOWN, FileFormat.MARKDOWN).decode())
    assert re.findall(r"<[^>]*>", after) == re.findall(r"<[^>]*>", before)
    assert after.casefold() == before.casefold()


@pytest.mark.parametrize(
    ("text", "translation", "expected"),
    [
        ("Not so", "1. so", "1\\. so"),
        ("Not so", "# so", "\\# so"),
        ("Not so", "- so", "\\- so"),
        ("Not so\nnor so", "Nicht\n1. so\n- so", "Nicht\n1\\. so\n\\- so"),
        ("Not  \nso", 'Nicht<br id="1"/># so', "Nicht  \n\\# so"),
        ("Not  \nso", 'Nicht<br id="1"/>[a]: so', "Nicht  \n[a]: so"),
        ("Not so\n===", "1. so", "1\\. so\n==="),
        ("# one", "1. so", "# 1. so"),
        ("1\\. so", None, "1\\. so"),
        ("> a\n> b", "x\ny\nz", "> x\n> y\n> z"),
        ("# one", "a\nb", "# a b"),
        ("|a|b|\n|-|-|\n|one|two|", None, "|a|b|\n|-|-|\n|one|two|"),
    ],
)
def test_a_translation_does_not_start_another_block(
    text: str, translation: str | None, expected: str
) -> None:
    file = read_file(text.encode(), FileFormat.MARKDOWN)
    given_texts = [unit.text if translation is None else translation for unit in file.units]
    assert file.write(given_texts).decode() == expected


@pytest.mark.parametrize("text", ["One\\\ntwo\n", "One\\\n  two\n", "> One\\\n>  two\n"])
def test_a_backslash_at_the_end_of_a_line_is_a_line_break(text: str) -> None:
    file = read_file(text.encode(), FileFormat.MARKDOWN)
    assert [unit.text for unit in file.units] == ['One<br id="1"/>two']
    assert file.write(['Eins<br id="1"/>zwei']).decode() == text.replace("One", "Eins").replace("two", "zwei")


def test_a_pipe_does_not_end_its_cell() -> None:
    file = read_file(b"| a | b |\n|---|---|\n| one | two |\n", FileFormat.MARKDOWN)
    assert file.write(["a", "b", "o|ne", "two"]) == b"| a | b |\n|---|---|\n| o\\|ne | two |\n"
    file = read_file(b"| a \\| c | b |\n|---|---|\n| one | two |\n", FileFormat.MARKDOWN)
    assert [unit.text for unit in file.units] == ["a | c", "b", "one", "two"]


@pytest.mark.parametrize(
    ("translation", "expected"),
    [
        ('Das <g id="1"> gute </g>Wort.', "Das  **gute** Wort."),
        ('Gut<g id="1"></g> so', "Gut so"),
        ('Gut<g id="1"> </g>so', "Gut so"),
        ('<g id="1">Gut</g> so', "**Gut** so"),
    ],
)
def test_emphasis_has_no_inner_white_space(translation: str, expected: str) -> None:
    file = read_file(b"The **good** word.", FileFormat.MARKDOWN)
    assert file.write([translation]).decode() == expected


def test_a_cue_keeps_its_lines() -> None:
    file = read_file(SRT, FileFormat.SRT)
    out = file.write(['Das <g id="1">alte</g> Haus ist leer.', *[unit.text for unit in file.units[1:]]])
    assert "\r\nDas <i>alte</i>\r\nHaus ist leer.\r\n\r\n2\r\n" in out.decode()


def test_words_of_a_paragraph_may_be_reordered() -> None:
    """Bold words stay bold at their new position, and a link keeps its address."""
    file = read_file(docx(), FileFormat.DOCX)
    texts = [unit.text for unit in file.units]
    texts[1] = (
        'Auf dem <g id="6"><g id="7">alten Tisch</g></g> <g id="0">Achtung</g><x id="11"/><br id="13"/>Neu<x id="4"/>'
    )
    written = ZipFile(BytesIO(file.write(texts))).read("word/document.xml").decode()
    run = '<w:r><w:rPr><w:u/></w:rPr><w:t xml:space="preserve">alten Tisch</w:t></w:r>'
    assert f'<w:hyperlink r:id="rId4">{run}</w:hyperlink>' in written
    assert f'<w:r>{BOLD}<w:t xml:space="preserve">Achtung</w:t></w:r>' in written
    assert '<w:r><w:t xml:space="preserve">Auf dem </w:t></w:r>' in written
    assert written.count("footnoteReference") == 1


def test_runs_with_the_same_properties_are_one_text() -> None:
    assert read_file(docx(), FileFormat.DOCX).units[0].text == "A title here"
    assert "A ti</w:t>" in DOCUMENT


def test_files_in_legacy_encodings_are_read_and_written() -> None:
    data = '<meta charset="iso-8859-2"><p>Stra\u00dfe'.encode("iso-8859-2")
    file = read_file(data, FileFormat.HTML)
    assert file.units[0].text == "Stra\u00dfe"
    assert file.write(["10 \u20ac f\u00fcr"]).endswith(b"<p>10 &#8364; f\xfcr")
    po = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=ISO-8859-1\\n"\n\nmsgid "\u00e9t\u00e9"\nmsgstr ""\n'
    file = read_file(po.encode("latin-1"), FileFormat.PO)
    assert file.write(["\u00fc"]).endswith(b'msgstr "\xfc"\n')
    in_utf8 = po.replace("ISO-8859-1", "UTF-8").removesuffix('""\n') + '"10 \u20ac"\n'
    assert file.write(["10 \u20ac"]) == in_utf8.encode()
    with pytest.raises(FileError, match="lacks"):
        file.write(["\ud800"])
    assert read_file("Hallo".encode("utf-16"), FileFormat.TXT).write(["ja"]) == "ja".encode("utf-16")


def test_a_lone_surrogate_in_json_is_kept() -> None:
    assert b'"\\ud800 lone"' in changed(JSON, FileFormat.JSON)
