"""The clipboard gets the translation without its style. The button Copy shows whether it worked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Page, expect

from tests.api.server_process import ServerProcess
from tests.web.conftest import OpenUi

LATE, LATE_DE = "It is late.", "Es ist spät."
SHOWN_MS = 1500  # how long the button shows "Copied", as in clipboard.js
NOT_COPIED = "Not copied: select the translation and copy it"
# As without HTTPS: there is no navigator.clipboard.
PLAIN_HTTP = "Object.defineProperty(navigator, 'clipboard', { value: undefined });"
DENIED = "navigator.clipboard.writeText = async () => { throw new DOMException('', 'NotAllowedError'); };"


@pytest.mark.parametrize("by", ["button", "keyboard"])
@pytest.mark.parametrize("script", [PLAIN_HTTP, ""], ids=["plain HTTP", "HTTPS"])
def test_the_clipboard_has_the_text_without_its_style(
    open_ui: OpenUi, model_server: ServerProcess, script: str, by: str
) -> None:
    """The browser keeps its clipboard between tests, so another text is copied first."""

    def prepare(page: Page) -> None:
        page.add_init_script(script)
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])

    ui = open_ui(model_server, before=prepare).ready()
    ui.type("another text")
    ui["source"].press("Control+A")
    ui["source"].press("Control+C")
    ui.type(LATE)
    ui.shows(LATE_DE)
    if by == "button":
        ui["copy"].click()
        expect(ui["copy"]).to_have_text("Copied")
        expect(ui["spoken"]).to_have_text("Copied")
    else:
        ui["source"].blur()
        ui["target"].evaluate("box => document.getSelection().selectAllChildren(box)")
        ui.page.keyboard.press("Control+C")
    ui["source"].evaluate(
        """box => box.addEventListener("paste", ({ clipboardData: data }) => {
          window.pasted = Object.fromEntries(data.types.map((type) => [type, data.getData(type)]));
        })"""
    )
    ui["source"].press("Control+V")
    assert ui.page.evaluate("() => pasted") == {"text/plain": LATE_DE}


@pytest.mark.parametrize(
    "script", [f"{PLAIN_HTTP} document.execCommand = () => false;", DENIED], ids=["plain HTTP", "HTTPS"]
)
def test_a_failed_copy_is_shown(open_ui: OpenUi, model_server: ServerProcess, script: str) -> None:
    ui = open_ui(model_server, before=lambda page: page.add_init_script(script)).ready()
    ui.type(LATE)
    ui.shows(LATE_DE)
    ui.page.clock.install()
    ui["copy"].click()
    expect(ui["copy"]).to_have_text(NOT_COPIED)
    expect(ui["spoken"]).to_have_text(NOT_COPIED)
    ui.page.clock.fast_forward(SHOWN_MS + 200)
    expect(ui["copy"]).to_have_text(NOT_COPIED)
    ui["source"].click()
    expect(ui["copy"]).to_have_text("Copy")


def test_each_click_shows_its_own_result(open_ui: OpenUi, model_server: ServerProcess) -> None:
    """The end of the time of the first result does not hide the second result."""

    def prepare(page: Page) -> None:
        page.add_init_script("navigator.clipboard.writeText = async () => {};")

    ui = open_ui(model_server, before=prepare).ready()
    ui.type(LATE)
    ui.shows(LATE_DE)
    ui.page.clock.install()
    ui.page.clock.pause_at(datetime.now(tz=UTC) + timedelta(hours=1))
    for _ in range(2):
        ui.page.clock.run_for(SHOWN_MS - 500)
        ui["copy"].click()
        expect(ui["copy"]).to_have_text("Copied")
    ui.page.clock.run_for(SHOWN_MS - 500)
    expect(ui["copy"]).to_have_text("Copied")
    ui.page.clock.run_for(SHOWN_MS)
    expect(ui["copy"]).to_have_text("Copy")
