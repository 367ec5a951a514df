"""The glossary, the widest beam, the swap of the languages, and an empty translation."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.api.server_process import ServerProcess
from tests.web.conftest import OpenUi
from tests.web.page_object import TranslatePage

LATE, LATE_DE = "It is late.", "Es ist spät."
STATION = "Where is the station?"


@pytest.fixture(scope="module")
def two_way_server(echo_command: list[str]) -> Iterator[ServerProcess]:
    """A server that translates from English to German and Italian and back by returning the input."""
    with ServerProcess([*echo_command, "pairs=en>de,de>en,en>it,it>en"]) as server:
        yield server.ready()


def test_glossary_terms_are_translated(ui: TranslatePage) -> None:
    ui.page.get_by_text("Glossary", exact=True).click()
    ui.type(STATION)
    expect(ui["target"]).to_contain_text("Bahnhof")
    ui["terms"].fill("station = Haltestelle")
    expect(ui["target"]).to_contain_text("Haltestelle")
    expect(ui["terms-count"]).to_have_text("(1)")
    assert ui.bodies_posted()[-1]["glossary"] == {"terms": {"station": "Haltestelle"}}
    ui["terms"].fill("")
    expect(ui["target"]).to_contain_text("Bahnhof")
    assert "glossary" not in ui.bodies_posted()[-1]


def test_an_invalid_glossary_line_is_reported(ui: TranslatePage) -> None:
    ui.page.get_by_text("Glossary", exact=True).click()
    ui.type(STATION)
    ui["terms"].fill("river\tFluss\n\nstation\n= nothing\n__proto__ = a = b")
    expect(ui["terms-hint"]).to_contain_text("lines: 3, 4")
    expect(ui["terms-count"]).to_have_text("(2)")
    expect(ui["target"]).to_have_attribute("aria-busy", "false")
    expect(ui["problem"]).to_be_hidden()
    body = json.loads(ui.posted[-1].post_data or "")
    assert body["glossary"] == {"terms": {"river": "Fluss", "__proto__": "a = b"}}


@pytest.mark.parametrize(
    ("line", "entry", "swapped"),
    [
        ("river = Fluss", ["river", "Fluss"], "Fluss = river"),
        ("river\tFluss", ["river", "Fluss"], "Fluss = river"),
        ("river\t=\tFluss", ["river", "Fluss"], "Fluss = river"),
        ("formula = E = mc²", ["formula", "E = mc²"], "E = mc²\tformula"),
        ("E = mc²\tformula", ["E = mc²", "formula"], "formula\tE = mc²"),
        ("formula\tE = mc²", ["formula", "E = mc²"], "E = mc²\tformula"),
        ("a = b =", None, "a = b ="),
        ("a = = b", None, "a = = b"),
        ("a\tb\tc", None, "a\tb\tc"),
        ("a\t", None, "a\t"),
    ],
)
def test_the_sides_of_a_glossary_line(
    shared_ui: TranslatePage, line: str, entry: list[str] | None, swapped: str
) -> None:
    """A swapped line parses to the same two sides, exchanged. So a second swap restores the entry."""
    entries, wrong, swapped_line, entries_of_swapped = shared_ui.page.evaluate(
        """async line => {
          const { parseTerms, swappedTerms } = await import("./assets/terms.js");
          const { terms, wrongLines } = parseTerms(line);
          const swapped = swappedTerms(line);
          return [Object.entries(terms), wrongLines, swapped, Object.entries(parseTerms(swapped).terms)];
        }""",
        line,
    )
    assert (entries, wrong) == (([entry], []) if entry else ([], [1]))
    assert swapped_line == swapped
    assert entries_of_swapped == ([entry[::-1]] if entry else [])


def test_a_model_that_prefers_a_wider_beam_than_the_server_allows(
    open_ui: OpenUi, echo_command: list[str]
) -> None:
    """The widest allowed beam is selected: the model's default is 4, and the server allows 3."""
    settings: dict[str, object] = {"max_beam_size": 3, "max_num_hypotheses": 3}
    with ServerProcess(echo_command, settings) as server:
        ui = open_ui(server.ready()).ready()
        expect(ui["beam"]).to_have_value("3")
        ui.type(LATE)
        expect(ui["target"]).to_contain_text(LATE)
        assert ui.bodies_posted()[-1]["beam_size"] == 3


