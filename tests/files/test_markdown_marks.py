"""Inline markup of Markdown: reference links, backslashes that are text, and long names of tags.

In `[text]`, the text of a reference link is also the label of its definition. Its translation is `[translation][text]`.
"""

from __future__ import annotations

import time

import pytest
from markdown_it import MarkdownIt

from app.files import FileFormat
from app.files.reading import read_file
from tests.files.test_long_files import LIMIT_S

DEFINITION = "\n[The *old* house]: http://example.org/\n"


@pytest.mark.parametrize("link", ["[the *old* house]", "[the *old* house][]", "[the\n*old*  house]"])
def test_a_translated_link_whose_text_is_its_label_still_leads_to_its_definition(link: str) -> None:
    data = f"See {link}, please.\n{DEFINITION}".encode()
    file = read_file(data, FileFormat.MARKDOWN)
    assert file.write([unit.text for unit in file.units]) == data
    translated = file.write([unit.text.replace("house", "Haus") for unit in file.units]).decode()
    assert translated.endswith(DEFINITION)
    html = MarkdownIt("commonmark").render(translated)
    assert '<a href="http://example.org/">' in html
    assert "<em>old</em>" in html
    assert "Haus</a>, please." in html


def test_a_link_whose_label_differs_from_its_text_keeps_its_label() -> None:
    file = read_file(b"See [the house][h].\n\n[h]: http://example.org/\n", FileFormat.MARKDOWN)
    assert file.write(['See <g id="1">das Haus</g>.']) == b"See [das Haus][h].\n\n[h]: http://example.org/\n"


def test_a_backslash_is_text_before_a_letter_and_markup_before_punctuation() -> None:
    data = rb"See docs\index and C:\Users\name for \*more\*." + b"\n"
    file = read_file(data, FileFormat.MARKDOWN)
    assert [unit.text for unit in file.units] == [r"See docs\index and C:\Users\name for *more*."]
    assert file.write([unit.text.replace("more", "mehr") for unit in file.units]) == data.replace(
        b"more", b"mehr"
    )


def test_a_tag_with_a_long_name_is_read_in_linear_time() -> None:
    data = ("hi <" + "a" * 40_000 + ' x="<"> there').encode()
    started = time.process_time()
    read_file(data, FileFormat.MARKDOWN)
    assert time.process_time() - started < LIMIT_S
