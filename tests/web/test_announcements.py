"""What a screen reader announces: the start of a search or of a file's translation, and each message once."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.web.page_object import TranslatePage

STATION, STATION_DE = "Where is the station?", "Wo ist der Bahnhof?"
# Counts the changes within an element, and those of whether it is shown.
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


def test_a_change_of_the_sentence_is_announced(ui: TranslatePage) -> None:
    ui.type(f"Why?\n{STATION}")
    ui.shows(f"Warum?\n{STATION_DE}")
    expect(ui.page.get_by_role("status").filter(has_text="1 of 2")).to_be_visible()
