"""What is typed is translated while one types, and nothing that is superseded is worked on or shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from tests.api.echo import GOLDEN
from tests.api.server_process import ServerProcess
from tests.web.conftest import OpenDesk
from tests.web.desk import Desk

STATION, STATION_DE = "Where is the station?", "Wo ist der Bahnhof?"
LATE, LATE_DE = "It is late.", "Es ist spät."
STREAM = "**/v1/translate/stream"
NEVER_ABORTS = "AbortController.prototype.abort = () => {}"


@pytest.fixture(scope="module")
def slow_server(echo_command: list[str]) -> Iterator[ServerProcess]:
    """Says the text itself, a subword each tenth of a second."""
    with ServerProcess([*echo_command, "step_s=0.1"]) as server:
        yield server.ready()


def test_typing_translates(desk: Desk) -> None:
    desk["source"].press_sequentially(STATION, delay=15)
    desk.shows(STATION_DE)
    assert desk["target"].get_attribute("lang") == "de"
    assert len(desk.posted) < len(STATION) / 2, "keys in quick succession are one request"


def test_the_answer_is_spoken_once_it_is_whole(desk: Desk) -> None:
    desk.type(STATION)
    expect(desk["spoken"]).to_have_text(STATION_DE)
    assert desk["spoken"].get_attribute("aria-live") == "polite"


def test_lines_stay(desk: Desk) -> None:
    desk.type(f"{LATE}\n\n  {STATION}")
    desk.shows(f"{LATE_DE}\n\n  {STATION_DE}")


def test_an_emptied_box_empties_the_translation(desk: Desk) -> None:
    desk.type(STATION)
    desk.shows(STATION_DE)
    desk["clear"].click()
    expect(desk["empty"]).to_be_visible()
    expect(desk["alignment"]).to_be_hidden()
    assert desk["target"].inner_text() == ""
    assert desk["source"].evaluate("box => box === document.activeElement")


def test_the_language_is_detected(open_desk: OpenDesk, model_server: ServerProcess) -> None:
    desk = open_desk(model_server)
    expect(desk["model"]).not_to_be_empty()
    assert desk["source-language"].input_value() == "auto"
    desk.type("The children are playing in the garden behind the house.")
    expect(desk["source-language"].locator("option:checked")).to_have_text("Detected: English")


def test_a_superseded_request_is_cancelled_at_the_server(
    open_desk: OpenDesk, slow_server: ServerProcess
) -> None:
    """With a beam nothing is streamed before the end: it is the abort that ends the work."""
    desk = open_desk(slow_server).ready()
    cancelled = slow_server.metric('transduce_rejected_total{reason="cancelled"}')
    desk.type(f"{GOLDEN} {GOLDEN}")
    slow_server.wait_until("transduce_inflight_requests", 1)
    desk.type("Anna sees.")
    slow_server.wait_until('transduce_rejected_total{reason="cancelled"}', cancelled + 1)
    desk.shows("Anna sees.")
    slow_server.wait_until("transduce_inflight_requests", 0)


def test_what_is_typed_next_cancels_before_it_is_asked(
    open_desk: OpenDesk, slow_server: ServerProcess
) -> None:
    desk = open_desk(slow_server).ready()
    desk.type(GOLDEN)
    slow_server.wait_until("transduce_inflight_requests", 1)
    cancelled = slow_server.metric('transduce_rejected_total{reason="cancelled"}')
    desk.type("")
    slow_server.wait_until('transduce_rejected_total{reason="cancelled"}', cancelled + 1)


def test_a_late_answer_never_overwrites_a_newer_one(open_desk: OpenDesk, model_server: ServerProcess) -> None:
    """The first answer is held until the second is shown, in a browser where aborting does nothing."""
    held: list[Route] = []

    def hold_the_first(page: Page) -> None:
        page.add_init_script(NEVER_ABORTS)
        page.route(STREAM, lambda route: route.continue_() if held else held.append(route))

    desk = open_desk(model_server, before=hold_the_first).ready()
    desk.type(STATION)
    desk.page.wait_for_timeout(500)
    (first,) = held
    desk.type(LATE)
    desk.shows(LATE_DE)
    with desk.page.expect_response(STREAM):
        first.continue_()
    desk.page.wait_for_timeout(500)
    assert desk["target"].inner_text() == LATE_DE
    assert len(desk.posted) == 2


def test_greedy_words_are_shown_as_they_are_found(open_desk: OpenDesk, slow_server: ServerProcess) -> None:
    desk = open_desk(slow_server).ready()
    desk["beam"].select_option("1")
    desk.type(GOLDEN)
    seen: set[str] = set()
    while desk["target"].get_attribute("aria-busy") != "false":
        seen.add(desk["target"].inner_text())
    parts = sorted(seen - {"", GOLDEN}, key=len)
    assert len(parts) >= 3, seen
    assert all(GOLDEN.startswith(part) for part in parts)
    desk.shows(GOLDEN)


def test_time_and_counts_are_told(desk: Desk) -> None:
    desk.type(STATION)
    desk.shows(STATION_DE)
    expect(desk["timing"]).to_be_visible()
    figures = dict(
        zip(
            desk["figures"].locator("dt").all_text_contents(),
            desk["figures"].locator("dd").all_text_contents(),
            strict=True,
        )
    )
    assert figures["Sentences"] == "1"
    phases = ("Split and tokenise", "Wait in the queue", "Encode", "Decode", "Join")
    times = [float(figures[phase].removesuffix(" ms")) for phase in phases]
    widths = [bar.evaluate("bar => bar.clientWidth") for bar in desk["phases"].locator("span").all()]
    assert len(widths) == len(times)
    assert times[widths.index(max(widths))] == max(times), "the longest phase is the widest"
    assert figures["Subwords read, written"] == "6, 6"
    assert figures["All here"] == desk["total"].inner_text()
    assert figures["All here"].endswith(("ms", "s"))


def test_the_beam_is_the_models_and_can_be_chosen(desk: Desk) -> None:
    assert desk["beam"].input_value() == "4"
    desk.type(STATION)
    desk.shows(STATION_DE)
    desk["beam"].select_option("8")
    desk.shows(STATION_DE)
    beams = [body["beam_size"] for body in desk.bodies_posted()]
    assert beams == [4, 8]


def test_markup_stays_markup(desk: Desk) -> None:
    desk["format"].select_option("html")
    desk.type("<p>Where is the <b>station</b>?</p>")
    expect(desk["target"]).to_have_text("<p>Wo ist der <b>Bahnhof</b>?</p>")
    assert desk["target"].locator("b").count() == 0
    assert desk.bodies_posted()[-1]["format"] == "html"


def test_a_text_file_is_read(desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "question.txt"
    file.write_text(STATION, "utf-8")
    with desk.page.expect_file_chooser() as chooser:
        desk["open-file"].click()
    chooser.value.set_files(file)
    desk.shows(STATION_DE)
    assert desk["source"].input_value() == STATION


def test_a_file_is_dropped(desk: Desk) -> None:
    page = desk.page
    transfer = page.evaluate_handle(
        """text => {
          const transfer = new DataTransfer();
          transfer.items.add(new File([text], "question.html", { type: "text/html" }));
          return transfer;
        }""",
        f"<p>{STATION}</p>",
    )
    page.dispatch_event("#desk", "dragover", {"dataTransfer": transfer})
    expect(desk["veil"]).to_be_visible()
    page.dispatch_event("#desk", "drop", {"dataTransfer": transfer})
    expect(desk["veil"]).to_be_hidden()
    expect(desk["target"]).to_have_text(f"<p>{STATION_DE}</p>")
    assert desk["format"].input_value() == "html"


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"\xff\xfe\x00", "no text in UTF-8"), (b"a\0b", "no text in UTF-8"), (b"a" * 30_000, "5,000")],
)
def test_a_file_that_is_no_text_is_refused(desk: Desk, tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "file.txt"
    file.write_bytes(content)
    desk["file"].set_input_files(file)
    expect(desk["problem-text"]).to_contain_text(words)
    assert desk.posted == []
