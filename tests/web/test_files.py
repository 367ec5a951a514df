"""Files: short texts are shown and translated, other formats are translated by the server or rejected."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.api.server_process import ServerProcess
from tests.files.samples import DOCUMENT, docx
from tests.web.conftest import OpenUi
from tests.web.page_object import TranslatePage

STATION, STATION_DE = "Where is the station?", "Wo ist der Bahnhof?"
CUES = "1\n00:00:01,000 --> 00:00:02,000\n{}\n"
# Files that a translation as plain text would destroy.
FORMATS = [
    "film.srt",
    "film.vtt",
    "readme.md",
    "strings.po",
    "strings.json",
    "messages.xlf",
    "manual.docx",
    "talk.pptx",
    "manual.odt",
]


@pytest.fixture(scope="module")
def fileless_server(echo_command: list[str]) -> Iterator[ServerProcess]:
    """A server that accepts no files."""
    with ServerProcess(echo_command, {"files_enabled": "false"}) as server:
        yield server.ready()


@pytest.fixture
def fileless(open_ui: OpenUi, fileless_server: ServerProcess) -> TranslatePage:
    return open_ui(fileless_server).ready()


def check_rejected(ui: TranslatePage, *words: str) -> None:
    """Check that the text is cleared and the message has these words."""
    for each in words:
        expect(ui["problem-text"]).to_contain_text(each)
    assert ui["source"].input_value() == ""
    for name in ("target", "download", "document", "copy", "progress"):
        assert not ui[name].inner_text().strip() or ui[name].is_hidden(), name
    expect(ui["document"]).to_be_hidden()


def test_a_file_is_translated_in_its_format_and_saved(ui: TranslatePage) -> None:
    ui.open_file("film.srt", CUES.format(STATION).encode())
    expect(ui["download"]).to_have_text("Download film.de.srt")
    with ui.page.expect_download() as download:
        ui["download"].click()
    assert download.value.suggested_filename == "film.de.srt"
    assert Path(download.value.path()).read_text("utf-8") == CUES.format(STATION_DE)
    ui.type("It is late.")
    ui.shows("Es ist spät.")
    expect(ui["document"]).to_be_hidden()
    expect(ui["download"]).to_be_hidden()


def test_a_download_that_breaks_off_is_retried(ui: TranslatePage, tmp_path: Path) -> None:
    """The retry sends the file as it was when the user opened it."""
    ui.page.evaluate("""() => {
      const send = window.fetch;
      window.fetch = async (path, options) => {
        if (!path.startsWith("download_file/")) return send(path, options);
        window.fetch = send;
        return new Response(new ReadableStream({ pull: (body) => body.error(new TypeError("network error")) }));
      };
    }""")
    file = tmp_path / "film.srt"
    file.write_text(CUES.format(STATION), "utf-8")
    ui["file"].set_input_files(file)
    expect(ui["problem-text"]).to_contain_text("The connection to the server was lost. Trying again in")
    file.unlink()
    change_options(ui)
    ui["retry"].click()
    expect(ui["download"]).to_have_text("Download film.de.srt")


def change_options(ui: TranslatePage) -> None:
    """Change options that concern only texts, and the source language."""
    ui["beam"].select_option("8")
    ui["format"].select_option("html")
    ui["source-language"].select_option("auto")
    ui["source"].press("Control+Enter")
    ui["terms"].evaluate("box => { box.value = 'a = b'; box.dispatchEvent(new Event('input')); }")


def test_options_of_a_text_leave_a_file_alone(ui: TranslatePage) -> None:
    held = ui.hold("**/translate_file")
    with ui.page.expect_request("**/translate_file"):
        ui.open_file("film.srt", CUES.format(STATION).encode())
    change_options(ui)
    expect(ui["document-state"]).to_have_text("Translating film.srt into German…")
    (request,) = held
    request.continue_()
    expect(ui["download"]).to_be_visible()
    change_options(ui)
    expect(ui["download"]).to_be_visible()
    ui["document-close"].click()
    expect(ui["document"]).to_be_hidden()


@pytest.mark.parametrize("name", ["folder", "folder.docx"])
def test_a_folder_is_refused(ui: TranslatePage, tmp_path: Path, name: str) -> None:
    """The page treats it as a file that cannot be read any more."""
    (tmp_path / name).mkdir()
    data = {"items": [], "files": [str(tmp_path / name)], "dragOperationsMask": 1}
    session = ui.page.context.new_cdp_session(ui.page)
    for kind in ("dragEnter", "dragOver", "dragOver", "drop"):  # Chromium enters at the first dragOver
        session.send("Input.dispatchDragEvent", {"type": kind, "x": 300, "y": 300, "data": data})
    check_rejected(ui, f"{name} could not be read: it is a folder", "Open it again.")
    assert ui.posted == []


@pytest.mark.parametrize("is_typed", [True, False], ids=["a text", "a file"])
def test_a_file_that_is_read_slowly_does_not_replace_newer_input(ui: TranslatePage, is_typed: bool) -> None:
    ui.page.evaluate("""() => {
      const read = Blob.prototype.arrayBuffer;
      Blob.prototype.arrayBuffer = async function () {
        Blob.prototype.arrayBuffer = read;
        await new Promise((resolve) => (window.goOn = resolve));
        return read.call(this);
      };
    }""")
    ui.open_file("slow.txt", b"No.")
    if is_typed:
        ui.type(STATION)
    else:
        ui.open_file("question.txt", STATION.encode())
    expect(ui["source"]).to_have_value(STATION)
    ui.page.evaluate("() => { goOn(); return new Promise((resolve) => setTimeout(resolve, 50)); }")
    assert ui["source"].input_value() == STATION
    ui.shows(STATION_DE)


def test_after_a_word_file_the_pane_shows_the_result(ui: TranslatePage) -> None:
    ui.open_file("manual.docx", docx(DOCUMENT.replace("Inside a box", STATION)))
    expect(ui["document-state"]).to_have_text("manual.docx is translated into German.")
    expect(ui["empty"]).to_be_hidden()
    expect(ui["spoken"]).to_have_text("manual.docx is translated into German.")
    link, pane = (
        ui["download"].bounding_box(),
        ui.page.locator(".pane.target").bounding_box(),
    )
    assert link is not None
    assert pane is not None
    assert link["height"] >= 40, "a button"
    assert pane["y"] < link["y"] < pane["y"] + pane["height"] - link["height"]
    with ui.page.expect_download() as download:
        ui["download"].click()
    assert download.value.suggested_filename == "manual.de.docx"
    archive = zipfile.ZipFile(BytesIO(Path(download.value.path()).read_bytes()))
    assert STATION_DE in archive.read("word/document.xml").decode()
    ui["document-close"].click()
    expect(ui["document"]).to_be_hidden()
    expect(ui["empty"]).to_be_visible()


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_not_offered_with_files_disabled(fileless: TranslatePage, name: str) -> None:
    """Such a file is not sent either."""
    offered = fileless["file"].get_attribute("accept")
    assert offered == ".txt,.html,.htm"
    fileless.type("It is late.")
    fileless.shows("It is late.")
    num_posted = len(fileless.posted)
    fileless.open_file(name, b"**red**")
    for words in (f"{name} is not supported", ".txt, .html, or .htm", "or paste its text"):
        expect(fileless["problem-text"]).to_contain_text(words)
    assert len(fileless.posted) == num_posted


def test_the_formats_of_the_server_are_offered(ui: TranslatePage) -> None:
    offered = (ui["file"].get_attribute("accept") or "").split(",")
    assert {Path(name).suffix for name in FORMATS} | {".txt", ".html"} <= set(offered)
    ui.open_file("table.csv", b"a,b")
    check_rejected(ui, "table.csv is not supported", ".docx", "or paste its text")


def test_a_rejected_file_clears_the_text(ui: TranslatePage) -> None:
    ui.open_file("question.txt", STATION.encode())
    ui.shows(STATION_DE)
    ui.open_file("broken.json", b'{"a": ')
    check_rejected(ui, "broken.json was not translated: line 1", "Fix it in the program that created it")
    expect(ui["empty"]).to_be_visible()


def test_a_file_with_an_unsupported_language_pair(ui: TranslatePage) -> None:
    ui["target-language"].evaluate("picker => picker.append(new Option('French', 'fr'))")
    ui["target-language"].select_option("fr")
    ui.open_file("film.srt", CUES.format(STATION).encode())
    check_rejected(ui, "film.srt was not translated", "Choose languages other than English and French")


def test_a_file_with_an_unsupported_encoding(ui: TranslatePage) -> None:
    """The message does not advise other languages."""
    ui.open_file("strings.po", b'msgid ""\nmsgstr "Content-Type: text/plain; charset=moon\\n"\n')
    check_rejected(ui, "an encoding that is not supported", "Fix it in the program that created it")


def test_a_file_that_is_too_large_is_not_sent(ui: TranslatePage, tmp_path: Path) -> None:
    file = tmp_path / "film.srt"
    file.write_bytes(b"a" * 10_000_001)
    ui["file"].set_input_files(file)  # by its path: Playwright sends contents slowly
    check_rejected(
        ui, "film.srt is larger than the 10 MB that this server accepts", "Split it into smaller files."
    )
    assert ui.posted == []


def test_a_text_file_is_read_in_the_browser(ui: TranslatePage) -> None:
    ui.open_file("question.txt", b"It is late.")
    ui.shows("Es ist spät.")
    assert ui.paths_posted() == ["/v1/translate/stream"]


def test_a_text_too_long_for_the_box_is_translated_as_a_file(ui: TranslatePage) -> None:
    ui.open_file("long.txt", b"It is late.\n" * 500)
    expect(ui["download"]).to_have_text("Download long.de.txt")
    assert ui.paths_posted() == ["/translate_file"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff\xfe\x00", "is not text in UTF-8. Save it as text in UTF-8"),
        (b"a\0b", "is not text in UTF-8"),
        (b"a" * 6_000, "longer than the 5,000 characters"),
        (b"a" * 30_000, "longer than the 5,000 characters"),
    ],
)
def test_a_file_that_is_not_utf8_or_too_long_is_rejected(
    fileless: TranslatePage, content: bytes, words: str
) -> None:
    fileless.open_file("file.txt", content)
    check_rejected(fileless, words)
    assert fileless.posted == []


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf \r\n"], ids=["no bytes", "white space"])
def test_a_file_without_text_is_rejected(ui: TranslatePage, content: bytes) -> None:
    ui.open_file("empty.txt", content)
    check_rejected(ui, "empty.txt has no text.")
    assert ui.posted == []


def test_the_length_of_a_file_is_counted_without_carriage_returns(fileless: TranslatePage) -> None:
    """The text area has no carriage returns."""
    fileless.open_file("lines.txt", b"Anna sees the river.\r\n" * 230)
    expect(fileless["count"]).to_have_text("4,830 / 5,000")
    expect(fileless["target"]).to_contain_text("Anna sees the river.")


def drop(ui: TranslatePage, files: dict[str, str]) -> None:
    """Drop files on the page. files: from names to texts."""
    transfer = ui.page.evaluate_handle(
        """files => {
          const transfer = new DataTransfer();
          for (const [name, text] of Object.entries(files)) transfer.items.add(new File([text], name));
          return transfer;
        }""",
        files,
    )
    ui.page.dispatch_event("#translator", "dragover", {"dataTransfer": transfer})
    expect(ui["veil"]).to_be_visible()
    ui.page.dispatch_event("#translator", "drop", {"dataTransfer": transfer})
    expect(ui["veil"]).to_be_hidden()


def test_several_files_are_not_opened(ui: TranslatePage) -> None:
    """One of them alone would hide that the others are missing."""
    drop(ui, {"one.txt": "Why?", "two.txt": STATION})
    check_rejected(ui, "This page translates one file at a time. Drop a single file.")
    assert ui.posted == []


REFUSED = {
    "several": {"one.txt": "Why?", "two.txt": STATION},
    "an unknown format": {"scan.pdf": "Why?"},
    "too large": {"large.srt": "a" * 10_000_001},
}


@pytest.mark.parametrize("files", REFUSED.values(), ids=REFUSED)
def test_a_file_that_is_refused_unread_replaces_nothing(ui: TranslatePage, files: dict[str, str]) -> None:
    """The text with its translation stays, and so does a file that the server translates."""
    ui.type(STATION)
    ui.shows(STATION_DE)
    drop(ui, files)
    expect(ui["problem"]).to_be_visible()
    expect(ui["source"]).to_have_value(STATION)
    ui.shows(STATION_DE)
    held = ui.hold("**/translate_file")
    with ui.page.expect_request("**/translate_file"):
        drop(ui, {"film.srt": CUES.format(STATION)})
    drop(ui, files)
    expect(ui["problem"]).to_be_visible()
    expect(ui["document-state"]).to_have_text("Translating film.srt into German…")
    held[0].continue_()
    expect(ui["download"]).to_be_visible()


def test_refused_files_do_not_stop_the_retry_of_the_request_for_the_models(
    open_ui: OpenUi, model_server: ServerProcess
) -> None:
    def fail_once(page: Page) -> None:
        page.route("**/v1/models", lambda route: route.abort(), times=1)

    ui = open_ui(model_server, before=fail_once)
    expect(ui["problem-text"]).to_contain_text("Trying again in")
    drop(ui, {"one.txt": "Why?", "two.txt": STATION})
    ui.ready().type("It is late.")
    ui.shows("Es ist spät.")


def test_html_is_read_as_html_with_files_disabled(fileless: TranslatePage) -> None:
    drop(fileless, {"question.html": f"<p>{STATION}</p>"})
    fileless.shows(f"<p>{STATION}</p>")
    assert fileless["format"].input_value() == "html"
