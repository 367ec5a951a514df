"""The page of a server that translates a pair through another language."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.api.server_process import ServerProcess
from tests.web.conftest import OpenUi

TEXT = "Anna sees the river."


@pytest.fixture(scope="module")
def pivoting_server(echo_command: list[str]) -> Iterator[ServerProcess]:
    with ServerProcess([*echo_command, "pairs=de>en;en>fr"], {"pivot": "en"}) as server:
        yield server.ready()


def test_a_pivoted_pair_is_offered_and_has_alternatives(
    open_ui: OpenUi, pivoting_server: ServerProcess
) -> None:
    ui = open_ui(pivoting_server).ready("de")
    ui["target-language"].select_option("fr")
    ui.type(TEXT)
    ui.shows(TEXT)
    assert ui.bodies_posted()[-1]["target"] == "fr"
    ui.word("river").click()
    options = ui["choices"].get_by_role("option")
    expect(options.first).to_be_focused()
    sentence = options.first.locator(".sentence").text_content()
    assert sentence != TEXT
    assert ui.paths_posted()[-2:] == ["/v1/translate", "/v1/translate"]
    options.first.click()
    ui.shows(sentence or "")
