"""Words of a translation: alignment, the attention map, and alternatives."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.web.page_object import TranslatePage

STATION, STATION_DE = "Where is the station?", "Wo ist der Bahnhof?"
LATE, LATE_DE = "It is late.", "Es ist spät."
NAMES = "Elisabeth Wordsworth met 1987 unbelievable hedgehogs."
LONG = (
    "The old bridge over the river, which my grandfather and his brothers had built with their own hands before the "
    "war, was closed last winter because the water had taken away two of the stones on which it stood."
)
HELP, HELP_DE = "Could you help me, please?", "Könnten Sie mir bitte helfen?"


def read_map(ui: TranslatePage) -> tuple[list[str], list[str], list[list[int]]]:
    """Read the attention map. Returns its columns with the remainder last, its rows, and the percentages.

    The percentage of an empty cell is 0.
    """
    table = ui["map"].locator("table")
    rows = table.locator("tbody tr").all()
    percents = [[int(text or 0) for text in row.locator("td").all_text_contents()] for row in rows]
    return (
        table.locator("thead th").all_text_contents(),
        table.locator("tbody th").all_text_contents(),
        percents,
    )


def test_pointing_at_a_word_marks_its_source(ui: TranslatePage) -> None:
    ui.type(f"{STATION} {LATE}")
    ui.shows(f"{STATION_DE} {LATE_DE}")
    for word, origin in (("Bahnhof", "station"), ("spät", "late"), ("Wo", "Where")):
        ui.word(word).hover()
        assert ui.marked_in_source() == [origin]
        expect(ui.word(word)).to_have_class("word marked")
        expect(ui["map"].locator("tr.marked th")).to_have_text(word)
    ui["beam"].hover()
    assert ui.marked_in_source() == []
    expect(ui["map"].locator("tr.marked")).to_have_count(0)


def test_the_mirror_is_exactly_behind_the_text(ui: TranslatePage) -> None:
    """The mirror element, which has the marks, has the place and the size of the text area, which does not scroll."""
    text = " ".join([STATION] * 12)
    ui.type(text)
    expect(ui["target"].locator(".word")).to_have_count(12 * 4)
    box, mirror = ui["source"].bounding_box(), ui["mirror"].bounding_box()
    assert box == mirror
    heights = ui["source"].evaluate("box => [box.clientHeight, box.scrollHeight]")
    assert heights[0] == heights[1], "the box must not scroll"
    assert ui["mirror"].get_attribute("lang") == ui["source"].get_attribute("lang") == "en"


def test_marks_disappear_when_the_text_changes(ui: TranslatePage) -> None:
    ui.type(STATION)
    ui.shows(STATION_DE)
    ui.word("Bahnhof").hover()
    assert ui.marked_in_source() == ["station"]
    ui["source"].press("End")
    ui["source"].press("x")
    assert ui.marked_in_source() == []


def test_a_new_translation_removes_the_marks_of_the_old_one(ui: TranslatePage) -> None:
    ui.type(f"Why?\n{STATION}")
    ui.shows(f"Warum?\n{STATION_DE}")
    ui["next"].click()
    expect(ui["which"]).to_have_text("2 of 2")
    held = ui.hold("**/v1/translate/stream")
    with ui.page.expect_request("**/v1/translate/stream"):
        ui["beam"].select_option("2")
    ui["map"].get_by_role("row").filter(has_text="Bahnhof").hover()
    assert ui.marked_in_source() == ["station"]
    (request,) = held
    request.continue_()
    expect(ui["which"]).to_have_text("1 of 2")
    assert ui.marked_in_source() == [], "the pointer is below the map of the first sentence"


def test_the_caret_marks_the_translation_of_its_word(ui: TranslatePage) -> None:
    ui.type(STATION)
    ui.shows(STATION_DE)
    ui["source"].evaluate("box => { box.focus(); box.setSelectionRange(15, 15); }")
    expect(ui["target"].locator(".word.marked")).to_have_text(["der", "Bahnhof"])
    ui["source"].evaluate("box => { box.value = `now ${box.value}`; box.setSelectionRange(1, 1); }")
    expect(ui["target"].locator(".word.marked")).to_have_count(0)  # the text has changed since then


@pytest.mark.parametrize("text", [STATION, NAMES], ids=["whole words", "words of several subwords"])
def test_the_map_shows_the_servers_weights(ui: TranslatePage, text: str) -> None:
    """A cell is the sum over the source word's subwords, averaged over the translated word's subwords."""
    body = {"text": text, "source": "en", "target": "de", "alignment": True, "attention": True}
    response = ui.page.request.post(f"{ui.url}/v1/translate", data=body).json()
    ((translation,), (segment,)) = response["translations"], response["translations"][0]["segments"]
    ui.type(text)
    ui.shows(translation["text"])
    columns, rows, percents = read_map(ui)
    sources, targets = words_of(text), words_of(translation["text"])
    assert columns == [*sources.values(), "rest"]
    assert rows == list(targets.values())
    column_of = [word_at(text, sources, span) for span in segment["source_tokens"]]
    attention = np.zeros((len(rows), len(columns)))
    nums = np.zeros((len(rows), 1))
    for token in segment["tokens"][:-1]:
        if not token["text"].strip():
            continue  # white space belongs to no word
        row = word_at(translation["text"], targets, token["target"])
        assert row is not None
        nums[row] += 1
        for column, weight in zip(column_of, token["weights"], strict=True):
            attention[row, -1 if column is None else column] += weight
    assert np.abs(np.array(percents) - 100 * attention / nums).max() <= 0.53, "the map shows whole percents"
    assert np.array(percents).sum(axis=1) == pytest.approx(100, abs=len(columns) / 2)
    assert (nums.max() > 1) == (text == NAMES)
    drawn = ui["map"].locator("tbody td.filled").all_text_contents()
    assert len(drawn) > 2 * len(rows), "the map must show more than the largest weight of each row"
    assert all(drawn)


def test_a_word_without_a_subword_has_an_empty_row(ui: TranslatePage) -> None:
    """The browser may cut a subword into several words, as in a URL. The subword counts for the first word."""
    found = ui.page.evaluate(
        """async () => {
          const { alignmentOf } = await import("./assets/spans.js");
          const { drawHeatmap } = await import("./assets/heatmap.js");
          const source = { start: 0, end: 3 };
          const token = { target: { start: 0, end: 7 }, source, sources: [source], weights: [0.75] };
          const segments = [{ source, target: { start: 0, end: 7 }, tokens: [token] }];
          const answer = { sourceText: "One", text: "one two", source: "en", segments };
          const languages = { source: "en", target: "en" };
          const box = document.createElement("div");
          drawHeatmap(box, { answer, alignment: alignmentOf(answer, 0, "en"), languages, onPoint() {} });
          return [...box.querySelectorAll("tbody tr")].map((row) => [...row.children].map((cell) => cell.textContent));
        }"""
    )
    assert found == [["one", "75", "25"], ["two", "", ""]]


def words_of(text: str) -> dict[tuple[int, int], str]:
    """The spans of words and punctuation."""
    return {match.span(): match.group() for match in re.finditer(r"\w+|[^\w\s]", text)}


def word_at(text: str, words: dict[tuple[int, int], str], span: dict[str, int]) -> int | None:
    """The index of a subword's word, or None for the end of the sentence."""
    covered = text[span["start"] : span["end"]]
    start = span["end"] - len(covered.lstrip())
    found = [index for index, (first, last) in enumerate(words) if first <= start < last]
    return found[0] if covered else None


