"""The start of the page: its first languages, the example, what Back restores, and modules that cannot be loaded."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, Route, expect

from tests.api.server_process import ServerProcess
from tests.web.conftest import OpenUi
from tests.web.page_object import TranslatePage, hold

STATION, STATION_DE = "Where is the station?", "Wo ist der Bahnhof?"
GARDEN = "The children are playing in the garden behind the house."
GARDEN_DE = "Die Kinder spielen im Garten hinter dem Haus."
CHOICES = ("source-language", "target-language", "beam")


def test_the_example_is_translated(open_ui: OpenUi, model_server: ServerProcess) -> None:
    """Also after the user has chosen languages for another text. If detection was selected, it stays selected."""
    ui = open_ui(model_server)
    expect(ui["example"]).to_be_visible()
    for source, target, expected in (("auto", "de", "auto"), ("auto", "en", "auto"), ("de", "en", "en")):
        ui["source-language"].select_option(source)
        ui["target-language"].select_option(target)
        ui["example"].click()
        ui.shows(f"{STATION_DE} Es ist spät, und ich möchte nach Hause gehen.")
        assert ui["source-language"].input_value() == expected
        ui["clear"].click()


def test_the_first_target_is_the_first_pairs_target(open_ui: OpenUi, model_server: ServerProcess) -> None:
    """By name, English would be the first target, but the first pair has German. So an English text is translated."""
    ui = open_ui(model_server)
    expect(ui["target-language"]).to_have_value("de")
    ui.type(STATION)
    ui.shows(STATION_DE)


def test_a_text_in_the_target_language_shows_a_message(open_ui: OpenUi, model_server: ServerProcess) -> None:
    ui = open_ui(model_server)
    ui["target-language"].select_option("en")
    ui.type(GARDEN)
    message = "The text is already in English. Choose another target language."
    expect(ui["nothing"]).to_have_text(message)
    expect(ui["nothing"]).to_be_visible()
    expect(ui["spoken"]).to_have_text(message)
    expect(ui["target"]).to_have_text("")
    for name in ("timing", "copy", "alignment"):
        expect(ui[name]).to_be_hidden()
    ui["target-language"].select_option("de")
    ui.shows(GARDEN_DE)
    expect(ui["nothing"]).to_be_hidden()
    expect(ui["timing"]).to_be_visible()


def test_with_one_target_the_message_does_not_advise_another(
    open_ui: OpenUi, echo_command: list[str]
) -> None:
    with ServerProcess(echo_command) as server:
        ui = open_ui(server.ready())
        ui.type(GARDEN_DE)
        expect(ui["nothing"]).to_have_text("The text is already in German.")


def values(ui: TranslatePage) -> list[str]:
    return [ui[name].input_value() for name in CHOICES]


@pytest.mark.parametrize("by_link", [False, True], ids=["", "after the link to the text"])
def test_after_back_the_text_is_translated_as_before(
    open_ui: OpenUi, model_server: ServerProcess, by_link: bool
) -> None:
    ui = open_ui(model_server).ready("de")
    ui["beam"].select_option("8")
    ui.type("Es ist spät.")
    expect(ui["copy"]).to_be_visible()
    translation = ui["target"].inner_text()
    if by_link:
        ui.page.locator(".skip").focus()
        ui.page.keyboard.press("Enter")
        ui.page.wait_for_function("() => location.hash && history.state")
    ui.page.goto(f"{ui.url}/docs")
    num_posted = len(ui.posted)
    ui.page.go_back()
    ui.shows(translation)
    assert values(ui) == ["de", "en", "8"]
    body = ui.bodies_posted()[num_posted]
    assert (body["source"], body["target"], body["beam_size"]) == ("de", "en", 8)
    ui.page.goto(f"{ui.url}/docs")
    ui.page.goto(f"{ui.url}/")
    expect(ui["model"]).not_to_be_empty()
    assert values(ui) == ["auto", "de", "4"]


def test_languages_that_are_no_longer_served_are_not_restored(
    open_ui: OpenUi, model_server: ServerProcess
) -> None:
    kept = "history.replaceState({ source: 'fr', target: 'it', beam: '3' }, '')"
    ui = open_ui(model_server, before=lambda page: page.add_init_script(kept))
    expect(ui["model"]).not_to_be_empty()
    assert values(ui) == ["auto", "de", "4"]


@pytest.mark.parametrize("content", [None, "}"], ids=["not loaded", "not understood"])
def test_a_module_that_fails_shows_a_message(
    open_ui: OpenUi, model_server: ServerProcess, content: str | None
) -> None:
    def fail(route: Route) -> None:
        if content is None:
            route.abort()
        else:
            route.fulfill(body=content, content_type="text/javascript")

    def break_module(page: Page) -> None:
        page.route("**/assets/heatmap.js", fail)

    ui = open_ui(model_server, before=break_module)
    expect(ui["problem-text"]).to_have_text("The page could not be loaded. Reload it.")
    expect(ui["problem"]).to_be_visible()
    if content is not None:
        assert ui.script_errors
        ui.script_errors.clear()
    ui.page.unroute("**/assets/heatmap.js")
    ui.page.reload()
    expect(ui["model"]).not_to_be_empty()
    expect(ui["problem"]).to_be_hidden()


def fail_before_load(path: str) -> str:
    """A script that reports, before the page is loaded, that the script at this path has failed.

    path: relative to the page, or a whole URL.
    """
    fields = f"{{ filename: new URL('{path}', document.baseURI).href }}"
    event = f"new ErrorEvent('error', {fields})"
    return f"document.addEventListener('DOMContentLoaded', () => dispatchEvent({event}))"


@pytest.mark.parametrize(
    ("path", "is_shown"),
    [("assets/page.js", True), ("chrome-extension://x/assets/page.js", False), ("x.js", False)],
    ids=["own", "extension", "other"],
)
def test_only_a_script_of_the_page_that_fails_shows_a_message(
    open_ui: OpenUi, model_server: ServerProcess, path: str, *, is_shown: bool
) -> None:
    """A page that asks for a key works, so the message disappears then."""
    held: list[Route] = []

    def prepare(page: Page) -> None:
        page.add_init_script(fail_before_load(path))
        hold(page, "**/assets/server.json", held)

    ui = open_ui(model_server, before=prepare)
    expect(ui["problem"]).to_be_visible(visible=is_shown)
    facts = {"needs_key": True, "has_docs": False, "file_suffixes": [], "max_characters": 10}
    held[0].fulfill(json=facts)
    expect(ui["key"]).to_be_focused()
    expect(ui["problem"]).to_be_hidden()


def test_a_picture_that_fails_shows_no_message(open_ui: OpenUi, model_server: ServerProcess) -> None:
    ui = open_ui(
        model_server, before=lambda page: page.route("**/assets/icon.svg", lambda route: route.abort())
    )
    ui.ready().type(STATION)
    ui.shows(STATION_DE)
    expect(ui["problem"]).to_be_hidden()
