"""A translated JSON string has the escapes of its file."""

from __future__ import annotations

import pytest

from app.files import FileFormat
from app.files.reading import read_file


@pytest.mark.parametrize(
    ("data", "written"),
    [
        (rb'{"a": "Good morning", "b": "\u00fc"}', rb'"\u00e9/"'),
        (rb'{"a": "Good morning", "b": "\\\u00fc"}', rb'"\u00e9/"'),
        (rb'{"a": "Good morning", "b": "\ud83d\ude00"}', rb'"\u00e9/"'),
        (rb'{"a": "Good morning", "b": "C:\\users"}', '"\u00e9/"'.encode()),
        (rb'{"a": "Salt \u0026 pepper"}', '"\u00e9/"'.encode()),
        (rb'{"a": "one\/two"}', '"\u00e9\\/"'.encode()),
        (rb'{"a": "Folder C:\\\/x"}', '"\u00e9\\/"'.encode()),
        (rb'{"a": "Folder C:\\/x"}', '"\u00e9/"'.encode()),
    ],
)
def test_only_an_escape_of_a_character_beyond_ascii_or_of_a_slash_counts(data: bytes, written: bytes) -> None:
    file = read_file(data, FileFormat.JSON)
    translations = [unit.text for unit in file.units]
    translations[0] = "\u00e9/"
    assert written in file.write(translations)
