"""Text is translated while typing, and superseded requests are cancelled and never shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from app.translator.request import Timings
from tests.api.echo import GOLDEN, release_steps
from tests.api.server_process import ServerProcess
from tests.web.conftest import OpenUi
from tests.web.page_object import TranslatePage

STATION, STATION_DE = "Where is the station?", "Wo ist der Bahnhof?"
LATE, LATE_DE = "It is late.", "Es ist spät."
STREAM = "**/v1/translate/stream"
NEVER_ABORTS = "AbortController.prototype.abort = () => {}"


@pytest.fixture(scope="module")
def held_server(echo_command: list[str], hang_file: Path) -> Iterator[ServerProcess]:
    """A server that returns the input and hangs while `hang_file` exists."""
    with ServerProcess([*echo_command, f"hang_file={hang_file}"]) as server:
        yield server.ready()


def test_typing_translates(ui: TranslatePage) -> None:
    ui["source"].press_sequentially(STATION, delay=15)
    ui.shows(STATION_DE)
    assert ui["target"].get_attribute("lang") == "de"
    assert len(ui.posted) < len(STATION) / 2, "quick typing must not send a request for each key"


def test_the_page_shows_that_it_waits_for_a_translation(ui: TranslatePage) -> None:
    """Instead of the invitation to type."""
    expect(ui["empty"]).to_be_visible()
    held = ui.hold(STREAM)
    with ui.page.expect_request(STREAM):
        ui.type(STATION)
    expect(ui["empty"]).to_be_hidden()
    ui["target"].evaluate("box => box.getAnimations({ subtree: true }).forEach((each) => each.finish())")
    for name, value in (("content", '"Translating…"'), ("visibility", "visible")):
        expect(ui["target"]).to_have_css(name, value, pseudo="before")
    held[0].continue_()
    ui.shows(STATION_DE)
    expect(ui["target"]).to_have_css("content", "none", pseudo="before")


def test_a_complete_translation_is_announced(ui: TranslatePage) -> None:
    ui.type(STATION)
    expect(ui["spoken"]).to_have_text(STATION_DE)
    assert ui["spoken"].get_attribute("aria-live") == "polite"


def test_line_breaks_are_kept(ui: TranslatePage) -> None:
    ui.type(f"{LATE}\n\n  {STATION}")
    ui.shows(f"{LATE_DE}\n\n  {STATION_DE}")
    assert ui["target"].inner_text() == f"{LATE_DE}\n\n  {STATION_DE}"


def test_an_empty_text_clears_the_translation(ui: TranslatePage) -> None:
    ui.type(STATION)
    ui.shows(STATION_DE)
    ui["clear"].click()
    expect(ui["empty"]).to_be_visible()
    expect(ui["alignment"]).to_be_hidden()
    assert ui["target"].inner_text() == ""
    assert ui["source"].evaluate("box => box === document.activeElement")


def test_the_language_is_detected(open_ui: OpenUi, model_server: ServerProcess) -> None:
    ui = open_ui(model_server)
    expect(ui["model"]).not_to_be_empty()
    assert ui["source-language"].input_value() == "auto"
    ui.type("The children are playing in the garden behind the house.")
    expect(ui["source-language"].locator("option:checked")).to_have_text("Detected: English")


def test_a_superseded_request_is_cancelled_at_the_server(
    open_ui: OpenUi, held_server: ServerProcess, hang_file: Path
) -> None:
    """With a beam, no text is streamed before the end. So only the cancellation can end the work."""
    ui = open_ui(held_server).ready()
    cancelled = held_server.metric('transduce_rejected_total{reason="cancelled"}')
    hang_file.touch()
    ui.type(f"{GOLDEN} {GOLDEN}")
    held_server.wait_until("transduce_inflight_requests", 1)
    ui.type("Anna sees.")
    held_server.wait_until('transduce_rejected_total{reason="cancelled"}', cancelled + 1)
    hang_file.unlink()
    ui.shows("Anna sees.")
    held_server.wait_until("transduce_inflight_requests", 0)


def test_clearing_the_text_cancels_its_request(
    open_ui: OpenUi, held_server: ServerProcess, hang_file: Path
) -> None:
    ui = open_ui(held_server).ready()
    hang_file.touch()
    ui.type(GOLDEN)
    held_server.wait_until("transduce_inflight_requests", 1)
    cancelled = held_server.metric('transduce_rejected_total{reason="cancelled"}')
    ui.type("")
    held_server.wait_until('transduce_rejected_total{reason="cancelled"}', cancelled + 1)
    hang_file.unlink()


def test_a_late_response_never_overwrites_a_newer_one(open_ui: OpenUi, model_server: ServerProcess) -> None:
    """The first response is held until the second is shown, in a browser where aborting has no effect."""
    held: list[Route] = []

    def hold_the_first(page: Page) -> None:
        page.add_init_script(NEVER_ABORTS)
        page.route(STREAM, lambda route: route.continue_() if held else held.append(route))

    ui = open_ui(model_server, before=hold_the_first).ready()
    with ui.page.expect_request(STREAM):
        ui.type(STATION)
    while not held:
        ui.page.wait_for_timeout(10)
    (first,) = held
    ui.type(LATE)
    ui.shows(LATE_DE)
    with ui.page.expect_response(STREAM):
        first.continue_()
    ui.page.wait_for_timeout(500)
    assert ui["target"].inner_text() == LATE_DE
    assert len(ui.posted) == 2


def test_greedy_words_are_shown_as_they_are_decoded(
    open_ui: OpenUi, held_server: ServerProcess, hang_file: Path
) -> None:
    """Each decoding step waits until the text of the step before is shown."""
    ui = open_ui(held_server).ready()
    ui["beam"].select_option("1")
    hang_file.touch()
    ui.type(GOLDEN)
    parts = [""]
    for _ in range(4):
        release_steps(hang_file, 1)
        expect(ui["target"]).not_to_have_text(parts[-1])
        parts.append(ui["target"].inner_text())
    hang_file.unlink()
    assert all(GOLDEN.startswith(part) for part in parts)
    assert parts == sorted(set(parts), key=len)
    ui.shows(GOLDEN)


def test_an_incomplete_translation_cannot_be_copied(
    open_ui: OpenUi, held_server: ServerProcess, hang_file: Path
) -> None:
    """The button copies the last complete translation, so it is hidden until the new one is complete."""
    sentence = "Nobody sees the river today."  # the other tests' sentences are in the server's cache
    ui = open_ui(held_server).ready()
    ui["beam"].select_option("1")
    ui.type("Anna draws.")
    ui.shows("Anna draws.")
    expect(ui["copy"]).to_be_visible()
    release_steps(hang_file, 3)
    ui.type(sentence)
    expect(ui["target"]).not_to_have_text("Anna draws.")
    assert ui["copy"].is_hidden()
    hang_file.unlink()
    ui.shows(sentence)
    expect(ui["copy"]).to_be_visible()


def test_times_and_counts_are_shown(ui: TranslatePage) -> None:
    ui.type(STATION)
    ui.shows(STATION_DE)
    expect(ui["timing"]).to_be_visible()
    figures = dict(
        zip(
            ui["figures"].locator("dt").all_text_contents(),
            ui["figures"].locator("dd").all_text_contents(),
            strict=True,
        )
    )
    assert figures["Sentences"] == "1"
    phases = ("Split and tokenise", "Wait in the queue", "Encode", "Decode", "Join")
    times = [float(figures[phase].removesuffix(" ms")) for phase in phases]
    widths = [bar.evaluate("bar => bar.clientWidth") for bar in ui["phases"].locator("span").all()]
    assert len(widths) == len(times)
    assert times[widths.index(max(widths))] == max(times), "the longest phase must have the widest bar"
    assert figures["Subwords in, out"] == "7, 6"
    assert figures["All received"] == ui["total"].inner_text()
    assert figures["All received"].endswith(("ms", "s"))


def test_every_phase_has_a_name_and_a_colour(ui: TranslatePage) -> None:
    """The phases include `load`, which a request has only if it waited for its model."""
    names, colours = ui.page.evaluate(
        """async phases => {
          const { drawTiming } = await import("./assets/timing.js");
          const [bar, figures, total] = ["phases", "figures", "total"].map((id) => document.getElementById(id));
          const body = { usage: { source_tokens: 1, target_tokens: 1, sentences: 1 } };
          const result = { body, phases: phases.map((name) => [name, 1]), firstMs: 1, totalMs: 1 };
          drawTiming({ bar, figures, total }, result);
          return [
            [...figures.querySelectorAll("dt.phase")].map((term) => term.textContent),
            [...bar.children].map((part) => getComputedStyle(part).backgroundColor),
          ];
        }""",
        list(Timings._fields),
    )
    assert len({*names} - {*Timings._fields}) == len(Timings._fields)
    assert len({*colours} - {"rgba(0, 0, 0, 0)"}) == len(Timings._fields)


def test_the_default_beam_is_the_models_and_can_be_changed(ui: TranslatePage) -> None:
    assert ui["beam"].input_value() == "4"
    ui.type(STATION)
    ui.shows(STATION_DE)
    ui["beam"].select_option("8")
    ui.shows(STATION_DE)
    beams = [body["beam_size"] for body in ui.bodies_posted()]
    assert beams == [4, 8]


def test_markup_stays_markup(ui: TranslatePage) -> None:
    ui["format"].select_option("html")
    ui.type("<p>Where is the <b>station</b>?</p>")
    expect(ui["target"]).to_have_text("<p>Wo ist der <b>Bahnhof</b>?</p>")
    assert ui["target"].locator("b").count() == 0
    assert ui.bodies_posted()[-1]["format"] == "html"


def test_a_text_file_is_read(ui: TranslatePage, tmp_path: Path) -> None:
    file = tmp_path / "question.txt"
    file.write_text(STATION, "utf-8")
    with ui.page.expect_file_chooser() as chooser:
        ui["open-file"].click()
    chooser.value.set_files(file)
    ui.shows(STATION_DE)
    assert ui["source"].input_value() == STATION
