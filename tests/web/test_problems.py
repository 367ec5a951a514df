"""Errors are shown as messages, and retried if a retry may help. Most of the errors come from real servers."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Route, expect

from tests.api.echo import GOLDEN, POISON, release_steps
from tests.api.server_process import ServerProcess
from tests.web.conftest import OpenUi
from tests.web.page_object import TranslatePage

KEY = "correct horse"
LONG_KEY = "correct-horse-battery"
SENTENCE = "Anna sees."
CUE = f"1\n00:00:01,000 --> 00:00:02,000\n{SENTENCE}\n"
WAITS = "film.srt waits until the server accepts it."
TOO_LONG = "The text is longer than the 5,000 characters that this server accepts."
NARROW: dict[str, object] = {
    "max_items": 1,
    "max_request_sentences": 2,
    "max_pending_sentences": 2,
    "files_enabled": False,
}


@pytest.fixture(scope="module")
def narrow_server(echo_command: list[str], hang_file: Path) -> Iterator[ServerProcess]:
    """A server that accepts two sentences at a time, accepts no files, and hangs while `hang_file` exists."""
    with ServerProcess([*echo_command, f"hang_file={hang_file}"], NARROW) as server:
        yield server.ready()


@pytest.fixture(scope="module")
def keyed_server(echo_command: list[str]) -> Iterator[ServerProcess]:
    """A server that requires the key KEY."""
    with ServerProcess(echo_command, {"api_keys": hashlib.sha256(KEY.encode()).hexdigest()}) as server:
        yield server.ready()


def expect_problem(ui: TranslatePage, text: str) -> None:
    expect(ui["problem-text"]).to_contain_text(text)
    assert ui["problem-text"].get_attribute("role") == "alert"


def seconds_until_retry(ui: TranslatePage) -> int:
    """The displayed seconds until the retry."""
    (seconds,) = re.findall(r"again in (\d+) s\.", ui["problem-text"].inner_text())
    return int(seconds)


def test_a_text_that_is_too_long_is_not_sent(ui: TranslatePage) -> None:
    ui.type("😀" * 5001)
    expect(ui["problem-text"]).to_have_text(f"{TOO_LONG} Shorten it, or open it as a file.")
    expect(ui["count"]).to_have_text("5,001 / 5,000")
    assert ui.posted == []
    ui.type("It is late.")
    expect(ui["problem"]).to_be_hidden()
    ui.shows("Es ist spät.")


@pytest.mark.parametrize("size", [(390, 664), (1180, 860)], ids=["phone", "desktop"])
def test_a_message_is_in_the_window_also_below_a_long_text(
    open_ui: OpenUi, narrow_server: ServerProcess, size: tuple[int, int]
) -> None:
    """It does not hide the end of the text. It does not advise a file, because the server accepts none."""
    ui = open_ui(narrow_server, viewport={"width": size[0], "height": size[1]}).ready()
    ui.type("It is late. " * 450)
    ui["source"].press("Control+End")
    ui["source"].press("x")
    expect(ui["problem-text"]).to_have_text(f"{TOO_LONG} Shorten it.")
    text, message = ui["source"].bounding_box(), ui["problem"].bounding_box()
    assert text is not None
    assert message is not None
    assert message["y"] + message["height"] <= size[1]
    assert text["y"] + text["height"] <= message["y"]
    ui["source"].press("Control+Home")
    message = ui["problem"].bounding_box()
    assert message is not None
    assert 0 < message["y"] < message["y"] + message["height"] <= size[1]


def test_too_many_sentences(open_ui: OpenUi, narrow_server: ServerProcess) -> None:
    """Status 413, with a message of the server."""
    ui = open_ui(narrow_server).ready()
    ui.type(f"{SENTENCE} {SENTENCE} {SENTENCE}")
    expect_problem(ui, "The request is too large.")
    expect_problem(ui, "more than 2 sentences")
    expect(ui["retry"]).to_be_hidden()


def test_too_many_sentences_are_sent_once(ui: TranslatePage) -> None:
    """A request without attention would be too large as well."""
    ui.type("Go! " * 1100)
    expect_problem(ui, "more than 1024 sentences")
    assert [body.get("attention") for body in ui.bodies_posted()] == [True]


def test_languages_that_are_not_served(open_ui: OpenUi, narrow_server: ServerProcess) -> None:
    """Status 422. This happens if the server's model changes while the page is open."""
    ui = open_ui(narrow_server).ready()
    ui["target-language"].evaluate("picker => picker.append(new Option('French', 'fr'))")
    ui["target-language"].select_option("fr")
    ui.type(SENTENCE)
    expect_problem(ui, "This pair is not translated here. Choose other languages.")


def test_a_message_has_the_names_of_the_page(ui: TranslatePage) -> None:
    """And no field of the API."""
    ui["source-language"].select_option("auto")
    ui.type("Demain matin, je voudrais acheter du pain et du fromage.")
    words = "The text is in French, which is not translated into German here. Choose other languages."
    expect_problem(ui, words)
    ui["source-language"].select_option("en")
    ui["terms"].evaluate(
        "box => { box.value = `${'a'.repeat(600)} = b`; box.dispatchEvent(new Event('input')); }"
    )
    expect_problem(ui, "The glossary is not valid: the term 1 has 600 characters")


