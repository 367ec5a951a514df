"""Files: short texts are shown and translated, other formats are translated whole by the server, or refused."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.api.server_process import ServerProcess
from tests.files.samples import DOCUMENT, docx
from tests.web.conftest import OpenDesk
from tests.web.desk import Desk

STATION, STATION_DE = "Where is the station?", "Wo ist der Bahnhof?"
CUES = "1\n00:00:01,000 --> 00:00:02,000\n{}\n"
# What is more than lines of text: sent as plain text it would be torn.
FORMATS = ["film.srt", "film.vtt", "readme.md", "strings.po", "strings.json", "manual.docx"]


@pytest.fixture(scope="module")
def fileless_server(echo_command: list[str]) -> Iterator[ServerProcess]:
    """Takes no files."""
    with ServerProcess(echo_command, {"files_enabled": "false"}) as server:
        yield server.ready()


@pytest.fixture
def fileless(open_desk: OpenDesk, fileless_server: ServerProcess) -> Desk:
    return open_desk(fileless_server).ready()


def refused(desk: Desk, *words: str) -> None:
    """Nothing is left of what was there before, and it says what can be done."""
    for each in words:
        expect(desk["problem-text"]).to_contain_text(each)
    assert desk["source"].input_value() == ""
    for name in ("target", "download", "document", "copy", "progress"):
        assert not desk[name].inner_text().strip() or desk[name].is_hidden(), name
    expect(desk["document"]).to_be_hidden()


def test_a_file_is_translated_in_its_format_and_saved(desk: Desk) -> None:
    desk.open_file("film.srt", CUES.format(STATION).encode())
    expect(desk["download"]).to_have_text("Download film.de.srt")
    with desk.page.expect_download() as download:
        desk["download"].click()
    assert download.value.suggested_filename == "film.de.srt"
    assert Path(download.value.path()).read_text("utf-8") == CUES.format(STATION_DE)
    desk.type("It is late.")
    desk.shows("Es ist spät.")
    expect(desk["document"]).to_be_hidden()
    expect(desk["download"]).to_be_hidden()


def test_after_a_word_file_the_pane_says_what_happened(desk: Desk) -> None:
    desk.open_file("manual.docx", docx(DOCUMENT.replace("Inside a box", STATION)))
    expect(desk["document-state"]).to_have_text("manual.docx is translated into German.")
    expect(desk["empty"]).to_be_hidden()
    expect(desk["spoken"]).to_have_text("manual.docx is translated into German.")
    link, pane = desk["download"].bounding_box(), desk.page.locator(".pane.target").bounding_box()
    assert link is not None
    assert pane is not None
    assert link["height"] >= 40, "a button"
    assert pane["y"] < link["y"] < pane["y"] + pane["height"] - link["height"]
    with desk.page.expect_download() as download:
        desk["download"].click()
    assert download.value.suggested_filename == "manual.de.docx"
    archive = zipfile.ZipFile(BytesIO(Path(download.value.path()).read_bytes()))
    assert STATION_DE in archive.read("word/document.xml").decode()
    desk["document-close"].click()
    expect(desk["document"]).to_be_hidden()
    expect(desk["empty"]).to_be_visible()


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_not_offered_where_files_are_off(fileless: Desk, name: str) -> None:
    """Nor taken: nothing of it is sent."""
    offered = fileless["file"].get_attribute("accept")
    assert offered == ".txt,.html,.htm"
    fileless.type("It is late.")
    fileless.shows("It is late.")
    num_posted = len(fileless.posted)
    fileless.open_file(name, b"**red**")
    refused(fileless, f"{name} is not taken", ".txt, .html, or .htm", "or paste its text")
    assert len(fileless.posted) == num_posted


def test_what_the_server_takes_is_offered(desk: Desk) -> None:
    offered = (desk["file"].get_attribute("accept") or "").split(",")
    assert {Path(name).suffix for name in FORMATS} | {".txt", ".html"} <= set(offered)
    desk.open_file("table.csv", b"a,b")
    refused(desk, "table.csv is not taken", ".docx", "or paste its text")


def test_a_file_that_is_refused_clears_the_last_ones_text(desk: Desk) -> None:
    desk.open_file("question.txt", STATION.encode())
    desk.shows(STATION_DE)
    desk.open_file("broken.json", b'{"a": ')
    refused(desk, "broken.json was not translated: line 1", "Mend it in the program that made it")
    expect(desk["empty"]).to_be_visible()


def test_languages_that_a_file_is_not_translated_between(desk: Desk) -> None:
    desk["target-language"].evaluate("picker => picker.append(new Option('French', 'fr'))")
    desk["target-language"].select_option("fr")
    desk.open_file("film.srt", CUES.format(STATION).encode())
    refused(desk, "film.srt was not translated", "Choose other languages than English and French")


def test_a_file_that_is_too_large_is_not_even_sent(desk: Desk) -> None:
    desk.open_file("film.srt", b"a" * 10_000_001)
    refused(desk, "film.srt has 10 MB", "files of up to 10 MB", "Split it into smaller files.")
    assert desk.posted == []


def test_lines_of_text_are_read_here(desk: Desk) -> None:
    desk.open_file("question.txt", b"It is late.")
    desk.shows("Es ist spät.")
    assert desk.paths_posted() == ["/v1/translate/stream"]


def test_a_text_too_long_for_the_box_is_translated_as_a_file(desk: Desk) -> None:
    desk.open_file("long.txt", b"It is late.\n" * 500)
    expect(desk["download"]).to_have_text("Download long.de.txt")
    assert desk.paths_posted() == ["/translate_file"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff\xfe\x00", "is not text in UTF-8. Save it as text in UTF-8"),
        (b"a\0b", "is not text in UTF-8"),
        (b"a" * 6_000, "longer than the 5,000 characters"),
        (b"a" * 30_000, "longer than the 5,000 characters"),
    ],
)
def test_a_text_that_cannot_be_read_is_refused(fileless: Desk, content: bytes, words: str) -> None:
    fileless.open_file("file.txt", content)
    refused(fileless, words)
    assert fileless.posted == []


def test_html_is_read_as_html_where_files_are_off(fileless: Desk) -> None:
    """And a file may be dropped."""
    page = fileless.page
    transfer = page.evaluate_handle(
        """text => {
          const transfer = new DataTransfer();
          transfer.items.add(new File([text], "question.html", { type: "text/html" }));
          return transfer;
        }""",
        f"<p>{STATION}</p>",
    )
    page.dispatch_event("#desk", "dragover", {"dataTransfer": transfer})
    expect(fileless["veil"]).to_be_visible()
    page.dispatch_event("#desk", "drop", {"dataTransfer": transfer})
    expect(fileless["veil"]).to_be_hidden()
    fileless.shows(f"<p>{STATION}</p>")
    assert fileless["format"].input_value() == "html"
