"""Files above a limit and files in an encoding that is no encoding of texts are rejected."""

from __future__ import annotations

import gc
import re
from io import BytesIO
from zipfile import ZipFile

import pytest

from app.files import FileError, FileFormat, FileLimits
from app.files.reading import read_file
from app.files.xml_tree import MAX_ATTRIBUTES, _Reader, read_tree
from tests.files.samples import docx

WORD = '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>{}</w:body></w:document>'
PARAGRAPH = "<w:p><w:r><w:t>{}</w:t></w:r></w:p>"

# Its text to translate is `A<g id="1">b</g>`, of 16 characters. A limit counts the tags, as in text files.
TWO_STYLES = "<w:p><w:r><w:t>A</w:t></w:r><w:r><w:rPr><w:b/></w:rPr><w:t>b</w:t></w:r></w:p>"


def document(body: str) -> bytes:
    return docx(WORD.format(body))


@pytest.mark.parametrize(
    ("body", "limits", "message"),
    [
        (PARAGRAPH.format("a") * 40, FileLimits(max_units=39), "limit of 39 texts"),
        (PARAGRAPH.format("a" * 100), FileLimits(max_characters=99), "limit of 99 characters"),
        (TWO_STYLES, FileLimits(max_characters=36), "limit of 36 characters"),  # 16, and 21 in header and footnote
        ("<w:p/>" * 40, FileLimits(max_elements=40), "limit of 40 XML elements"),
        ("<w:p/>" * 30, FileLimits(max_elements=33), "limit of 33 XML elements"),  # the header has the 34th
        (PARAGRAPH.format("a" * 2_000), FileLimits(max_part_bytes=2_000), "limit of 2000 unpacked bytes"),
        ("<w:p " + " ".join(f'a{n}="1"' for n in range(1_001)) + "/>", FileLimits(), "1000 attributes"),
        ('<w:p w:a="' + "a" * 2_000_000 + '"/>', FileLimits(), "a tag of more than 1000000 bytes"),
        ("<w:a>" * 501 + "</w:a>" * 501, FileLimits(), "500 deep"),
    ],
)  # fmt: skip
def test_a_document_above_a_limit_is_rejected(body: str, limits: FileLimits, message: str) -> None:
    with pytest.raises(FileError, match=message):
        read_file(document(body), FileFormat.DOCX, limits)


@pytest.mark.parametrize(
    "name",
    ["max_units", "max_characters", "max_parts", "max_unpacked_bytes", "max_part_bytes", "max_elements"],
)
def test_a_document_at_a_limit_is_read(name: str) -> None:
    """The header and the footnotes count, too."""
    data = document(PARAGRAPH.format("a") * 2)
    file = read_file(data, FileFormat.DOCX)
    texts = [unit.text for unit in file.units]
    with ZipFile(BytesIO(data)) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}
        xml = [archive.read(f"word/{entry}.xml") for entry in ("document", "header1", "footnotes")]
    used = {
        "max_units": len(texts),
        "max_characters": sum(map(len, texts)),
        "max_parts": len(sizes),
        "max_unpacked_bytes": sum(sizes.values()),
        "max_part_bytes": sum(map(len, xml)),
        "max_elements": sum(len(re.findall(rb"<w:", each)) for each in xml),
    }[name]
    assert read_file(data, FileFormat.DOCX, FileLimits(**{name: used})).units == file.units
    with pytest.raises(FileError, match=rf"limit of {used - 1}\b"):
        read_file(data, FileFormat.DOCX, FileLimits(**{name: used - 1}))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<a>The house.</a>".encode("utf-16-le"), "x.xml: it has a NUL"),
        ("<a>The house.</a>".encode("utf-16-be"), "x.xml: it has a NUL"),
        (("<a>" + "\uc341\u41a9" * 1000 + "</a>").encode("utf-16-le"), "x.xml: it has a NUL"),
        (
            b'<?xml version="1.0" encoding="ISO-8859-1"?><a>house</a>',
            "x.xml: its encoding is declared as another one",
        ),
    ],
)
def test_xml_in_another_encoding_is_rejected(content: bytes, message: str) -> None:
    with pytest.raises(FileError, match=message):
        read_tree(content, "x.xml", max_elements=9, num_before=0)


@pytest.mark.parametrize("encoding", ["utf-8", "UTF-8", "UTF-16"])
def test_xml_with_its_encoding_declared_is_read(encoding: str) -> None:
    text = f'<?xml version="1.0" encoding="{encoding}" standalone="yes"?><a>house</a>'
    root, found, _ = read_tree(text.encode(encoding), "x.xml", max_elements=9, num_before=0)
    assert (root.raw, found) == (text, encoding.lower())


def test_an_element_with_the_most_attributes_is_read() -> None:
    xml = "<a " + " ".join(f'a{number}="1"' for number in range(MAX_ATTRIBUTES)) + "/>"
    root, *_ = read_tree(xml.encode(), "x.xml", max_elements=9, num_before=0)
    assert root.raw == xml


