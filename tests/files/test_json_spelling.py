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
        ('{"a": "Good morning", "b": "\\u00fc", "c": "\u00df"}'.encode(), '"\u00e9/"'.encode()),
        (rb'{"a": "Salt \u0026 pepper"}', '"\u00e9/"'.encode()),
        (rb'{"a": "one\/two"}', '"\u00e9\\/"'.encode()),
        (rb'{"a": "Folder C:\\\/x"}', '"\u00e9\\/"'.encode()),
        (rb'{"a": "Folder C:\\/x"}', '"\u00e9/"'.encode()),
    ],
)
def test_a_translation_escapes_slashes_and_characters_beyond_ascii_only_if_its_file_does(
    data: bytes, written: bytes
) -> None:
    file = read_file(data, FileFormat.JSON)
    translations = [unit.text for unit in file.units]
    translations[0] = "\u00e9/"
    assert written in file.write(translations)


@pytest.mark.parametrize(
    ("raw", "written"),
    [
        (rb"\u003cb\u003eIt\u0027s\u003c/b\u003e \u0026 more", rb"\u003ci\u003e\u0027/\u0026"),
        (rb"\u003Cb> more", rb"\u003Ci>'/&"),
        (rb"\\\u003cb> more", rb"\u003ci>'/&"),
        (rb"\u003cb>\/", rb"\u003ci>'\/&"),
        (rb"\\u003cb and more", rb"<i>'/&"),
        (rb"<b> more", rb"<i>'/&"),
    ],
)
def test_an_escape_of_a_character_of_markup_is_kept(raw: bytes, written: bytes) -> None:
    """A page can hold the JSON in a script only if `</script>` is escaped."""
    file = read_file(b'["' + raw + b'"]', FileFormat.JSON)
    assert file.write(["<i>'/&"]) == b'["' + written + b'"]'
    assert file.write([unit.text for unit in file.units]) == b'["' + raw + b'"]'
