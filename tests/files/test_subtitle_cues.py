"""The beginning and end of a cue, lines of white space in it, its character references and its marks."""

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


def test_times_in_a_cue_keep_their_order() -> None:
    data = vtt("@\n<00:01.100>We <00:01.300><c>saw</c> <00:01.500>it\n")
    assert texts(data, FileFormat.VTT) == ['<x id="0"/>We <x id="2"/><g id="3">saw</g> <x id="7"/>it']
    translation = '<x id="0"/>Wir haben <x id="7"/>es <x id="2"/><g id="3">gesehen</g>'
    written = read_file(data.encode(), FileFormat.VTT).write([translation]).decode()
    assert written == vtt("@\n<00:01.100>Wir haben <00:01.300>es <00:01.500><c>gesehen</c>\n")


@pytest.mark.parametrize(
    ("cue", "text"),
    [
        ("-Who?\n-Me.", '<br id="0"/>Who?\n<br id="2"/>Me.'),
        ("  –  Who?\n—Me.", '<br id="0"/>Who?\n<br id="2"/>Me.'),
        ("--and then", '<br id="0"/>and then'),
        ("-Who?\n-5 degrees", '<br id="0"/>Who?\n-5 degrees'),
        ("-5 degrees\n-10 degrees", "-5 degrees\n-10 degrees"),
        ("-5 - well-known", "-5 - well-known"),
        ("<i>-Who?\n</i> -Me<b>-too</b>", '<g id="0"><br id="1"/>Who?\n</g><br id="4"/>Me<g id="6">-too</g>'),
        ("{\\an8}-Who?\n {\\an8}-Me.", '<x id="0"/><br id="1"/>Who?\n <x id="3"/><br id="4"/>Me.'),
        ("Well\n<i>-Me\n-too</i>", 'Well\n<g id="1"><br id="2"/>Me\n<br id="4"/>too</g>'),
    ],
)
def test_a_dash_at_the_start_of_a_line_is_a_mark_unless_a_digit_follows(cue: str, text: str) -> None:
    data = srt(f"1\n@\n{cue}\n")
    file = read_file(data.encode(), FileFormat.SRT)
    assert [(unit.text, unit.is_wrapped) for unit in file.units] == [(text, False)]
    assert changed(data.encode(), FileFormat.SRT).decode().lower() == data.lower()


@pytest.mark.parametrize(
    ("cue", "text"),
    [
        ("is {\\i1}not{\\i0} here", 'is <g id="1">not</g> here'),
        ("is {\\b700}not{\\b} here", 'is <g id="1">not</g> here'),
        ("is {\\1c&H0000FF&}not{\\1c} here", 'is <g id="1">not</g> here'),
        ("is {\\i1\\b1}not{\\i0\\b0} here", 'is <g id="1">not</g> here'),
        ("is {\\i1}not{\\b0} here", 'is <x id="1"/>not<x id="3"/> here'),
        ("is <i>not{\\i0} here", 'is <x id="1"/>not<x id="3"/> here'),
        ("{\\an8}is {\\r}not", '<x id="0"/>is <x id="2"/>not'),
    ],
)
def test_an_override_and_the_override_that_ends_it_are_a_pair(cue: str, text: str) -> None:
    data = srt(f"1\n@\n{cue}\n")
    assert texts(data, FileFormat.SRT) == [text]
    assert changed(data.encode(), FileFormat.SRT).decode().lower() == data.lower()


def test_a_line_is_not_broken_in_an_override() -> None:
    data = srt("1\n@\nOne {\\pos(10, 20)}and\ntwo\n")
    written = read_file(data.encode(), FileFormat.SRT).write(['Eins <x id="1"/>zwei']).decode()
    assert written == srt("1\n@\nEins\n{\\pos(10, 20)}zwei\n")


@pytest.mark.parametrize(
    ("cue", "text"),
    [
        ("the <ruby>dog<rt>Hund</rt></ruby> barks", 'the <g id="1">dog<x id="3"/></g> barks'),
        ("the <ruby>dog<rt.x>&amp; Hund</ruby> barks", 'the <g id="1">dog<x id="3"/></g> barks'),
        ("<ruby>the<rt><i>a</i></rt>dog<rt>b</rt></ruby>", '<g id="0">the<x id="2"/>dog<x id="4"/></g>'),
        ("the <rt>dog", 'the <x id="1"/>dog'),
    ],
)
def test_the_reading_of_a_ruby_text_is_a_mark(cue: str, text: str) -> None:
    data = vtt(f"@\n{cue}\n")
    assert texts(data, FileFormat.VTT) == [text]
    written = read_file(data.encode(), FileFormat.VTT).write([text.replace("dog", "Hund")]).decode()
    assert written == data.replace("dog", "Hund")


def test_readings_move_with_their_bases() -> None:
    data = vtt("@\n<ruby>dog<rt>a</rt></ruby> and <ruby>cat<rt>b</rt></ruby>\n")
    translation = '<g id="5">Katze<x id="7"/></g> und <g id="0">Hund<x id="2"/></g>'
    written = read_file(data.encode(), FileFormat.VTT).write([translation]).decode()
    assert written == vtt("@\n<ruby>Katze<rt>b</rt></ruby> und <ruby>Hund<rt>a</rt></ruby>\n")


def test_a_cue_has_no_blank_line_after_it_is_broken_into_lines() -> None:
    cue = "1\n00:00:01,000 --> 00:00:02,000\n"
    file = read_file(f"{cue}a\nb\nc\nd\n".encode(), FileFormat.SRT)
    assert file.write(["A  x"]).decode() == f"{cue}A\nx\n"
