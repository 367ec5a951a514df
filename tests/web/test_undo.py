"""The button Undo brings back a text that the page, not the user, has replaced."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.web.page_object import TranslatePage

STATION, STATION_DE = "Where is the station?", "Wo ist der Bahnhof?"
LATE_DE = "Es ist spät."


@pytest.mark.parametrize("by", ["button", "Control+z", "Meta+z"])
def test_a_removed_text_comes_back(ui: TranslatePage, by: str) -> None:
    ui.type(STATION)
    ui.shows(STATION_DE)
    expect(ui["undo"]).to_be_hidden()
    ui["clear"].click()
    expect(ui["source"]).to_have_value("")
    if by == "button":
        ui["undo"].click()
    else:
        ui["source"].press(by)
    expect(ui["source"]).to_have_value(STATION)
    ui.shows(STATION_DE)
    expect(ui["undo"]).to_be_hidden()
    expect(ui["source"]).to_be_focused()


@pytest.mark.parametrize(
    ("name", "content"),
    [("broken.json", '{"a": '), ("readme.md", "It is late."), ("short.txt", "It is late.")],
    ids=["a refused file", "a file for the server", "a short text"],
)
def test_a_text_that_a_file_has_replaced_comes_back(ui: TranslatePage, name: str, content: str) -> None:
    ui.type(STATION)
    ui.shows(STATION_DE)
    ui.open_file(name, content.encode())
    if name == "short.txt":
        ui.shows(LATE_DE)
    else:
        shown = ui["download"].or_(ui["problem-text"].filter(has_text="was not translated"))
        expect(shown.filter(visible=True)).to_be_visible()
    ui["undo"].click()
    expect(ui["source"]).to_have_value(STATION)
    ui.shows(STATION_DE)
    for hidden in ("document", "problem"):
        expect(ui[hidden]).to_be_hidden()


def test_input_leaves_nothing_to_undo(ui: TranslatePage) -> None:
    """Then the browser's own undo is for this input."""
    ui.type("Why?")
    ui["clear"].click()
    ui["source"].press_sequentially("No")
    expect(ui["undo"]).to_be_hidden()
    ui["source"].press("Control+z")
    expect(ui["source"]).not_to_have_value("Why?")
