"""The page object of the web page (the Page Object Model)."""

from __future__ import annotations

from typing import Any, Self

from playwright.sync_api import Error, FilePayload, Locator, Page, Request, Route, ViewportSize, expect

TIMEOUT_MS = 120_000  # reached only by a hang, even on a busy machine
expect.set_options(timeout=TIMEOUT_MS)


def hold(page: Page, url: str, held: list[Route], *, times: int | None = None) -> None:
    """Add the next `times` requests to this URL, by default all, to `held` instead of sending them."""

    def add(route: Route) -> None:
        held.append(route)

    page.route(url, add, times=times)


class TranslatePage:
    """One open page. urls: the URLs of all its requests; posted: its POST requests."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.urls: list[str] = []
        self.posted: list[Request] = []
        self.script_errors: list[str] = []
        page.set_default_timeout(TIMEOUT_MS)
        page.on("request", self._record)
        page.on("pageerror", self._record_error)

    def _record_error(self, error: Error) -> None:
        self.script_errors.append(str(error))

    def _record(self, request: Request) -> None:
        self.urls.append(request.url)
        if request.method == "POST":
            self.posted.append(request)

    def ready(self, source: str = "en") -> Self:
        """Wait until the model is shown, and select the source language."""
        expect(self["model"]).not_to_be_empty()
        self["source-language"].select_option(source)
        return self

    def leave(self, window: ViewportSize) -> None:
        """Make the page as a new one, except for the browser's cache, the history, the clock and scripts of the test.

        A test that changes one of the last two opens its page with `before`. window: the size of a new page.
        """
        for other in self.page.context.pages:
            if other is not self.page:
                other.close()
        self.page.unroute_all()
        # A navigation that a script starts keeps the renderer process, which has the code of the scripts in memory.
        self.page.evaluate("() => { location.href = 'about:blank'; }")
        self.page.wait_for_url("about:blank")
        self.page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")  # of the page before
        self.page.mouse.move(0, 0)
        self.page.set_viewport_size(window)
        self.page.emulate_media(color_scheme="light")
        self.page.remove_listener("request", self._record)
        self.page.remove_listener("pageerror", self._record_error)

    def __getitem__(self, identity: str) -> Locator:
        """The element with this id."""
        return self.page.locator(f"#{identity}")

    def hold(self, url: str, *, times: int | None = None) -> list[Route]:
        """Hold the next `times` requests to this URL, by default all. Returns the list to which each is added."""
        held: list[Route] = []
        hold(self.page, url, held, times=times)
        return held

    def type(self, text: str) -> None:
        """Replace the text at once, not by keystrokes.

        Playwright's `fill` enters each line separately, so it takes seconds for hundreds of lines.
        """
        self["source"].fill(text)

    def open_file(self, name: str, content: bytes) -> None:
        """Open a file through the file dialogue."""
        file = FilePayload(name=name, mimeType="application/octet-stream", buffer=content)
        self["file"].set_input_files(file)

    def shows(self, text: str) -> None:
        """Wait until the page shows this text, apart from white space, as the complete translation."""
        expect(self["target"]).to_have_text(text, use_inner_text=True)
        expect(self["target"]).to_have_attribute("aria-busy", "false")

    def word(self, text: str) -> Locator:
        """A word of the translation."""
        return self["target"].locator(".word").get_by_text(text, exact=True)

    def marked_in_source(self) -> list[str]:
        return self["mirror"].locator("mark").all_text_contents()

    def bodies_posted(self) -> list[Any]:
        return [request.post_data_json for request in self.posted]

    def paths_posted(self) -> list[str]:
        return [request.url.removeprefix(self.url) for request in self.posted]
