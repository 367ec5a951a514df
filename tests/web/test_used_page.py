"""The page that the tests of a module use one after the other: nothing of a test reaches the next one."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.api.server_process import ServerProcess
from tests.web.conftest import WINDOW, pages

CHOICES = ("source-language", "target-language", "beam", "theme")


def test_a_page_that_is_used_again_is_as_a_new_one(
    browser: Browser, used_page: Page, model_server: ServerProcess
) -> None:
    def read() -> list[object]:
        """The choices and the states of the page that is opened next."""
        with pages(browser, used_page) as open_page:
            ui = open_page(model_server)
            assert ui.page is used_page
            expect(ui["model"]).not_to_be_empty()
            is_dark = "matchMedia('(prefers-color-scheme: dark)').matches"
            stored = ui.page.evaluate(
                f"() => [localStorage.length, sessionStorage.length, innerWidth, {is_dark}]"
            )
            choices = [ui[name].input_value() for name in CHOICES]
            return [*choices, *stored, len(ui.page.context.pages), ui.posted]

    new = read()
    with pages(browser, used_page) as open_page:
        ui = open_page(model_server).ready("de")
        ui["beam"].select_option("8")
        ui["theme"].select_option("dark")
        ui.page.evaluate("() => sessionStorage.setItem('key', 'any')")
        ui.page.set_viewport_size({"width": 390, "height": 664})
        ui.page.route("**/v1/models", lambda route: route.abort())
        ui.page.emulate_media(color_scheme="dark")
        ui.page.context.new_page()
        ui.type("Es ist spät.")
        expect(ui["copy"]).to_be_visible()
    num_urls = len(ui.urls)
    assert read() == new
    assert new[4:8] == [0, 0, WINDOW["width"], False]
    assert len(ui.urls) == num_urls, "the requests of the next test are not recorded"


def test_only_the_first_page_without_options_is_used_again(
    browser: Browser, used_page: Page, model_server: ServerProcess
) -> None:
    with pages(browser, used_page) as open_page:
        opened = [
            open_page(model_server, color_scheme="dark"),
            open_page(model_server, before=lambda page: page.add_init_script("")),
            open_page(model_server),
            open_page(model_server),
        ]
        assert [ui.page is used_page for ui in opened] == [False, False, True, False]


@pytest.mark.parametrize(
    "script",
    ["setTimeout(() => { throw new Error('any'); })", "new Image().src = 'http://127.0.0.1:9/x.png'"],
    ids=["a script error", "a request to another host"],
)
def test_a_fault_of_the_page_is_found(
    browser: Browser, used_page: Page, model_server: ServerProcess, script: str
) -> None:
    with pytest.raises(AssertionError), pages(browser, used_page) as open_page:
        open_page(model_server).ready().page.evaluate(f"async () => {{ {script}; }}")
