"""Accessibility: keyboard, screen reader, both themes, narrow screens, right-to-left text."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.api.server_process import ServerProcess
from tests.web.barriers import CONTRASTS, MIN_CONTRAST, barriers
from tests.web.conftest import OpenUi
from tests.web.page_object import TranslatePage

STATION, STATION_DE = "Where is the station?", "Wo ist der Bahnhof?"
# A key, the word of the translation that has the focus after it, and the word of the source text that is marked then.
KEYS = [
    ("", "Wo", "Where"),
    ("End", "Bahnhof", "station"),
    ("ArrowRight", "Bahnhof", "station"),
    ("ArrowLeft", "der", "station"),
    ("Home", "Wo", "Where"),
]


@pytest.mark.parametrize("width", [1180, 390])
def test_no_barrier_in_any_state(open_ui: OpenUi, model_server: ServerProcess, width: int) -> None:
    """Motion is reduced, so that no colour is measured while the translation fades."""
    ui = open_ui(model_server, reduced_motion="reduce", viewport={"width": width, "height": 860}).ready()
    assert barriers(ui) == []
    ui.type(f"{STATION} {STATION}\nThe children are playing in the garden.")
    expect(ui["target"]).to_have_attribute("aria-busy", "false")
    ui.word("Bahnhof").first.hover()
    assert barriers(ui) == []
    ui.word("Bahnhof").first.click()
    expect(ui["choices"].get_by_role("option").first).to_be_focused()
    assert barriers(ui) == []
    ui.page.keyboard.press("Escape")
    ui.page.route("**/v1/translate/stream", lambda route: None)  # there is no answer
    ui.type(STATION)
    expect(ui["target"]).to_have_class("words stale")
    ui.word("Bahnhof").first.hover()
    assert barriers(ui) == []
    ui.type("x" * 5001)
    expect(ui["problem"]).to_be_visible()
    assert barriers(ui) == []
    ui.page.get_by_text("Glossary", exact=True).click()
    ui.open_file("film.srt", b"1\n00:00:01,000 --> 00:00:02,000\nIt is late.\n")
    expect(ui["download"]).to_be_visible()
    assert barriers(ui) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_heatmap_colour_is_readable(open_ui: OpenUi, model_server: ServerProcess, theme: str) -> None:
    """Numbers on all ten backgrounds of the attention map."""
    ui = open_ui(model_server, color_scheme=theme).ready()
    ui.type(STATION)
    ui.shows(STATION_DE)
    cell = ui["map"].locator("td.filled").first
    for heat in range(10):
        cell.evaluate("(cell, heat) => { cell.className = `filled heat-${heat}`; }", heat)
        ratios = dict(ui.page.evaluate(CONTRASTS))
        found = [ratio for name, ratio in ratios.items() if name.startswith(f"filled heat-{heat}: ")]
        assert found
        assert min(found) >= MIN_CONTRAST, heat


def test_by_keyboard_alone(open_ui: OpenUi, model_server: ServerProcess) -> None:
    """The keys reach the languages, the text, the buttons and the words of the translation."""
    ui = open_ui(model_server)
    keyboard = ui.page.keyboard
    expect(ui["model"]).not_to_be_empty()
    expect(ui["source"]).to_be_focused()
    ui["source-language"].focus()
    keyboard.press("E")
    assert ui["source-language"].input_value() == "en"
    keyboard.press("Tab")
    expect(ui["swap"]).to_be_focused()
    keyboard.press("Tab")
    expect(ui["target-language"]).to_be_focused()
    keyboard.press("Tab")
    expect(ui["source"]).to_be_focused()
    keyboard.type(STATION)
    ui.shows(STATION_DE)
    for name in ("open-file", "clear"):
        keyboard.press("Tab")
        expect(ui[name]).to_be_focused()
    keyboard.press("Tab")
    for key, word, origin in KEYS:
        if key:
            keyboard.press(key)
        expect(ui.word(word)).to_be_focused()
        assert ui.marked_in_source() == [origin]
    keyboard.press("Tab")
    expect(ui["copy"]).to_be_focused()
    for _ in range(3):
        keyboard.press("Shift+Tab")
    expect(ui["open-file"]).to_be_focused()


def test_another_word_by_keyboard(ui: TranslatePage) -> None:
    keyboard = ui.page.keyboard
    ui.type(STATION)
    ui.shows(STATION_DE)
    ui.word("Bahnhof").focus()
    keyboard.press("Enter")
    options = ui["choices"].get_by_role("option")
    expect(options.first).to_be_focused()
    keyboard.press("ArrowDown")
    expect(options.nth(1)).to_be_focused()
    keyboard.press("ArrowUp")
    keyboard.press("ArrowUp")
    expect(options.last).to_be_focused()
    sentence = options.last.locator(".sentence").inner_text()
    keyboard.press("Enter")
    ui.shows(sentence)
    expect(ui["target"].locator(".word:focus")).to_have_count(1)


def test_the_focus_is_visible(ui: TranslatePage) -> None:
    ui.type(STATION)
    ui.shows(STATION_DE)
    ui["source"].focus()
    line = ui["source"].evaluate("box => getComputedStyle(box.closest('.pane'), '::before').height")
    assert line == "2px"
    for _ in range(7):
        ui.page.keyboard.press("Tab")
        outline = ui.page.evaluate(
            """() => {
              const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement);
              return [outlineStyle, outlineWidth];
            }"""
        )
        assert outline == ["solid", "2px"], ui.page.evaluate("() => document.activeElement.outerHTML")


def test_elements_have_accessible_names(ui: TranslatePage) -> None:
    ui.type(STATION)
    ui.shows(STATION_DE)
    page = ui.page
    assert page.get_by_role("combobox", name="From").count() == 1
    assert page.get_by_role("combobox", name="To").count() == 1
    assert page.get_by_role("textbox", name="Text to translate").count() == 1
    translation = page.get_by_role("group", name="Translation")
    assert translation.get_by_role("button").all_text_contents() == ["Wo", "ist", "der", "Bahnhof"]
    table = page.get_by_role("table")
    assert table.get_by_role("columnheader").all_text_contents() == [
        "Where",
        "is",
        "the",
        "station",
        "?",
        "rest",
    ]
    assert table.get_by_role("rowheader").all_text_contents() == ["Wo", "ist", "der", "Bahnhof", "?"]
    assert translation.get_attribute("lang") == "de"


def test_the_theme_can_be_selected_and_is_kept(open_ui: OpenUi, model_server: ServerProcess) -> None:
    ui = open_ui(model_server, color_scheme="light").ready()

    def background() -> str:
        color: str = ui.page.evaluate("() => getComputedStyle(document.documentElement).backgroundColor")
        return color

    by_system = background()
    ui["theme"].select_option("dark")
    assert background() != by_system
    ui.page.reload()
    assert background() != by_system
    expect(ui["theme"]).to_have_value("dark")
    ui["theme"].select_option("light")
    assert background() == by_system


def test_nothing_is_wider_than_the_window_before_a_language_is_chosen(
    open_ui: OpenUi, model_server: ServerProcess
) -> None:
    """In all states: long names of a model and of a file, no text, terms, a translation, a rejected file."""
    ui = open_ui(model_server)

    def fits() -> None:
        for width in (320, 360, 390, 760):
            assert_fits(ui, width)

    expect(ui["model"]).not_to_be_empty()
    ui["model"].evaluate("box => { box.textContent = `${'m'.repeat(64)} 1 · int8`; }")
    assert ui["source-language"].input_value() == "auto"
    fits()
    ui.page.get_by_text("Glossary", exact=True).click()
    ui["terms"].fill("station\t" + "Haltestelle" * 9)
    ui.type(STATION)
    expect(ui["copy"]).to_be_visible()
    fits()
    ui.open_file(f"{'long' * 15}.txt", b"Where is the station, please?\n" * 300)
    expect(ui["download"]).to_be_visible()
    fits()
    ui.open_file(f"{'long' * 15}.csv", b"a,b")
    expect(ui["problem"]).to_be_visible()
    fits()


def test_nothing_is_wider_than_the_window(ui: TranslatePage) -> None:
    ui.type(f"The children are playing in the garden behind the house while it rains. {'x' * 120}")
    expect(ui["target"]).to_have_attribute("aria-busy", "false")
    expect(ui["timing"]).to_be_visible()
    for width in (320, 390, 760, 1180):
        assert_fits(ui, width)
        ui["target"].locator(".word").first.click()
        expect(ui["choices"].locator("[role=option]").first).to_be_focused()
        box = ui["choices"].bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        ui.page.keyboard.press("Escape")
        expect(ui["choices"]).to_be_hidden()


def assert_fits(ui: TranslatePage, width: int) -> None:
    """The page is not wider than a window of this width, in pixels."""
    ui.page.set_viewport_size({"width": width, "height": 800})
    assert ui.page.evaluate("() => [innerWidth, document.documentElement.scrollWidth]") == [width, width]


def test_from_right_to_left(ui: TranslatePage) -> None:
    """Each box has the direction of its text."""
    ui.type("שלום עולם")
    expect(ui["target"]).to_contain_text("שלום")
    for name in ("source", "mirror", "target"):
        direction = ui[name].evaluate("box => getComputedStyle(box).direction")
        assert direction == "rtl", name
    words = ui["target"].locator(".word")
    words.first.focus()
    ui.page.keyboard.press("ArrowLeft")
    expect(words.nth(1)).to_be_focused()


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("It is late.\nשלום עולם", ["שלום ArrowLeft עולם", "עולם ArrowRight שלום", "Es ArrowRight ist"]),
        ("שלום עולם\nIt is late.", ["שלום ArrowLeft עולם", "Es ArrowRight ist", "ist ArrowLeft Es"]),
    ],
    ids=["English first", "Hebrew first"],
)
def test_an_arrow_key_follows_the_direction_of_the_paragraph(
    ui: TranslatePage, text: str, steps: list[str]
) -> None:
    ui.type(text)
    expect(ui["target"]).to_contain_text("שלום")
    expect(ui["target"]).to_have_attribute("aria-busy", "false")
    for step in steps:
        word, key, following = step.split()
        ui.word(word).focus()
        ui.page.keyboard.press(key)
        expect(ui.word(following)).to_be_focused()


def test_the_mark_in_the_text_is_visible_in_forced_colours(
    open_ui: OpenUi, model_server: ServerProcess
) -> None:
    """The mark is in the mirror, behind the text. In forced colours, the browser draws a background behind letters."""
    ui = open_ui(model_server, forced_colors="active").ready()
    ui.type(STATION)
    ui.shows(STATION_DE)
    ui["beam"].focus()  # there is no caret in the text
    before = ui["source"].screenshot()
    ui.word("Bahnhof").hover()
    assert ui.marked_in_source() == ["station"]
    assert ui["source"].screenshot() != before


def test_selects_and_times_are_drawn_in_forced_colours(open_ui: OpenUi, model_server: ServerProcess) -> None:
    """The browser then draws no pictures and no colours of the background, such as the page's own arrow."""
    ui = open_ui(model_server, forced_colors="active").ready()
    expect(ui["beam"]).to_have_css("appearance", "auto")
    ui.type(STATION)
    expect(ui["phases"].locator(".decode")).to_have_css("background-color", "rgb(13, 107, 98)")


