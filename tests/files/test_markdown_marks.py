"""Inline markup of Markdown: code, reference links, lines that are marks, backslashes that are text, long tags.

In `[text]`, the text of a reference link is also the label of its definition. Its translation is `[translation][text]`.
"""

from __future__ import annotations

import time

import pytest
from markdown_it import MarkdownIt

from app.api.files.document_jobs import UNIT_RULES
from app.files import FileFormat
from app.files.reading import read_file
from app.text.parsed_text import ParseOptions, TextFormat
from benchmarks.roundtrip_models import reversed_words
from tests.files.test_long_files import LIMIT_S
from tests.text.fake_models import translate_with

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


@pytest.mark.parametrize(
    ("text", "reversed_text"),
    [
        ("Run `npm install` to install `them all`", "`them all` install to `npm install` Run"),
        ("Press <kbd>Ctrl</kbd> or <kbd>C</kbd> now", "now <kbd>C</kbd> or <kbd>Ctrl</kbd> Press"),
        ("Visit <http://a.b> or mail <c@d.e> now", "now <c@d.e> mail or <http://a.b> Visit"),
        ("Read [the page of `tox`](u) today", "today [`tox` of page the](u) Read"),
    ],
)
def test_code_and_addresses_are_words_of_the_sentence(text: str, reversed_text: str) -> None:
    file = read_file(text.encode(), FileFormat.MARKDOWN)
    options = ParseOptions("en", "de", TextFormat.XML, xml=UNIT_RULES)
    assert file.write([translate_with(unit.text, options, reversed_words).text for unit in file.units]) == (
        reversed_text.encode()
    )


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("> [!NOTE]\n> Some words\n> here.\n", ['<br id="0"/>Some words\nhere.']),
        ("> [!TIP]\n>\n> Some words.\n", ["Some words."]),
        ("Some words\n:::tip\nOther words.\n:::\n", ['Some words<br id="1"/>Other words.<br id="3"/>']),
        ("::: {.tip}\n:::: note\nSome words", ['<br id="0"/><br id="1"/>Some words']),
        ("Some words\n$$\nx = words\n $$ \nmore", ['Some words<br id="1"/>x = words<br id="3"/>more']),
        (":::tip of words", [":::tip of words"]),
        ("Some [!words] and $$", ["Some [!words] and $$"]),
        ("`a\n:::\nb` words", ['<x id="0" translate="no"/> words']),
    ],
)
def test_a_line_that_is_only_a_mark_of_another_dialect_stays(text: str, units: list[str]) -> None:
    file = read_file(text.encode(), FileFormat.MARKDOWN)
    assert [unit.text for unit in file.units] == units
    translations = [unit.replace("words", "W\u00f6rter") for unit in units]
    assert file.write(translations).decode() == text.replace("words", "W\u00f6rter")


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


def test_an_element_that_is_not_closed_stays_at_the_end() -> None:
    """No word gets into it, because it is not translated."""
    file = read_file(b"Type <kbd> to insert\n", FileFormat.MARKDOWN)
    assert [unit.text for unit in file.units] == ['Type <br id="1"/>']


@pytest.mark.parametrize("text", ["alpha\\\n:::tip\nbravo\n", "alpha  \n$$\nbravo\n"])
def test_a_line_that_is_only_a_mark_may_follow_a_hard_break(text: str) -> None:
    file = read_file(text.encode(), FileFormat.MARKDOWN)
    assert [unit.text for unit in file.units] == ['alpha<br id="1"/><br id="2"/>bravo']
    assert file.write([file.units[0].text]) == text.encode()


@pytest.mark.parametrize("start", ["-", "1.", "#"])
def test_a_marker_that_gets_a_space_is_escaped(start: str) -> None:
    file = read_file(f"{start}**Bravo** house\n".encode(), FileFormat.MARKDOWN)
    written = file.write([f'{start} <g id="1">Bravo</g> Haus']).decode()
    assert MarkdownIt().render(written) == f"<p>{start} <strong>Bravo</strong> Haus</p>\n"
