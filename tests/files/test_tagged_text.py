"""A translation has each tag of its text exactly once."""

from __future__ import annotations

import pytest

from app.files import FileFormat
from app.files.reading import read_file

SUBTITLE = b"1\n00:00:01,000 --> 00:00:02,000\nThe <i>old</i> <00:01.500>house\n"


@pytest.mark.parametrize(
    "translation",
    [
        'Das <g id="1">alte</g> <g id="1">Haus</g><x id="5"/>',
        'Das <g id="1">alte</g> <x id="5"/>Haus<x id="5"/>',
        'Das <g id="1">alte</g> <x id="6"/>Haus<x id="5"/>',
        'Das <g id="1">alte</g> <g id="5">Haus</g>',
        'Das <g id="1">alte</g> </g><x id="5"/>Haus',
    ],
)
def test_a_repeated_or_unknown_tag_is_an_error(translation: str) -> None:
    file = read_file(SUBTITLE, FileFormat.SRT)
    assert [unit.text for unit in file.units] == ['The <g id="1">old</g> <x id="5"/>house']
    with pytest.raises(ValueError, match="has a tag that its text does not have"):
        file.write([translation])