def test_a_full_queue_is_retried(open_ui: OpenUi, narrow_server: ServerProcess, hang_file: Path) -> None:
    """Status 429 with Retry-After; the page retries automatically."""
    ui = open_ui(narrow_server).ready()
    hang_file.touch()
    with ThreadPoolExecutor(1) as pool, narrow_server.client() as client:
        body = {"text": f"{GOLDEN} {GOLDEN}", "source": "en", "target": "de"}
        running = pool.submit(client.post, "/v1/translate", json=body)
        narrow_server.wait_until("transduce_queue_depth", 2)
        ui.type(SENTENCE)
        expect_problem(ui, "The server is busy. Trying again in")
        expect(ui["retry"]).to_be_visible()
        hang_file.unlink()
        assert running.result().status_code == 200
    ui.shows(SENTENCE)
    expect(ui["problem"]).to_be_hidden()


def test_a_loading_server_is_retried(open_ui: OpenUi, echo_command: list[str], tmp_path: Path) -> None:
    """Status 503 with Retry-After."""
    load_file = tmp_path / "load"
    load_file.touch()
    with ServerProcess([*echo_command, f"load_file={load_file}"]) as server:
        ui = open_ui(server.listening())
        expect_problem(ui, "The server is not ready. Trying again in")
        ui.type(SENTENCE)
        other = open_ui(server)
        other.open_file("film.srt", CUE.encode())
        expect(other["spoken"]).to_have_text(WAITS)
        other["retry"].click()
        expect_problem(other, "The server is not ready. Trying again in")
        expect(other["document-state"]).to_have_text(WAITS)
        expect(other["document-state"]).to_be_visible()
        expect(other["document-close"]).to_have_text("Cancel")
        load_file.unlink()
        ui.ready().shows(SENTENCE)
        expect(ui["problem"]).to_be_hidden()
        expect(other["download"]).to_have_text("Download film.de.srt")


def test_a_server_that_stopped(open_ui: OpenUi, echo_command: list[str]) -> None:
    with ServerProcess(echo_command) as server:
        ui = open_ui(server.ready()).ready()
    ui.type(SENTENCE)
    expect_problem(ui, "The server cannot be reached. Trying again in")
    first_s = seconds_until_retry(ui)
    expect(ui["retry"]).to_be_enabled()
    ui["retry"].click()
    expect(ui["problem-text"]).not_to_contain_text(f"again in {first_s} s.")
    expect_problem(ui, "The server cannot be reached. Trying again in")
    # On a busy machine a further automatic retry may have run: the delay doubles each time, up to a minute.
    waits_s = [5, 10, 20, 40, 60]
    assert seconds_until_retry(ui) in waits_s[waits_s.index(first_s) + 1 :]


def test_a_stream_that_breaks_off(open_ui: OpenUi, echo_command: list[str], hang_file: Path) -> None:
    with ServerProcess([*echo_command, f"hang_file={hang_file}"]) as server:
        ui = open_ui(server.ready()).ready()
        ui["beam"].select_option("1")
        release_steps(hang_file, 3)
        ui.type(GOLDEN)
        expect(ui["target"]).not_to_have_text("")
    hang_file.unlink()
    expect_problem(ui, "The connection to the server was lost.")
    expect(ui["target"]).to_have_text("")


def test_a_failed_engine(open_ui: OpenUi, echo_command: list[str]) -> None:
    with ServerProcess(echo_command) as server:
        ui = open_ui(server.ready()).ready()
        ui.type(POISON)
        expect_problem(ui, "The server failed to translate this text.")


def enter(ui: TranslatePage, key: str) -> None:
    ui["key"].fill(key)
    ui["key"].press("Enter")


def test_a_key_is_requested_and_kept_for_the_tab(open_ui: OpenUi, keyed_server: ServerProcess) -> None:
    ui = open_ui(keyed_server)
    expect(ui["key"]).to_be_focused()
    assert ui["key"].get_attribute("type") == "password"
    for wrong in ("wrong horse", f"\u200b{KEY}"):  # no header can carry the second
        enter(ui, wrong)
        expect_problem(ui, "The API key is wrong.")
        expect(ui["retry"]).to_be_hidden()
    enter(ui, "  ")
    expect(ui["problem-text"]).to_have_text("Enter the API key.")
    enter(ui, KEY)
    expect(ui["source"]).to_be_focused()
    ui.ready().type(SENTENCE)
    ui.shows(SENTENCE)
    expect(ui["problem"]).to_be_hidden()
    with ui.page.expect_request("**/assets/server.json") as facts:
        ui.page.reload()
    assert "authorization" not in facts.value.headers
    ui.ready().type(SENTENCE)
    ui.shows(SENTENCE)
    stored = ui.page.evaluate("() => [sessionStorage.length, localStorage.length, document.cookie]")
    assert stored == [1, 0, ""]
    assert all(KEY not in url for url in ui.urls)
    other = ui.page.context.new_page()
    other.goto(f"{keyed_server.url}/")
    expect(other.locator("#key")).to_be_focused()