def test_each_paragraph_has_the_direction_of_its_text(ui: TranslatePage) -> None:
    """The mirror, which holds the marks, draws the text as the text area does."""
    ui.type("It is late.\nשלום עולם")
    expect(ui["target"]).to_contain_text("שלום")
    expect(ui["target"]).to_have_attribute("aria-busy", "false")
    late, peace, pane = (
        box.bounding_box() for box in (ui.word("spät"), ui.word("שלום"), ui.page.locator(".pane.target"))
    )
    assert late is not None
    assert peace is not None
    assert pane is not None
    assert late["x"] < pane["x"] + pane["width"] / 2 < peace["x"]
    pictures = []
    for drawn, clear in (("source", "mirror"), ("mirror", "source")):
        ui[drawn].evaluate("box => box.style.setProperty('color', 'black')")
        ui[clear].evaluate("box => box.style.setProperty('color', 'transparent')")
        pictures.append(ui["source"].screenshot())
    assert pictures[0] == pictures[1]


def test_direction_marks_of_one_side_do_not_reach_the_other(ui: TranslatePage) -> None:
    ui.type("It is late. \u202e drawkcab")
    expect(ui["target"]).to_contain_text("Es ist spät.")
    isolation = [
        ui[name].evaluate("box => getComputedStyle(box).unicodeBidi") for name in ("source", "target")
    ]
    assert all(value in {"isolate", "plaintext"} for value in isolation), isolation
