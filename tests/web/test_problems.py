"""What goes wrong is said in words, and tried again where that helps. Every refusal is a real server's own."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.api.echo import GOLDEN, POISON, let_through
from tests.api.server_process import ServerProcess
from tests.web.conftest import OpenDesk
from tests.web.desk import Desk

KEY = "correct horse"
SENTENCE = "Anna sees."
NARROW: dict[str, object] = {"max_items": 1, "max_request_sentences": 2, "max_pending_sentences": 2}


@pytest.fixture(scope="module")
def narrow_server(echo_command: list[str], hang_file: Path) -> Iterator[ServerProcess]:
    """Takes two sentences at a time, and hangs while `hang_file` exists."""
    with ServerProcess([*echo_command, f"hang_file={hang_file}"], NARROW) as server:
        yield server.ready()


def problem(desk: Desk, text: str) -> None:
    expect(desk["problem-text"]).to_contain_text(text)
    assert desk["problem-text"].get_attribute("role") == "alert"


def seconds_told(desk: Desk) -> int:
    """In how many it is tried again."""
    (seconds,) = re.findall(r"again in (\d+) s\.", desk["problem-text"].inner_text())
    return int(seconds)


def test_a_text_that_is_too_long_is_not_even_asked(desk: Desk) -> None:
    desk.type("😀" * 5001)
    problem(desk, "The text has 5,001 characters, and this server takes 5,000 at once.")
    expect(desk["count"]).to_have_text("5,001 / 5,000")
    assert desk.posted == []
    desk.type("It is late.")
    expect(desk["problem"]).to_be_hidden()
    desk.shows("Es ist spät.")


def test_too_many_sentences(open_desk: OpenDesk, narrow_server: ServerProcess) -> None:
    """413, in the server's own words."""
    desk = open_desk(narrow_server).ready()
    desk.type(f"{SENTENCE} {SENTENCE} {SENTENCE}")
    problem(desk, "That is too much at once.")
    problem(desk, "2")
    expect(desk["retry"]).to_be_hidden()


def test_languages_that_are_not_served(open_desk: OpenDesk, narrow_server: ServerProcess) -> None:
    """422: as where the model was exchanged behind an open page."""
    desk = open_desk(narrow_server).ready()
    desk["target-language"].evaluate("picker => picker.append(new Option('French', 'fr'))")
    desk["target-language"].select_option("fr")
    desk.type(SENTENCE)
    problem(desk, "supported: en to de")


def test_a_full_queue_is_waited_for(
    open_desk: OpenDesk, narrow_server: ServerProcess, hang_file: Path
) -> None:
    """429 with Retry-After; then it is asked again by itself."""
    desk = open_desk(narrow_server).ready()
    hang_file.touch()
    with ThreadPoolExecutor(1) as pool, narrow_server.client() as client:
        body = {"text": f"{GOLDEN} {GOLDEN}", "source": "en", "target": "de"}
        running = pool.submit(client.post, "/v1/translate", json=body)
        narrow_server.wait_until("transduce_queue_depth", 2)
        desk.type(SENTENCE)
        problem(desk, "The server is busy. Trying again in")
        expect(desk["retry"]).to_be_visible()
        hang_file.unlink()
        assert running.result().status_code == 200
    desk.shows(SENTENCE)
    expect(desk["problem"]).to_be_hidden()


def test_a_server_that_loads_is_waited_for(
    open_desk: OpenDesk, echo_command: list[str], tmp_path: Path
) -> None:
    """503 with Retry-After."""
    load_file = tmp_path / "load"
    load_file.touch()
    with ServerProcess([*echo_command, f"load_file={load_file}"]) as server:
        desk = open_desk(server.listening())
        problem(desk, "The server is not ready. Trying again in")
        load_file.unlink()
        desk.ready().type(SENTENCE)
        desk.shows(SENTENCE)
        expect(desk["problem"]).to_be_hidden()


def test_a_server_that_is_gone(open_desk: OpenDesk, echo_command: list[str]) -> None:
    with ServerProcess(echo_command) as server:
        desk = open_desk(server.ready()).ready()
    desk.type(SENTENCE)
    problem(desk, "The server cannot be reached. Trying again in")
    first_s = seconds_told(desk)
    expect(desk["retry"]).to_be_enabled()
    desk["retry"].click()
    expect(desk["problem-text"]).not_to_contain_text(f"again in {first_s} s.")
    problem(desk, "The server cannot be reached. Trying again in")
    # A busy machine may have tried once more by itself: twice as long each time, and a minute at most.
    waits_s = [5, 10, 20, 40, 60]
    assert seconds_told(desk) in waits_s[waits_s.index(first_s) + 1 :]


def test_a_stream_that_breaks_off(open_desk: OpenDesk, echo_command: list[str], hang_file: Path) -> None:
    with ServerProcess([*echo_command, f"hang_file={hang_file}"]) as server:
        desk = open_desk(server.ready()).ready()
        desk["beam"].select_option("1")
        let_through(hang_file, 3)
        desk.type(GOLDEN)
        expect(desk["target"]).not_to_have_text("")
    hang_file.unlink()
    problem(desk, "The connection to the server broke off.")
    expect(desk["target"]).to_have_text("")


def test_a_failed_engine(open_desk: OpenDesk, echo_command: list[str]) -> None:
    with ServerProcess(echo_command) as server:
        desk = open_desk(server.ready()).ready()
        desk.type(POISON)
        problem(desk, "The server failed at this text.")


def test_a_key_is_asked_for_and_kept_for_the_tab(open_desk: OpenDesk, echo_command: list[str]) -> None:
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    with ServerProcess(echo_command, {"api_keys": digest}) as server:
        desk = open_desk(server.ready())
        expect(desk["key"]).to_be_focused()
        assert desk["key"].get_attribute("type") == "password"
        desk["key"].fill("wrong horse")
        desk["key"].press("Enter")
        problem(desk, "This API key is not known here.")
        desk["key"].fill(KEY)
        desk["key"].press("Enter")
        desk.ready().type(SENTENCE)
        desk.shows(SENTENCE)
        expect(desk["problem"]).to_be_hidden()
        desk.page.reload()
        desk.ready().type(SENTENCE)
        desk.shows(SENTENCE)
        stored = desk.page.evaluate("() => [sessionStorage.length, localStorage.length, document.cookie]")
        assert stored == [1, 0, ""]
        assert all(KEY not in url for url in desk.asked)
        other = desk.page.context.new_page()
        other.goto(f"{server.url}/")
        expect(other.locator("#key")).to_be_focused()


def test_an_event_of_an_error_is_an_error(open_desk: OpenDesk, model_server: ServerProcess) -> None:
    """What the server tells after the answer has begun."""
    content = 'event: error\ndata: {"error":{"code":"deadline_exceeded","message":"x","request_id":"1"}}\n\n'
    desk = open_desk(model_server).ready()
    desk.page.route(
        "**/v1/translate/stream", lambda route: route.fulfill(body=content, content_type="text/event-stream")
    )
    desk.type("It is late.")
    problem(desk, "The translation took too long and was given up.")
