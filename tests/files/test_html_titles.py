"""In the title of an HTML page, a tag is text. The title is translated, and so is the rest of the page."""

from __future__ import annotations

import pytest

from app.files import FileFormat
from app.files.reading import read_file
from app.text.parsed_text import ParseOptions, TextFormat, parse_text
from benchmarks.roundtrip_models import copied


def in_capitals(text: str) -> str:
    """A server's answer to a unit, with a model that writes in capitals."""
    parsed = parse_text(text, ParseOptions("en", "de", TextFormat.HTML))
    segments = parsed.segments(lambda _: True)
    translations = [copied(each.source) for each in segments]
    return parsed.finish(segments, [each._replace(text=each.text.upper()) for each in translations]).text


@pytest.mark.parametrize(
    ("title", "translated"),
    [
        ("How to use the <script> tag", "HOW TO USE THE &lt;script> TAG"),
        ("The <!-- mark", "THE &lt;!-- MARK"),
        ("A <b>bold</b> &eacute; & b", "A &lt;b>BOLD&lt;/b> \u00c9 &amp; B"),
        ("1 < 2 and <?", "1 &lt; 2 AND &lt;?"),
        ("The <?= $a ?> <% b %> c", "THE <?= $a ?> <% b %> C"),
        ("<#if a>the</#if> {{ b | replace: '<br>' }}", "<#if a>THE</#if> {{ b | replace: '<br>' }}"),
    ],
)
def test_a_tag_in_a_title_is_text(title: str, translated: str) -> None:
    page = "<title>{}</title>\r\n<p>{}</p>"
    file = read_file(page.format(title, "One <i>two</i>").encode(), FileFormat.HTML)
    units = [unit.text for unit in file.units]
    assert len(units) == 2
    assert file.write(units) == page.format(title, "One <i>two</i>").encode()
    written = file.write(list(map(in_capitals, units))).decode()
    assert written.startswith(f"<title>{translated}</title>")
    assert "ONE" in written


def test_a_tag_in_a_title_of_a_text_in_html_is_text() -> None:
    assert in_capitals("<title>the <script> tag</title><p>One") == "<title>THE <script> TAG</title><p>ONE"
