"""Footnotes in Markdown: references are kept, texts are translated."""

from __future__ import annotations

import pytest

from app.files import FileFormat
from app.files.reading import read_file


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("[^1]: A footnote.\n", ['<br id="0"/>A footnote.']),
        ("[^1]: Word\n", ['<br id="0"/>Word']),
        ("[^a-b]:\tWord one.\n[^c]: Word two.\n", ['<br id="0"/>Word one.\n<br id="2"/>Word two.']),
        ("The house[^1] is *old*[^2].\n", ['The house<x id="1"/> is <g id="3">old</g><x id="6"/>.']),
        ("> [^1]: A footnote.\n> It goes on.\n", ['<br id="0"/>A footnote.\nIt goes on.']),
        ("# A title[^1]\n", ['A title<x id="1"/>']),
        ("A [link[^1]](b) here.\n", ['A <g id="1">link<x id="3"/></g> here.']),
        ("[1]: word\n", []),
        ("See [^ 1] and [^].\n", ["See [^ 1] and [^]."]),
    ],
)
def test_a_footnote_reference_is_kept(text: str, units: list[str]) -> None:
    file = read_file(text.encode(), FileFormat.MARKDOWN)
    assert [unit.text for unit in file.units] == units
    assert file.write(units) == text.encode()
    other = [unit.replace("house", "garden").replace("footnote", "note") for unit in units]
    assert file.write(other) == text.replace("house", "garden").replace("footnote", "note").encode()
