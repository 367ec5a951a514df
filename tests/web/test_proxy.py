"""Errors of a proxy in front of the server: the page tries again, or offers a button."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from email.utils import formatdate

import pytest
from playwright.sync_api import Page, Route, expect

from tests.api.server_process import ServerProcess
from tests.web.conftest import OpenUi
from tests.web.page_object import TranslatePage

STATION, STATION_DE = "Where is the station?", "Wo ist der Bahnhof?"
STREAM = "**/v1/translate/stream"
CUES = "1\n00:00:01,000 --> 00:00:02,000\nWhere is the station?\n"
HTML = "<html><h1>Error</h1></html>"
# OWN: an error of Transduce. ODD: an error in JSON that a proxy has made.
OWN = json.dumps({"error": {"code": "deadline_exceeded", "message": "x", "request_id": "1"}})
ODD = json.dumps({"error": {"code": 504, "message": "no upstream"}})


def answers(status: int, body: str = HTML, retry_after: str | None = None) -> Callable[[Route], None]:
    """A handler of requests that gives this answer."""
    headers = {} if retry_after is None else {"retry-after": retry_after}
    return lambda route: route.fulfill(status=status, body=body, content_type="text/html", headers=headers)


@pytest.mark.parametrize(
    ("status", "body", "retry_after", "wait_s"),
    [
        (502, HTML, None, [5]),
        (503, HTML, None, [5]),
        (504, ODD, None, [5]),
        (504, HTML, None, [5]),
        (429, HTML, None, [5]),
        (429, HTML, "", [5]),
        (429, HTML, "soon", [5]),
        (429, HTML, "7", [7]),
        (429, HTML, "in 30 s", range(20, 31)),
        (429, HTML, formatdate(0, usegmt=True), [1]),
    ],
)
def test_an_error_that_may_pass_is_retried(
    ui: TranslatePage, status: int, body: str, retry_after: str | None, wait_s: list[int]
) -> None:
    """Retry-After may be missing, be unreadable, or be a date."""
    if retry_after == "in 30 s":
        retry_after = formatdate(time.time() + 30, usegmt=True)
    ui.page.route(STREAM, answers(status, body, retry_after), times=1)
    ui.type(STATION)
    expect(ui["problem-text"]).to_contain_text(f"({status}). Trying again in")
    (seconds,) = re.findall(r"again in (\d+) s\.", ui["problem-text"].inner_text())
    assert int(seconds) in wait_s
    ui["retry"].click()
    ui.shows(STATION_DE)


def test_new_input_does_not_lengthen_the_wait(ui: TranslatePage) -> None:
    """Only a retry of the page itself doubles it."""
    waits = []
    for text in ("Where", "Where is", STATION):
        ui.page.route(STREAM, answers(503), times=1)
        ui.type(text)
        expect(ui["problem-text"]).to_contain_text("Trying again in")
        waits += re.findall(r"again in (\d+) s\.", ui["problem-text"].inner_text())
    assert waits == ["5", "5", "5"]
    ui.page.route(STREAM, answers(503), times=1)
    ui["retry"].click()
    expect(ui["problem-text"]).to_contain_text("Trying again in 10 s.")
    ui.page.route(STREAM, answers(503), times=1)
    ui.type("Where")
    expect(ui["problem-text"]).to_contain_text("Trying again in 5 s.")


@pytest.mark.parametrize(("status", "body"), [(504, OWN), (500, HTML), (404, HTML)])
def test_an_error_that_would_stay_is_not_retried(ui: TranslatePage, status: int, body: str) -> None:
    ui.page.route(STREAM, answers(status, body))
    ui.type(STATION)
    expect(ui["problem"]).to_be_visible()
    expect(ui["problem-text"]).not_to_contain_text("again")
    expect(ui["retry"]).to_be_hidden()


def test_a_file_waits_for_a_proxys_server(ui: TranslatePage) -> None:
    ui.page.route("**/translate_file", answers(502), times=1)
    ui.open_file("film.srt", CUES.encode())
    expect(ui["problem-text"]).to_contain_text("(502). Trying again in")
    expect(ui["document-state"]).to_have_text("film.srt waits until the server accepts it.")
    ui["retry"].click()
    expect(ui["download"]).to_be_visible()


def test_a_file_that_takes_longer_than_a_proxy_waits_is_refused(ui: TranslatePage) -> None:
    """A retry would take as long."""
    ui.page.route("**/translate_file", answers(504))
    ui.open_file("film.srt", CUES.encode())
    expect(ui["problem-text"]).to_contain_text("Split it into smaller files.")
    expect(ui["retry"]).to_be_hidden()
    expect(ui["document"]).to_be_hidden()


@pytest.mark.parametrize("path", ["assets/server.json", "v1/models"])
@pytest.mark.parametrize("status", [502, 200, 404])
def test_the_start_can_be_tried_again(
    open_ui: OpenUi, model_server: ServerProcess, path: str, status: int
) -> None:
    """Status 200: the HTML of a captive portal."""

    def fail_once(page: Page) -> None:
        page.route(f"**/{path}", answers(status), times=1)

    ui = open_ui(model_server, before=fail_once)
    expect(ui["problem"]).to_be_visible()
    expect(ui["retry"]).to_be_visible()
    assert ("Trying again" in ui["problem-text"].inner_text()) == (status == 502)
    ui["retry"].click()
    ui.ready().type(STATION)
    ui.shows(STATION_DE)
    expect(ui["problem"]).to_be_hidden()