def test_a_document_of_the_greatest_depth_is_written() -> None:
    deep = document("<w:a>" * 495 + PARAGRAPH.format("Yes") + "</w:a>" * 495)
    parsed = read_file(deep, FileFormat.DOCX, FileLimits())
    texts = ["Ja" if unit.text == "Yes" else unit.text for unit in parsed.units]
    with ZipFile(BytesIO(parsed.write(texts))) as archive:
        assert b">Ja</w:t>" in archive.read("word/document.xml")


def test_nested_paragraphs_of_the_greatest_depth_are_written() -> None:
    start, end = PARAGRAPH.format("Yes").removesuffix("</w:p>"), "</w:p>"
    parsed = read_file(document(start * 490 + end * 490), FileFormat.DOCX)
    texts = [unit.text.replace("Yes", "Ja") for unit in parsed.units]
    with ZipFile(BytesIO(parsed.write(texts))) as archive:
        assert archive.read("word/document.xml").count(b">Ja</w:t>") == 490


@pytest.mark.parametrize(
    "xml",
    [
        "<a>" + 2 * ("<!--" + "a" * 600_000 + "-->") + "</a>",
        "<a>" + 2 * ('<b c="' + "a" * 600_000 + '"/>') + "</a>",
        "<a/>" + " " * 2_000_000,
    ],
)
def test_xml_with_more_bytes_than_a_tag_may_have_is_accepted_if_no_tag_has(xml: str) -> None:
    root, *_ = read_tree(xml.encode(), "x.xml", max_elements=9, num_before=0)
    assert root.raw == xml


def test_a_tag_above_the_limit_is_rejected_before_all_of_it_is_read() -> None:
    """The end of the file is malformed, which the parser would say if it read that far."""
    xml = '<a><!--b--><c d="' + "a" * 1_300_000 + '"<'
    with pytest.raises(FileError, match="a tag of more than 1000000 bytes"):
        read_tree(xml.encode(), "x.xml", max_elements=9, num_before=0)


@pytest.mark.parametrize(
    ("file_format", "data"),
    [
        (FileFormat.TXT, b"a\n" * 40),
        (FileFormat.JSON, b"[" + b'"a",' * 39 + b'"a"]'),
        (FileFormat.HTML, b"<p>a" * 40),
        (FileFormat.MARKDOWN, b"a\n\n" * 40),
        (FileFormat.PO, b'msgid "a"\nmsgstr ""\n\n' * 40),
        (FileFormat.SRT, b"1\n00:00:01,000 --> 00:00:02,000\na\n\n" * 40),
    ],
)
def test_a_file_with_too_many_texts_is_rejected(file_format: FileFormat, data: bytes) -> None:
    assert len(read_file(data, file_format, FileLimits(max_units=40, max_characters=40)).units) == 40
    with pytest.raises(FileError, match="exceeds the limit of 39 texts"):
        read_file(data, file_format, FileLimits(max_units=39))
    with pytest.raises(FileError, match="limit of 39 characters"):
        read_file(data, file_format, FileLimits(max_characters=39))


def test_json_with_a_number_that_python_does_not_read_is_rejected() -> None:
    with pytest.raises(FileError, match="a number that is too long"):
        read_file(b'["The house", NaN, ' + b"1" * 5_000 + b"]", FileFormat.JSON)


def test_the_number_of_a_plural_form_may_have_any_length() -> None:
    data = b'msgid "The house"\nmsgid_plural "Houses"\nmsgstr[' + b"1" * 5_000 + b'] ""\n'
    assert [unit.text for unit in read_file(data, FileFormat.PO).units] == ["Houses"]


@pytest.mark.parametrize(
    "name",
    ["idna", "utf-7", "zlib", "punycode", "rot13", "hex", "unicode_escape", "undefined", "moon", "mbcs"],
)
def test_only_text_encodings_are_accepted(name: str) -> None:
    page = f'<meta charset="{name}"><p>'.encode() + b"a." * 40_000
    with pytest.raises(FileError, match="names an encoding that"):
        read_file(page, FileFormat.HTML)


@pytest.mark.parametrize(
    "name", ["windows-1252", "ISO-8859-1", "latin1", "Shift_JIS", "UTF8", "koi8-r", "GB2312"]
)
def test_encodings_of_the_web_are_supported(name: str) -> None:
    page = f'<meta charset="{name}"><p>The house.'.encode()
    assert [unit.text for unit in read_file(page, FileFormat.HTML).units] == ["The house."]


def test_parsed_xml_is_freed_without_garbage_collection() -> None:
    """A file worker runs without garbage collection."""
    gc.collect()
    gc.disable()
    try:
        read_tree(b"<a><b>text</b></a>", "x.xml", max_elements=9, num_before=0)
        with pytest.raises(FileError):
            read_tree(b"<a><b>text</a>", "x.xml", max_elements=9, num_before=0)
        assert not [each for each in gc.get_objects() if type(each) is _Reader]
    finally:
        gc.enable()
