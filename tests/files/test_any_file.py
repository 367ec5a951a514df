"""Property tests. Unchanged texts give the same file, and changed texts replace exactly the originals."""

from __future__ import annotations

import json

import polib
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from app.files import FileError, FileFormat
from app.files.reading import read_file
from app.files.unit import is_translatable
from tests.files.test_formats import changed

TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40)
VALUES = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.seconds
@given(VALUES, st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_any_json(value: object, is_ascii: bool, indent: int | str | None) -> None:
    raw = json.dumps(value, ensure_ascii=is_ascii, indent=indent)
    file = read_file(raw.encode(), FileFormat.JSON)
    assert file.write([unit.text for unit in file.units]).decode() == raw

    def expected(item: object) -> object:
        if isinstance(item, str):
            return item + '!\u20ac"\n' if is_translatable(item) else item
        if isinstance(item, list):
            return [expected(each) for each in item]
        return {key: expected(each) for key, each in item.items()} if isinstance(item, dict) else item

    out = file.write([unit.text + '!\u20ac"\n' for unit in file.units]).decode()
    assert json.loads(out) == expected(value)


MARKUP = st.lists(
    st.sampled_from(
        ["word ", "**", "*", "_", "`", "[", "](u)", "![", "<b>", "</b>", "<br>", "\n", "\n\n", "> ", "- ", "1. ", "# ",
         "|", "\\", "&amp;", "~~", "    ", "\t", "```\n", "---\n", "<", ">", "<!--", "\r\n", "\u2028", "\x0b", "==\n"]
    ),
    max_size=25,
).map("".join)  # fmt: skip


@pytest.mark.seconds
@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(MARKUP)
@example("`\r\n`\nword ")
@example("> word `\r\n>  word`\n>word  \r\n> word\n>  word")
def test_any_markdown_html_and_text(text: str) -> None:
    for file_format in (FileFormat.MARKDOWN, FileFormat.HTML, FileFormat.TXT):
        file = read_file(text.encode(), file_format)
        assert file.write([unit.text for unit in file.units]).decode() == text
        out = changed(text.encode(), file_format).decode()
        assert out.casefold() == text.casefold(), file_format
        again = read_file(out.encode(), file_format)
        assert again.write([unit.text for unit in again.units]).decode() == out


# A letter beyond ASCII, two characters that are written as escapes, and a backslash with a letter, which is no escape.
ADDED = '\u00fc"\n\\n'
# The only control characters are \n and \t, because polib treats some others as line ends.
MESSAGES = st.text('a"\\\n\t ', max_size=12) | st.text(
    alphabet=st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"], include_characters="\n\t")
)


@given(st.lists(st.tuples(MESSAGES, MESSAGES), max_size=5))
def test_any_catalogue(pairs: list[tuple[str, str]]) -> None:
    catalogue = polib.POFile()
    for number, (text, done) in enumerate(pairs):
        catalogue.append(polib.POEntry(msgid=f"{number}{text}", msgstr=done))
    raw = str(catalogue)
    file = read_file(raw.encode(), FileFormat.PO)
    assert file.write([unit.text for unit in file.units]).decode() == raw
    written = polib.pofile(file.write([ADDED + unit.text for unit in file.units]).decode())
    for before, after in zip(catalogue, written, strict=True):
        is_open = not before.msgstr and is_translatable(before.msgid)
        assert after.msgstr == (ADDED + before.msgid if is_open else before.msgstr)


@given(st.binary(max_size=60))
def test_any_bytes_are_parsed_or_rejected(data: bytes) -> None:
    for file_format in FileFormat:
        try:
            file = read_file(data, file_format)
        except FileError:
            continue
        assert file.write([unit.text for unit in file.units]) == data
