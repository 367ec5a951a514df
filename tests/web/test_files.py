"""Files in formats of their own: translated by the server, saved by the browser."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.api.server_process import ROOT, ServerProcess
from tests.web.conftest import OpenDesk

CUES = "1\n00:00:01,000 --> 00:00:02,000\n{}\n"


@pytest.fixture(scope="module")
def file_server() -> Iterator[ServerProcess]:
    settings: dict[str, object] = {
        "bundle": ROOT / "bundles" / "en-de",
        "num_threads": 1,
        "device": "cpu",
        "precision": "int8",
        "files_enabled": "true",
    }
    with ServerProcess([sys.executable, "-W", "error", "-m", "transduce", "serve"], settings) as server:
        yield server.ready()


def test_a_file_is_translated_in_its_format_and_saved(
    open_desk: OpenDesk, file_server: ServerProcess, tmp_path: Path
) -> None:
    file = tmp_path / "film.srt"
    file.write_text(CUES.format("Where is the station?"), "utf-8")
    desk = open_desk(file_server).ready()
    desk["file"].set_input_files(file)
    expect(desk["download"]).to_have_text("Save film.de.srt")
    with desk.page.expect_download() as download:
        desk["download"].click()
    assert download.value.suggested_filename == "film.de.srt"
    assert Path(download.value.path()).read_text("utf-8") == CUES.format("Wo ist der Bahnhof?")
    desk.type("It is late.")
    desk.shows("Es ist spät.")
    expect(desk["download"]).to_be_hidden()


def test_a_file_that_cannot_be_read_is_told(
    open_desk: OpenDesk, file_server: ServerProcess, tmp_path: Path
) -> None:
    file = tmp_path / "broken.json"
    file.write_text('{"a": ', "utf-8")
    desk = open_desk(file_server).ready()
    desk["file"].set_input_files(file)
    expect(desk["problem-text"]).not_to_be_empty()
    expect(desk["download"]).to_be_hidden()
    expect(desk["progress"]).to_be_hidden()


def test_lines_of_text_are_read_here(open_desk: OpenDesk, file_server: ServerProcess, tmp_path: Path) -> None:
    file = tmp_path / "question.txt"
    file.write_text("It is late.", "utf-8")
    desk = open_desk(file_server).ready()
    desk["file"].set_input_files(file)
    desk.shows("Es ist spät.")
    assert desk.paths_posted() == ["/v1/translate/stream"]