def test_a_text_too_long_for_all_weights_shows_the_largest(ui: TranslatePage) -> None:
    ui.type("Why? " * 300)
    expect(ui["which"]).to_have_text("1 of 300")
    columns, rows, percents = read_map(ui)
    assert (columns, rows) == (["Why", "?", "rest"], ["Warum", "?"])
    assert [sum(percent > 0 for percent in row[:-1]) for row in percents] == [1, 1]
    details = [(body.get("attention"), body.get("alignment")) for body in ui.bodies_posted()]
    assert details == [(True, True), (None, True)]


def test_a_text_too_long_for_any_weights_is_translated_without_words(ui: TranslatePage) -> None:
    ui.type("Why? " * 600)
    expect(ui["target"]).to_have_text(re.compile("(Warum\\?\\s*){600}"), use_inner_text=True)
    expect(ui["which"]).to_be_hidden()
    details = [(body.get("attention"), body.get("alignment")) for body in ui.bodies_posted()]
    assert details == [(True, True), (None, True), (None, None)]


def test_a_large_map_scrolls_within_its_box(ui: TranslatePage) -> None:
    """It scrolls in both directions while the heads of rows and columns stay visible."""
    ui.page.set_viewport_size({"width": 700, "height": 860})
    ui.type(LONG)
    expect(ui["alignment"]).to_be_visible()
    box = ui["map"]
    inner, outer = box.evaluate(
        "box => [[box.scrollWidth, box.scrollHeight], [box.clientWidth, box.clientHeight]]"
    )
    assert inner[0] > outer[0]
    assert inner[1] > outer[1]
    box.evaluate("box => box.scrollTo(200, 200)")
    at = box.bounding_box()
    row, column = (box.locator(f"th.{name}").nth(12).bounding_box() for name in ("row", "column"))
    assert at is not None
    assert row is not None
    assert column is not None
    assert row["x"] == pytest.approx(at["x"], abs=3)
    assert column["y"] >= at["y"] - 1
    assert column["y"] + column["height"] < at["y"] + at["height"] / 2
    assert ui.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_map_is_drawn(ui: TranslatePage) -> None:
    """Cells with different attention have different backgrounds."""
    ui.type(STATION)
    ui.shows(STATION_DE)
    cells = ui["map"].locator("td.filled")
    backgrounds = {
        int(cell.inner_text()): cell.evaluate("cell => getComputedStyle(cell).backgroundColor")
        for cell in cells.all()
    }
    assert len(set(backgrounds.values())) > 1
    empty = ui["map"].locator("tbody td:not(.filled)").first
    assert empty.evaluate("cell => getComputedStyle(cell).backgroundColor") not in backgrounds.values()
    box = cells.first.bounding_box()
    assert box is not None
    assert box["width"] > 20
    assert box["height"] > 20


