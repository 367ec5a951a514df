"""The beginning and end of a cue, lines of white space in it, and its character references."""

from __future__ import annotations

import pytest

from app.files import FileError, FileFormat
from app.files.reading import read_file
from tests.files.test_formats import changed

SRT_TIMES = "00:00:01,000 --> 00:00:02,000"
VTT_TIMES = "00:01.000 --> 00:02.000"


def texts(data: str, file_format: FileFormat) -> list[str]:
    return [unit.text for unit in read_file(data.encode(), file_format).units]


def srt(data: str) -> str:
    """SubRip with the times of a cue in place of each `@`."""
    return data.replace("@", SRT_TIMES)


def vtt(data: str) -> str:
    """WebVTT with the times of a cue in place of each `@`."""
    return "WEBVTT\n\n" + data.replace("@", VTT_TIMES)


@pytest.mark.parametrize(
    "data",
    [
        srt("1\n@\none\n2\n@\ntwo\n"),
        srt("1\n@\none\r\n 2 \r\n@\ntwo\n\n3\n@"),
        srt("1\n@\none\n@\ntwo\n"),
        srt("@\none\n@\ntwo\n"),
        srt("1\n@\n2\n@\n3\n@\none\n4\n@\ntwo"),
        srt("@\n@\none\n1\n@\n\n2\n@\ntwo"),
        srt("1\n@\none\n \t\nan id\n@\ntwo"),
        vtt("@\none\n@\ntwo\n"),
        vtt("an id\n@\none\n2\n@\ntwo\n"),
        vtt("@\none\n \n@\ntwo\n\n \n"),
        vtt(" \nan id\n@\none\n\nNOTE\nnot this\n@\ntwo\n"),
        vtt("NOTE\n@\none\n\nNOTE not this\n@\ntwo\n\nNOTE a --> b\nnot this"),
        "WEBVTT\n" + vtt("@\none\n@\ntwo\n").removeprefix("WEBVTT\n\n"),
    ],
)
def test_a_line_with_times_begins_a_cue_without_a_blank_line(data: str) -> None:
    file_format = FileFormat.VTT if data.startswith("WEBVTT") else FileFormat.SRT
    assert texts(data, file_format) == ["one", "two"]
    assert changed(data.encode(), file_format).decode() == data.replace("one", "ONE").replace("two", "TWO")


def test_a_block_that_begins_without_times_is_an_error_with_its_line() -> None:
    with pytest.raises(FileError, match="line 9: expected the times"):
        texts(srt("1\n@\none\n2\n@\ntwo\n\n3\nno times\n@\nthree"), FileFormat.SRT)


def test_white_space_in_a_cue_of_webvtt_is_kept() -> None:
    """The captions of YouTube have lines with one space in cues."""
    data = vtt("@\n \nthe first<00:01.500><c> line</c>\n\n@\nthe second\n \n\n@\nthe\n \nthird\n\n@\n \n\n")
    assert texts(data, FileFormat.VTT) == [
        'the first<x id="1"/><g id="2"> line</g>',
        "the second",
        "the\nthird",
    ]
    assert changed(data.encode(), FileFormat.VTT).decode().lower() == data.lower()
    file = read_file(data.encode(), FileFormat.VTT)
    written = file.write([*[unit.text for unit in file.units[:2]], "das dritte"]).decode()
    assert written == data.replace("the\n \nthird", "das\n \ndritte")


def test_white_space_other_than_spaces_and_tabs_ends_no_cue_of_subrip() -> None:
    data = srt("1\n@\none\n\u00a0\nline\n\u3000\n \t\n\u00a0\n\n2\n@\ntwo\n\n\u00a0\n")
    assert texts(data, FileFormat.SRT) == ["one\nline", "two"]
    assert changed(data.encode(), FileFormat.SRT).decode().lower() == data.lower()


@pytest.mark.parametrize(
    ("cue", "text", "translation", "written"),
    [
        ("Tom &amp; Jerry", "Tom & Jerry", "Tim & <Jerry>", "Tim &amp; &lt;Jerry&gt;"),
        ("<i>R&#38;D</i> &#x26; more", '<g id="0">R&amp;D</g> &amp; more', '<g id="0">R</g>&amp;', "<i>R</i>&amp;"),
        ("Q&A", "Q&A", "Q&B", "Q&B"),
        ("AT&T; more & &more;", "AT&T; more & &more;", "a & b", "a & b"),
    ],
)  # fmt: skip
def test_a_cue_of_subrip_with_a_character_reference_is_escaped(
    cue: str, text: str, translation: str, written: str
) -> None:
    data = srt(f"1\n@\n{cue}\n\n2\n@\nMore & more\n")
    assert texts(data, FileFormat.SRT) == [text, "More & more"]
    out = read_file(data.encode(), FileFormat.SRT).write([translation, "Mehr & mehr"]).decode()
    assert out == data.replace(cue, written).replace("More & more", "Mehr & mehr")
