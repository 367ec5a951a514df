"""HTML in Windows-1252, strings with markup in JSON and catalogues, and the header of WebVTT."""

from __future__ import annotations

import pytest

from app.files import FileFormat, UnitFormat
from app.files.reading import read_file


@pytest.mark.parametrize("name", ["iso-8859-1", "ISO88591", "latin1", "us-ascii", "windows-1252", "x-cp1252"])
def test_latin_1_in_html_is_windows_1252(name: str) -> None:
    """The five bytes without a character in Windows-1252 are control characters, as browsers read them."""
    start = f"<meta charset={name}><p>".encode()
    file = read_file(start + b"I don\x92t know \x93it\x94<p>\x81\x8d\x8f\x90\x9d<p>caf\xe9", FileFormat.HTML)
    assert [unit.text for unit in file.units] == ["I don\u2019t know \u201cit\u201d", "caf\u00e9"]
    written = file.write(["10 \u20ac \u03b1 \x81", "caf\u00e9"])
    assert written == start + b"10 \x80 &#945; \x81<p>\x81\x8d\x8f\x90\x9d<p>caf\xe9"


def test_latin_1_in_a_catalogue_is_latin_1() -> None:
    header = b'msgid ""\nmsgstr "Content-Type: text/plain; charset=ISO-8859-1\\n"\n\n'
    file = read_file(header + b'msgid "don\x92t"\nmsgstr ""\n', FileFormat.PO)
    assert [unit.text for unit in file.units] == ["don\x92t"]


@pytest.mark.parametrize(
    ("text", "is_html"),
    [
        ("Usage: tool <file> & <output>", False),
        ("Press <Ctrl> & <Enter>", False),
        ("%<PRIuMAX> bytes & more", False),
        ("<file name>", False),
        ("</file> & <output>", False),
        ("<0>Salt & pepper", False),
        ("Salt <0/> & pepper", False),
        ("Salt <b>& pepper", True),
        ("Salt<BR>pepper", True),
        ("salt</p>", True),
        ("<bold>Salt</bold>", True),
        ("<x-y>Salt</X-Y>", True),
        ("Salt <icon/> pepper", True),
        ("Salt <icon />", True),
        ('<input type="text"> here', True),
        ('<input  type="text"> here', True),
        ('<input required type="email"> here', True),
        ("<file y> & <a1 z> = x", False),
        ("Replace <your value for x=1> here", False),
        ("Usage: run <file> <mode or key=value>", False),
        ("Tom &amp; Jerry", True),
        ("Tom&#39;s", True),
        ("Tom&#x2019;s", True),
        ("Q&A", False),
        ("AT&T; more", False),
        ("Tom &amp Jerry", False),
        ("?a=1&copy=2", False),
        ("&#; and &#x; and &; more", False),
    ],
)
def test_only_strings_with_tags_or_references_of_html_or_whole_elements_are_html(
    text: str, is_html: bool
) -> None:
    expected = UnitFormat.HTML if is_html else UnitFormat.TEXT
    quoted = text.replace('"', '\\"')
    for data, file_format in (
        (f'["{quoted}"]', FileFormat.JSON),
        (f'msgid "{quoted}"\nmsgstr ""\n', FileFormat.PO),
    ):
        assert [(unit.text, unit.format) for unit in read_file(data.encode(), file_format).units] == [
            (text, expected)
        ]


@pytest.mark.parametrize("header", ["WEBVTT\n", "WEBVTT - a --> b\nKind: captions\nan id\n"])
def test_a_cue_may_follow_the_header_of_webvtt_at_once(header: str) -> None:
    data = header + "00:01.000 --> 00:02.000\nThe cue\n\n00:03.000 --> 00:04.000\nNext\n"
    file = read_file(data.encode(), FileFormat.VTT)
    assert [unit.text for unit in file.units] == ["The cue", "Next"]
    assert file.write(["Text", "Next"]).decode() == data.replace("The cue", "Text")


def test_a_header_of_webvtt_without_times_is_no_cue() -> None:
    assert not read_file(b"WEBVTT\nan arrow --> here\nand text\n", FileFormat.VTT).units