def test_each_sentence_has_its_own_map(ui: TranslatePage) -> None:
    ui.type(f"{STATION}\n{LATE}")
    ui.shows(f"{STATION_DE}\n{LATE_DE}")
    expect(ui["which"]).to_have_text("1 of 2")
    expect(ui["previous"]).to_be_disabled()
    ui["next"].click()
    expect(ui["which"]).to_have_text("2 of 2")
    assert read_map(ui)[1] == ["Es", "ist", "spät", "."]
    ui.word("Bahnhof").hover()
    expect(ui["which"]).to_have_text("1 of 2")


def test_an_alternative_replaces_its_word_and_the_rest_follows(ui: TranslatePage) -> None:
    ui.type(f"{LATE} {HELP} {STATION}")
    ui.shows(f"{LATE_DE} {HELP_DE} {STATION_DE}")
    ui.word("Könnten").click()
    options = ui["choices"].get_by_role("option")
    expect(options.first).to_be_focused()
    sentences = options.locator(".sentence").all_text_contents()
    assert len(sentences) == len(set(sentences)) >= 3
    assert HELP_DE not in sentences
    words = options.locator("b").all_text_contents()
    assert all(sentence.startswith(word) for word, sentence in zip(words, sentences, strict=True))
    (chosen,) = [sentence for sentence in sentences if sentence.startswith("Können Sie")]
    options.filter(has_text=chosen).click()
    ui.shows(f"{LATE_DE} {chosen} {STATION_DE}")
    expect(ui["choices"]).to_be_hidden()
    expect(ui.word("Können")).to_be_focused()
    # The following text has moved and is still aligned.
    ui.word("Bahnhof").hover()
    assert ui.marked_in_source() == ["station"]
    assert read_map(ui)[1] == ["Wo", "ist", "der", "Bahnhof", "?"]
    assert ui.paths_posted()[-2:] == ["/v1/score", "/v1/translate"]


def test_a_replaced_word_can_be_replaced_again(ui: TranslatePage) -> None:
    ui.type(HELP)
    ui.shows(HELP_DE)
    for _ in range(2):
        before = ui["target"].inner_text()
        ui["target"].locator(".word").first.click()
        ui["choices"].get_by_role("option").first.click()
        expect(ui["target"]).not_to_have_text(before)


