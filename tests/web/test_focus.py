"""The keyboard focus stays where the user works: on a word, a button or the text."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Route, expect

from tests.api.server_process import ServerProcess
from tests.web.conftest import OpenUi
from tests.web.page_object import TranslatePage, hold

STATION, STATION_DE = "Where is the station?", "Wo ist der Bahnhof?"
CUE = b"1\n00:00:01,000 --> 00:00:02,000\nIt is late.\n"
HOME, HOME_DE = (
    "It is late, and I would like to go home.",
    "Es ist spät, und ich möchte nach Hause gehen.",
)


def open_alternatives(ui: TranslatePage) -> tuple[list[str], list[str]]:
    """Translate HOME and open the alternatives to "Hause". Returns their words and their sentences."""
    ui.type(HOME)
    ui.shows(HOME_DE)
    ui.word("Hause").focus()
    ui.page.keyboard.press("Enter")
    options = ui["choices"].get_by_role("option")
    expect(options.first).to_be_focused()
    return options.locator("b").all_text_contents(), options.locator(".sentence").all_text_contents()


def test_an_alternative_is_shown_as_a_whole_word(ui: TranslatePage) -> None:
    """Its subword may continue the word before it, or be a punctuation mark."""
    words, sentences = open_alternatives(ui)
    parts = [re.findall(r"\w+|[^\w\s]", sentence) for sentence in sentences]
    assert [word for word, part in zip(words, parts, strict=True) if word not in part] == []


def test_after_an_alternative_a_word_has_the_focus(ui: TranslatePage) -> None:
    words, sentences = open_alternatives(ui)
    ui.page.keyboard.press("Escape")
    for word, sentence in zip(words, sentences, strict=True):
        open_alternatives(ui)
        ui["choices"].get_by_role("option").filter(has=ui.page.get_by_text(sentence, exact=True)).click()
        ui.shows(sentence)
        expect(ui["target"].locator(".word:focus")).to_have_count(1)
        if word.isalpha():
            expect(ui["target"].locator(".word:focus")).to_have_text(word)


@pytest.mark.parametrize(
    ("text", "start", "word"),
    [("Ja, gut.", 4, "gut"), ("Ja, gut.", 2, "Ja"), ("Ja, gut.", 7, "gut"), ("„Ja“", 0, "Ja"), ("…", 0, "")],
)
def test_for_a_punctuation_mark_the_word_before_it_gets_the_focus(
    shared_ui: TranslatePage, text: str, start: int, word: str
) -> None:
    """If no word is before the mark, the first word gets the focus."""
    focused = shared_ui.page.evaluate(
        """async ({ text, start }) => {
          const { Target } = await import("./assets/target.js");
          const box = document.createElement("div");
          document.body.append(box);
          document.activeElement.blur();
          const target = new Target(box, { onPoint() {}, onChoose() {} });
          target.show({ text, segments: [{ target: { start: 0, end: text.length } }] }, "de");
          target.focus(start);
          return document.activeElement === document.body ? "" : document.activeElement.textContent;
        }""",
        {"text": text, "start": start},
    )
    assert focused == word


def test_the_buttons_of_the_sentences_keep_the_focus(ui: TranslatePage) -> None:
    ui.type(f"Why?\n{STATION}")
    ui.shows(f"Warum?\n{STATION_DE}")
    ui["next"].focus()
    for _ in range(2):
        ui.page.keyboard.press("Enter")
        expect(ui["which"]).to_have_text("2 of 2")
        expect(ui["next"]).to_be_focused()
    expect(ui["next"]).to_be_disabled()
    ui["previous"].focus()
    ui.page.keyboard.press("Enter")
    expect(ui["which"]).to_have_text("1 of 2")
    expect(ui["previous"]).to_be_focused()
    expect(ui["next"]).to_be_enabled()


def test_a_retry_returns_the_focus_to_the_text(ui: TranslatePage) -> None:
    """The button disappears with the message."""
    ui.page.route("**/v1/translate/stream", lambda route: route.abort(), times=1)
    ui.type(STATION)
    expect(ui["problem-text"]).to_contain_text("The server cannot be reached.")
    ui["retry"].focus()
    ui.page.keyboard.press("Enter")
    ui.shows(STATION_DE)
    expect(ui["source"]).to_be_focused()


@pytest.mark.parametrize("name", ["copy", "previous", "map"])
def test_the_focus_of_what_a_failure_hides_goes_to_the_text(ui: TranslatePage, name: str) -> None:
    """The request for a newer text fails while the user works with the older translation."""
    ui.type(f"{STATION}\n{STATION}")
    ui.shows(f"{STATION_DE}\n{STATION_DE}")
    held = ui.hold("**/v1/translate/stream")
    with ui.page.expect_request("**/v1/translate/stream"):
        ui.type(HOME)
    ui[name].focus()
    ui.page.wait_for_timeout(100)
    expect(ui[name]).to_be_focused()
    held[0].fulfill(status=400, json={})
    expect(ui["problem"]).to_be_visible()
    expect(ui["source"]).to_be_focused()


@pytest.mark.parametrize("size", [(320, 450), (320, 568), (390, 664)])
def test_a_message_hides_no_control_that_has_the_focus(
    open_ui: OpenUi, model_server: ServerProcess, size: tuple[int, int]
) -> None:
    """The message is long. It may hide some lines of the text."""
    ui = open_ui(model_server, viewport={"width": size[0], "height": size[1]}).ready()
    ui.open_file(f"{'long' * 15}.csv", b"a,b")
    expect(ui["problem"]).to_be_visible()
    ui.page.locator(".skip").focus()
    reached = []
    for key, num_presses in (("Tab", 11), ("Shift+Tab", 10)):
        for _ in range(num_presses):
            ui.page.keyboard.press(key)
            name, is_hidden = ui.page.evaluate(
                """() => {
                  const control = document.activeElement;
                  const { top, bottom } = control.getBoundingClientRect();
                  const { top: start, bottom: end } = document.getElementById("problem").getBoundingClientRect();
                  const isInWindow = bottom > 0 && top < innerHeight;
                  const isClear = bottom <= start || top >= end || (control.id === "source" && top < start);
                  const isMessage = control.id === "problem"; // a message that scrolls can have the focus
                  return [control.id || control.localName, !(isInWindow && (isClear || isMessage))];
                }"""
            )
            assert not is_hidden, (key, name)
            reached.append(name)
    assert {"source", "open-file", "example", "beam"} <= set(reached)


def test_late_alternatives_do_not_take_the_focus(ui: TranslatePage) -> None:
    ui.type(STATION)
    ui.shows(STATION_DE)
    held = ui.hold("**/v1/score")
    ui.word("Bahnhof").focus()
    with ui.page.expect_request("**/v1/score"):
        ui.page.keyboard.press("Enter")
    expect(ui["choices"]).to_be_visible()
    ui.page.keyboard.press("Tab")
    expect(ui["copy"]).to_be_focused()
    (request,) = held
    request.continue_()
    ui.page.wait_for_timeout(500)
    expect(ui["copy"]).to_be_focused()
    expect(ui["choices"]).to_be_hidden()


def test_the_focus_stays_at_its_position_in_a_new_translation(ui: TranslatePage) -> None:
    ui.type(f"{STATION}\n{STATION}")
    ui.shows(f"{STATION_DE}\n{STATION_DE}")
    held = ui.hold("**/v1/translate/stream")
    with ui.page.expect_request("**/v1/translate/stream"):
        ui.type(f"{STATION}\n{HOME}")
    ui.word("Bahnhof").last.focus()
    (request,) = held
    request.continue_()
    ui.shows(f"{STATION_DE}\n{HOME_DE}")
    expect(ui["target"].locator(".word:focus")).to_have_text("spät")
    expect(ui["target"].locator(".word[tabindex='0']")).to_have_text("spät")
    expect(ui["which"]).to_have_text("2 of 2")
    assert ui.marked_in_source() == ["late"]


@pytest.mark.parametrize("is_plain", [True, False], ids=["without words", "with words"])
def test_a_draft_keeps_the_focus_in_the_box(shared_ui: TranslatePage, *, is_plain: bool) -> None:
    """Without words, the box itself has the focus."""
    focused = shared_ui.page.evaluate(
        """async (isPlain) => {
          const { Target } = await import("./assets/target.js");
          const box = document.createElement("div");
          document.body.append(box);
          const target = new Target(box, { onPoint() {}, onChoose() {} });
          const text = "Ja, gut so.";
          const answer = { text, segments: [{ target: { start: 0, end: text.length } }] };
          const nameOf = (element) => (element === box ? "the box" : element.textContent);
          target.show(answer, "de");
          target.focus(4);
          const names = [nameOf(document.activeElement)];
          for (const draft of ["Ja", "Ja, gut"]) {
            target.showDraft(draft);
            names.push(nameOf(document.activeElement));
          }
          target.show(answer, "de", { isPlain });
          return [...names, nameOf(document.activeElement), box.hasAttribute("tabindex")];
        }""",
        is_plain,
    )
    last = ["the box", True] if is_plain else ["gut", False]
    assert focused == ["gut", "the box", "the box", *last]


def test_a_new_translation_does_not_take_the_focus(ui: TranslatePage) -> None:
    ui.type(STATION)
    ui.shows(STATION_DE)
    ui["source"].focus()
    ui.type(HOME)
    ui.shows(HOME_DE)
    expect(ui["source"]).to_be_focused()


def test_the_focus_of_the_text_is_visible_in_forced_colours(
    open_ui: OpenUi, model_server: ServerProcess
) -> None:
    """The line above the text is a background, and forced colours show no backgrounds."""
    ui = open_ui(model_server, forced_colors="active").ready()
    ui["source"].focus()
    assert ui["source"].evaluate("box => getComputedStyle(box).outline").endswith(" solid 2px")


def test_a_button_of_a_file_keeps_the_focus_while_the_file_waits(ui: TranslatePage) -> None:
    """During an automatic retry, and while the server works."""
    held: list[Route] = []

    def refuse_once(route: Route) -> None:
        held.append(route)
        if len(held) == 1:
            route.fulfill(status=503, headers={"retry-after": "3"}, json={"error": "Not ready"})

    ui.page.route("**/translate_file", refuse_once)
    ui.open_file("film.srt", CUE)
    expect(ui["problem-text"]).to_contain_text("Trying again in 3 s.")
    ui["document-close"].focus()
    expect(ui["document-state"]).to_have_text("Translating film.srt into German…")
    expect(ui["document-close"]).to_be_focused()
    ui.page.wait_for_timeout(100)
    held[1].continue_()
    expect(ui["download"]).to_be_visible()
    expect(ui["document-close"]).to_be_focused()


@pytest.mark.parametrize(
    ("name", "content"), [("broken.json", b'{"a": '), ("empty.txt", b""), ("question.txt", STATION.encode())]
)
def test_the_focus_of_a_file_that_is_removed_goes_to_the_text(
    open_ui: OpenUi, model_server: ServerProcess, name: str, content: bytes
) -> None:
    """The file waits for the models, and is refused or shown as a text then."""
    held: list[Route] = []
    ui = open_ui(model_server, before=lambda page: hold(page, "**/v1/models", held, times=1))
    ui.open_file(name, content)
    ui["document-close"].focus()
    ui.page.wait_for_timeout(100)
    held[0].continue_()
    expect(ui["document"]).to_be_hidden()
    expect(ui["source"]).to_be_focused()


def refuse_key(ui: TranslatePage) -> None:
    """Let the server refuse the next text, as after a restart with API keys."""
    refusal = {"error": {"code": "unauthorized", "message": "x", "request_id": "1"}}
    ui.page.route("**/v1/translate/stream", lambda route: route.fulfill(status=401, json=refusal), times=1)


def test_a_key_that_is_accepted_returns_the_focus_to_the_text(ui: TranslatePage) -> None:
    """The form for the key disappears."""
    refuse_key(ui)
    ui.type(STATION)
    expect(ui["problem-text"]).to_have_text("This server requires an API key.")
    ui["key"].fill("any")
    ui["key"].press("Enter")
    ui.shows(STATION_DE)
    expect(ui["key-form"]).to_be_hidden()
    expect(ui["source"]).to_be_focused()


def test_a_refused_key_does_not_take_the_focus_from_a_text(ui: TranslatePage) -> None:
    """Otherwise the next keystrokes would go into the field for the API key."""
    refuse_key(ui)
    ui["source"].press_sequentially("Where is")
    expect(ui["key"]).to_be_visible()
    ui.page.keyboard.type(" the station?")
    expect(ui["source"]).to_have_value(STATION)
    ui.shows(STATION_DE)
    assert ui["key"].input_value() == ""


def test_a_refused_key_does_not_take_the_focus_from_the_glossary(ui: TranslatePage) -> None:
    ui.type(STATION)
    ui.shows(STATION_DE)
    refuse_key(ui)
    ui.page.get_by_text("Glossary", exact=True).click()
    ui["terms"].press_sequentially("station =")
    ui["source-language"].select_option("auto")  # sends the text
    expect(ui["key"]).to_be_visible()
    expect(ui["terms"]).to_be_focused()