def test_a_late_answer_to_an_old_key_is_ignored(open_ui: OpenUi, keyed_server: ServerProcess) -> None:
    ui = open_ui(keyed_server)
    held = ui.hold("**/v1/models", times=1)
    with ui.page.expect_request("**/v1/models"):
        enter(ui, "wrong horse")
    enter(ui, KEY)
    ui.ready().type(SENTENCE)
    ui.shows(SENTENCE)
    (request,) = held
    request.continue_()
    ui.page.wait_for_timeout(500)
    ui.shows(SENTENCE)
    expect(ui["problem"]).to_be_hidden()


def test_a_file_that_waits_for_a_key_can_be_cancelled(open_ui: OpenUi, keyed_server: ServerProcess) -> None:
    ui = open_ui(keyed_server)
    expect(ui["key"]).to_be_focused()
    ui.open_file("film.srt", CUE.encode())
    enter(ui, "wrong horse")
    expect_problem(ui, "The API key is wrong.")
    expect(ui["document-state"]).to_have_text(WAITS)
    ui["document-close"].click()
    expect(ui["document"]).to_be_hidden()
    enter(ui, KEY)
    ui.ready().type(SENTENCE)
    ui.shows(SENTENCE)
    assert ui.paths_posted() == ["/v1/translate/stream"]


def test_a_new_key_sends_the_file_again_and_keeps_the_choices(
    open_ui: OpenUi, keyed_server: ServerProcess
) -> None:
    """In a browser without access to storage."""
    denied = (
        "Object.defineProperty(window, 'sessionStorage', { get() { throw new DOMException('denied'); } })"
    )
    ui = open_ui(keyed_server, before=lambda page: page.add_init_script(denied))
    enter(ui, KEY)
    ui.ready()["beam"].select_option("8")
    refusal = {"error": "Invalid API key"}
    ui.page.route("**/translate_file", lambda route: route.fulfill(status=403, json=refusal), times=1)
    ui.open_file("film.srt", CUE.encode())
    expect_problem(ui, "Invalid API key")
    expect(ui["key"]).to_be_focused()
    expect(ui["document-state"]).to_have_text(WAITS)
    expect(ui["document-state"]).to_be_visible()
    enter(ui, KEY)
    expect(ui["download"]).to_have_text("Download film.de.srt")
    expect(ui["problem"]).to_be_hidden()
    assert [ui[name].input_value() for name in ("source-language", "beam")] == ["en", "8"]


def test_a_file_that_needs_a_key_is_sent_again_with_one(open_ui: OpenUi, keyed_server: ServerProcess) -> None:
    """A server restarted with keys, while the page was open, answers the file routes with status 400."""

    def without_key(route: Route) -> None:
        headers = {name: value for name, value in route.request.headers.items() if name != "authorization"}
        route.continue_(headers=headers)

    ui = open_ui(keyed_server)
    enter(ui, KEY)
    ui.ready().page.route("**/translate_file", without_key, times=1)
    ui.open_file("film.srt", CUE.encode())
    expect_problem(ui, "This server requires an API key.")
    enter(ui, KEY)
    expect(ui["download"]).to_have_text("Download film.de.srt")


def test_the_limit_of_a_key_is_named_and_not_retried_before_it_ends(
    open_ui: OpenUi, echo_command: list[str], tmp_path: Path
) -> None:
    """Status 429 with a Retry-After of hours: a retry each minute would only fail."""
    keys_file = tmp_path / "keys.toml"
    keys_file.write_text(f'[sales]\nkey = "{LONG_KEY}"\ncharacters_per_month = {len(GOLDEN)}\n', "utf-8")
    keys_file.chmod(0o600)
    with ServerProcess(echo_command, {"api_keys_file": str(keys_file)}) as server:
        ui = open_ui(server.ready())
        enter(ui, LONG_KEY)
        ui.ready().type(SENTENCE)
        ui.shows(SENTENCE)
        ui.type(GOLDEN)
        expect_problem(ui, "The limit of this API key is ")
        expect(ui["problem-text"]).not_to_contain_text("Trying again")
        expect(ui["retry"]).to_have_text("Try now")


def test_an_error_event_is_shown(open_ui: OpenUi, model_server: ServerProcess) -> None:
    """An error after the response has begun."""
    content = 'event: error\ndata: {"error":{"code":"deadline_exceeded","message":"x","request_id":"1"}}\n\n'
    ui = open_ui(model_server).ready()
    ui.page.route(
        "**/v1/translate/stream", lambda route: route.fulfill(body=content, content_type="text/event-stream")
    )
    ui.type("It is late.")
    expect_problem(ui, "The translation took too long and was cancelled.")