def test_escape_closes_the_alternatives_and_restores_the_focus(ui: TranslatePage) -> None:
    ui.type(LATE)
    ui.shows(LATE_DE)
    ui.word("spät").click()
    expect(ui["choices"].get_by_role("option").first).to_be_focused()
    ui.page.keyboard.press("Escape")
    expect(ui["choices"]).to_be_hidden()
    expect(ui.word("spät")).to_be_focused()
    ui.shows(LATE_DE)


def test_the_alternatives_stay_in_a_window_that_becomes_narrow(ui: TranslatePage) -> None:
    ui.type(LATE)
    ui.shows(LATE_DE)
    ui.word("spät").click()
    expect(ui["choices"].get_by_role("option").first).to_be_focused()
    ui.page.set_viewport_size({"width": 480, "height": 300})
    fits = "list => list.getBoundingClientRect().right <= innerWidth && list.offsetHeight < innerHeight"
    ui.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert ui["choices"].evaluate(fits)


def test_a_browser_does_not_translate_the_translation(ui: TranslatePage) -> None:
    """A browser can translate the words of the page itself."""
    for name in ("target", "map", "choices"):
        assert ui[name].evaluate("box => box.translate") is False
    assert ui.page.evaluate("() => document.body.translate") is True


def test_an_outdated_translation_has_no_alternatives(ui: TranslatePage) -> None:
    ui.type(STATION)
    ui.shows(STATION_DE)
    ui.word("Bahnhof").click()
    expect(ui["choices"].get_by_role("option").first).to_be_focused()
    held = ui.hold("**/v1/translate/stream")
    with ui.page.expect_request("**/v1/translate/stream"):
        ui.type(LATE)
    expect(ui["choices"]).to_be_hidden()
    ui.word("Bahnhof").click()
    assert ui["choices"].is_hidden()
    (request,) = held
    request.continue_()
    ui.shows(LATE_DE)
    ui.word("spät").click()
    expect(ui["choices"]).to_be_visible()


@pytest.mark.parametrize(
    "sample",
    [
        {"text": "a😀b", "spans": [[0, 1], [1, 2], [2, 3]], "units": [[0, 1], [1, 3], [3, 4]]},
        {"text": "é\u0301x", "spans": [[0, 1], [1, 3]], "units": [[0, 1], [1, 3]]},
    ],
    ids=["beyond the first plane", "combining"],
)
def test_offsets_in_code_points_become_utf_16_units(ui: TranslatePage, sample: dict[str, Any]) -> None:
    """The server counts code points (spans), JavaScript UTF-16 code units (units)."""
    found = ui.page.evaluate(
        """async ({text, spans}) => {
          const { answerOf } = await import("./assets/spans.js");
          const segments = spans.map(([start, end]) => ({ source: {start, end}, target: {start, end} }));
          const answer = answerOf({ text, source: "en", segments }, text);
          return answer.segments.map(({ target }) => [target.start, target.end]);
        }""",
        sample,
    )
    assert found == sample["units"]


def test_stream_chunks_may_end_anywhere(ui: TranslatePage) -> None:
    """Chunks may end within a character and between the two halves of a line ending."""
    found = ui.page.evaluate(
        """async () => {
          const { eventsOf } = await import("./assets/client.js");
          const text = ': keep-alive\\r\\n\\r\\nevent: delta\\r\\ndata: {"text":"ä😀"}\\r\\n\\r\\n' +
            ': so it ends\\nevent: done\\ndata: {}\\n\\n';
          const bytes = new TextEncoder().encode(text);
          const body = new ReadableStream({
            start(controller) {
              for (const byte of bytes) controller.enqueue(new Uint8Array([byte]));
              controller.close();
            },
          });
          const events = [];
          for await (const event of eventsOf(body)) events.push(event);
          return events;
        }"""
    )
    assert found == [
        {"event": "delta", "data": '{"text":"ä😀"}', "comment": ""},
        {"event": "done", "data": "{}", "comment": "so it ends"},
    ]
