"""What a screen reader announces: the start of a search or of a file's translation, and each message once."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.web.page_object import TranslatePage

STATION, STATION_DE = "Where is the station?", "Wo ist der Bahnhof?"
# Counts the changes of the contents and attributes of an element. The attribute `hidden` is one of them.
COUNT_CHANGES = """box => {
  window.numChanges = 0;
  const observer = new MutationObserver((changes) => (window.numChanges += changes.length));
  observer.observe(box, { attributes: true, characterData: true, childList: true, subtree: true });
}"""


def num_changes(ui: TranslatePage) -> int:
    num: int = ui.page.evaluate("() => numChanges")
    return num


def test_a_text_that_stays_too_long_is_announced_once(ui: TranslatePage) -> None:
    ui.type("x" * 5001)
    expect(ui["problem"]).to_be_visible()
    ui["problem"].evaluate(COUNT_CHANGES)
    ui["source"].press("x")
    expect(ui["count"]).to_have_text("5,002 / 5,000")
    assert num_changes(ui) == 0


def test_an_ignored_line_is_announced_once(ui: TranslatePage) -> None:
    ui.page.get_by_text("Glossary", exact=True).click()
    ui["terms"].fill("stati")
    expect(ui["terms-hint"]).to_contain_text("Ignored lines: 1.")
    ui["terms-hint"].evaluate(COUNT_CHANGES)
    ui["terms"].fill("station")
    assert num_changes(ui) == 0
    ui["terms"].fill("station = Haltestelle")
    expect(ui["terms-hint"]).not_to_contain_text("Ignored lines")
    assert num_changes(ui) > 0


def test_the_start_of_a_file_is_announced(ui: TranslatePage) -> None:
    ui.page.route("**/translate_file", lambda route: None)  # there is no answer
    ui.open_file("film.srt", b"1\n00:00:01,000 --> 00:00:02,000\nIt is late.\n")
    expect(ui["spoken"]).to_have_text("Translating film.srt into German…")


def test_the_search_for_alternatives_is_announced(ui: TranslatePage) -> None:
    ui.type(STATION)
    ui.shows(STATION_DE)
    ui.page.route("**/v1/score", lambda route: None)  # there is no answer
    ui.word("Bahnhof").click()
    expect(ui["spoken"]).to_have_text("Looking for alternatives…")
    ui.page.keyboard.press("Escape")
    expect(ui["spoken"]).to_be_empty()


def test_a_sentence_chosen_with_a_button_is_announced(ui: TranslatePage) -> None:
    """Before the click, only translations are announced. No sentence is announced when a word of it gets the focus."""
    ui.type(f"Why?\n{STATION}")
    ui.shows(f"Warum?\n{STATION_DE}")
    expect(ui["spoken"]).to_contain_text("Warum?")
    expect(ui.page.get_by_role("status").filter(has_text="1 of 2")).to_have_count(0)
    ui.word("Bahnhof").focus()
    expect(ui["which"]).to_have_text("2 of 2")
    expect(ui["spoken"]).to_contain_text("Warum?")
    ui["previous"].click()
    expect(ui["spoken"]).to_have_text("Sentence 1 of 2")


def test_only_ten_of_many_ignored_lines_are_numbered(ui: TranslatePage) -> None:
    ui.page.get_by_text("Glossary", exact=True).click()
    # A fill enters each line alone, and takes too long.
    ui["terms"].evaluate(
        "box => { box.value = 'station\\n'.repeat(6000); box.dispatchEvent(new Event('input')); }"
    )
    expect(ui["terms-hint"]).to_contain_text(
        "Ignored lines: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 5,990 more. Write"
    )


def test_the_countdown_is_not_in_the_name_of_its_button(ui: TranslatePage) -> None:
    ui.page.route("**/v1/translate/stream", lambda route: route.abort())
    ui.type(STATION)
    button = ui.page.get_by_role("button", name="Try now", exact=True)
    expect(button).to_have_text(re.compile(r"^Try now \(\d+\)$"))