def test_a_disabled_swap_button_says_why(open_ui: OpenUi, echo_command: list[str]) -> None:
    """The reverse pair is not served, or the language is not known yet."""
    with ServerProcess(echo_command) as server:
        check_swap_reasons(open_ui(server.ready()).ready())


def check_swap_reasons(ui: TranslatePage) -> None:
    expect(ui["swap"]).to_be_disabled()
    expect(ui["swap"]).to_have_accessible_description(
        "This server does not translate from German to English."
    )
    ui["source-language"].select_option("auto")
    expect(ui["swap"]).to_be_disabled()
    expect(ui["swap"]).to_have_attribute(
        "title", "Languages can be swapped when the language of the text is known."
    )


def test_a_swap_moves_the_translation_into_the_source(open_ui: OpenUi, two_way_server: ServerProcess) -> None:
    ui = open_ui(two_way_server).ready()
    ui.page.get_by_text("Glossary", exact=True).click()
    ui["terms"].fill("river = Fluss")
    ui.type("Anna sees the river.")
    ui.shows("Anna sees the Fluss.")
    ui["swap"].click()
    expect(ui["source"]).to_have_value("Anna sees the Fluss.")
    assert ui["source-language"].input_value() == "de"
    assert ui["target-language"].input_value() == "en"
    expect(ui["terms"]).to_have_value("Fluss = river")
    ui.shows("Anna sees the river.")
    body = ui.bodies_posted()[-1]
    assert (body["source"], body["target"], body["text"]) == ("de", "en", "Anna sees the Fluss.")
    ui["undo"].click()
    ui.shows("Anna sees the Fluss.")
    expect(ui["source"]).to_have_value("Anna sees the river.")
    assert [ui[name].input_value() for name in ("source-language", "target-language")] == ["en", "de"]
    expect(ui["terms"]).to_have_value("river = Fluss")


def test_a_swap_keeps_newer_input(open_ui: OpenUi, two_way_server: ServerProcess) -> None:
    """The translation of an older text does not replace newer input."""
    ui = open_ui(two_way_server).ready()
    ui.type("Anna sees the river.")
    ui.shows("Anna sees the river.")
    ui.page.evaluate(
        """() => {
          const source = document.getElementById("source");
          source.value = "Otto sees the sea.";
          source.dispatchEvent(new Event("input"));
          document.getElementById("swap").click();
        }"""
    )
    expect(ui["source"]).to_have_value("Otto sees the sea.")
    ui.shows("Otto sees the sea.")
    assert ui.bodies_posted()[-1]["source"] == "de"


def test_a_swap_leaves_out_a_translation_into_another_language(
    open_ui: OpenUi, two_way_server: ServerProcess
) -> None:
    ui = open_ui(two_way_server).ready()
    ui.page.get_by_text("Glossary", exact=True).click()
    ui["terms"].fill("river = Fluss")
    ui.type("Anna sees the river.")
    ui.shows("Anna sees the Fluss.")
    ui.page.route("**/v1/translate/stream", lambda route: None, times=1)  # there is no answer
    ui["target-language"].select_option("it")
    ui["swap"].click()
    expect(ui["source"]).to_have_value("Anna sees the river.")
    assert [ui[name].input_value() for name in ("source-language", "target-language")] == ["it", "en"]


def test_an_empty_translation_shows_a_message(ui: TranslatePage) -> None:
    """The test replaces the response, so the result does not depend on the model."""
    segment = {
        "source": {"start": 0, "end": 4},
        "target": {"start": 0, "end": 0},
        "score": 0,
        "finish_reason": "stop",
    }
    done = {
        "translations": [{"text": "", "source": "en", "segments": [segment]}],
        "model": {"name": "any", "version": "1"},
        "usage": {"source_tokens": 2, "target_tokens": 1, "sentences": 1},
    }
    content = f"event: done\ndata: {json.dumps(done)}\n\n"
    ui.page.route(
        "**/v1/translate/stream", lambda route: route.fulfill(body=content, content_type="text/event-stream")
    )
    ui.type("Home")
    expect(ui["nothing"]).to_contain_text("empty translation")
    expect(ui["spoken"]).to_contain_text("empty translation")
    for name in ("copy", "empty", "alignment"):
        expect(ui[name]).to_be_hidden()
    ui.page.unroute("**/v1/translate/stream")
    ui.type(LATE)
    ui.shows(LATE_DE)
    expect(ui["nothing"]).to_be_hidden()
