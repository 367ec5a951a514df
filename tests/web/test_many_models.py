"""The page of a server with several models offers the language pairs of all, and each request goes to its model."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.api.server_process import ServerProcess
from tests.web.conftest import OpenUi
from tests.web.page_object import TranslatePage

FRENCH = "Anna voit la rivière."


def test_the_page_offers_the_pairs_of_all_models(echo_command: list[str], open_ui: OpenUi) -> None:
    with ServerProcess([*echo_command, "pairs=en>de,de>en;fr>en;en>it"]) as server:
        ui = open_ui(server.ready()).ready("fr")
        expect(ui["model"]).to_have_text("echo 1 · fp32, echo-2 1 · fp32, echo-3 1 · fp32")
        expect(ui["source-language"].locator("option")).to_have_text(
            ["Detect language", "English", "French", "German"]
        )
        expect(ui["target-language"].locator("option")).to_have_text(["English"])
        ui.type(FRENCH)
        ui.shows(FRENCH)
        ui["source-language"].select_option("en")
        expect(ui["target-language"].locator("option")).to_have_text(["German", "Italian"])
        ui["target-language"].select_option("it")
        ui.shows(FRENCH)
        posted = [(body["source"], body["target"]) for body in ui.bodies_posted()]
        assert {("fr", "en"), ("en", "it")} <= set(posted)


def test_attention_needs_an_alignment_only_of_the_first_model_of_a_pair(ui: TranslatePage) -> None:
    found = ui.page.evaluate(
        """async () => {
          const { Models } = await import("./assets/models.js");
          const model = (name, alignment) => ({ name, alignment, language_pairs: [{ source: "en", target: "de" }] });
          const aligns = (...names) => new Models(names.map((name) => model(name, name === "aligned")))
            .alignAll({ source: "en", target: "de", isDetecting: false });
          return [aligns("aligned", "other"), aligns("other", "aligned"), aligns()];
        }"""
    )
    assert found == [True, False, False]
