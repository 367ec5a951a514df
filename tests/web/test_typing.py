"""What is typed is translated while one types, and nothing that is superseded is worked on or shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from tests.api.echo import GOLDEN, let_through
from tests.api.server_process import ServerProcess
from tests.web.conftest import OpenDesk
from tests.web.desk import Desk

STATION, STATION_DE = "Where is the station?", "Wo ist der Bahnhof?"
LATE, LATE_DE = "It is late.", "Es ist spät."
STREAM = "**/v1/translate/stream"
NEVER_ABORTS = "AbortController.prototype.abort = () => {}"


@pytest.fixture(scope="module")
def held_server(echo_command: list[str], hang_file: Path) -> Iterator[ServerProcess]:
    """Says the text itself, and hangs while `hang_file` exists."""
    with ServerProcess([*echo_command, f"hang_file={hang_file}"]) as server:
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
    open_desk: OpenDesk, held_server: ServerProcess, hang_file: Path
) -> None:
    """With a beam nothing is streamed before the end: it is the abort that ends the work."""
    desk = open_desk(held_server).ready()
    cancelled = held_server.metric('transduce_rejected_total{reason="cancelled"}')
    hang_file.touch()
    desk.type(f"{GOLDEN} {GOLDEN}")
    held_server.wait_until("transduce_inflight_requests", 1)
    desk.type("Anna sees.")
    held_server.wait_until('transduce_rejected_total{reason="cancelled"}', cancelled + 1)
    hang_file.unlink()
    desk.shows("Anna sees.")
    held_server.wait_until("transduce_inflight_requests", 0)


def test_what_is_typed_next_cancels_before_it_is_asked(
    open_desk: OpenDesk, held_server: ServerProcess, hang_file: Path
) -> None:
    desk = open_desk(held_server).ready()
    hang_file.touch()
    desk.type(GOLDEN)
    held_server.wait_until("transduce_inflight_requests", 1)
    cancelled = held_server.metric('transduce_rejected_total{reason="cancelled"}')
    desk.type("")
    held_server.wait_until('transduce_rejected_total{reason="cancelled"}', cancelled + 1)
    hang_file.unlink()


def test_a_late_answer_never_overwrites_a_newer_one(open_desk: OpenDesk, model_server: ServerProcess) -> None:
    """The first answer is held until the second is shown, in a browser where aborting does nothing."""
    held: list[Route] = []

    def hold_the_first(page: Page) -> None:
        page.add_init_script(NEVER_ABORTS)
        page.route(STREAM, lambda route: route.continue_() if held else held.append(route))

    desk = open_desk(model_server, before=hold_the_first).ready()
    with desk.page.expect_request(STREAM):
        desk.type(STATION)
    while not held:
        desk.page.wait_for_timeout(10)
    (first,) = held
    desk.type(LATE)
    desk.shows(LATE_DE)
    with desk.page.expect_response(STREAM):
        first.continue_()
    desk.page.wait_for_timeout(500)
    assert desk["target"].inner_text() == LATE_DE
    assert len(desk.posted) == 2


def test_greedy_words_are_shown_as_they_are_found(
    open_desk: OpenDesk, held_server: ServerProcess, hang_file: Path
) -> None:
    """No step is made before what the one before it found has been shown."""
    desk = open_desk(held_server).ready()
    desk["beam"].select_option("1")
    let_through(hang_file, 1)
    desk.type(GOLDEN)
    parts = [""]
    for _ in range(4):
        let_through(hang_file, 1)
        expect(desk["target"]).not_to_have_text(parts[-1])
        parts.append(desk["target"].inner_text())
    hang_file.unlink()
    assert all(GOLDEN.startswith(part) for part in parts)
    assert parts == sorted(set(parts), key=len)
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
