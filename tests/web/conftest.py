"""Fixtures for tests of the web page in a real browser with real servers. Without Chromium these tests are skipped."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from asyncio import AbstractEventLoop, events
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

from tests.api.server_process import ROOT, ServerProcess
from tests.model.sentences import write_tokenizer
from tests.web.page_object import TranslatePage

# For these tests, the build without windows takes 0.7 times as long as the build with windows.
CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WINDOW = ViewportSize(width=1180, height=860)
OpenUi = Callable[..., TranslatePage]


@pytest.fixture(scope="session")
def started_browser() -> Iterator[tuple[Browser, AbstractEventLoop]]:
    """A browser, and Playwright's event loop, which is marked as not running until `browser` marks it."""
    if CHROMIUM is None:
        pytest.skip("no chromium here (Debian: apt install chromium-headless-shell)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        loop = asyncio.get_running_loop()
        events._set_running_loop(None)
        yield browser, loop
        events._set_running_loop(loop)
        browser.close()


@pytest.fixture(scope="module")
def browser(started_browser: tuple[Browser, AbstractEventLoop]) -> Iterator[Browser]:
    """The session's browser. Between the modules that use it, tests can start event loops of their own."""
    browser, loop = started_browser
    events._set_running_loop(loop)
    yield browser
    events._set_running_loop(None)


@pytest.fixture(scope="session")
def model_server() -> Iterator[ServerProcess]:
    """A server with the bundled model that accepts files."""
    settings: dict[str, object] = {
        "bundle": ROOT / "bundles" / "en-de",
        "num_threads": 1,
        "device": "cpu",
        "precision": "int8",
        "files_enabled": "true",
    }
    with ServerProcess(["transduce", "serve"], settings) as process:
        yield process.ready()


@pytest.fixture(scope="session")
def echo_command(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The module and the arguments of a server whose model returns its input. Tests may add hang_file=PATH."""
    tokenizer = write_tokenizer(tmp_path_factory.mktemp("echo") / "tokenizer.spm")
    return ["tests.api.echo_server", str(tokenizer)]


@pytest.fixture(scope="module")
def hang_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path for the echo server's hang_file, which does not exist at first and is deleted after each test."""
    return tmp_path_factory.mktemp("hang") / "hang"


@pytest.fixture(autouse=True)
def remove_hang_file(hang_file: Path) -> Iterator[None]:
    yield
    hang_file.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def used_page(browser: Browser) -> Iterator[Page]:
    """A page that one test after the other uses. A page in a new context takes twice the time to load."""
    with browser.new_context(viewport=WINDOW) as context:
        yield context.new_page()


@contextlib.contextmanager
def pages(browser: Browser, used_page: Page | None = None) -> Iterator[OpenUi]:
    """A function that opens a page of a server.

    used_page: opened instead of a new page by the first call that has neither `before` nor options. It is as a new page
        again at the end.
    path: the path of the page. before: called with the page before it is opened. options: for the browser context.
    At the end, check that no page has had a script error or has sent a request to another host.
    """
    opened: list[TranslatePage] = []
    free = [] if used_page is None else [used_page]

    def open_page(
        server: ServerProcess,
        path: str = "/",
        *,
        before: Callable[[Page], None] | None = None,
        **options: object,
    ) -> TranslatePage:
        if free and before is None and not options:
            page = free.pop()
        else:
            page = browser.new_context(**{"viewport": WINDOW, **options}).new_page()  # type: ignore[arg-type]
        ui = TranslatePage(page, server.url)
        opened.append(ui)
        if before is not None:
            before(page)
        page.goto(f"{server.url}{path}")
        return ui

    yield open_page
    for ui in opened:
        if ui.page is used_page:
            ui.leave(WINDOW)
        else:
            ui.page.context.close()
    for ui in opened:
        assert ui.script_errors == []
        assert [url for url in ui.urls if not url.startswith(f"{ui.url}/")] == []


@pytest.fixture
def open_ui(browser: Browser, used_page: Page) -> Iterator[OpenUi]:
    with pages(browser, used_page) as open_page:
        yield open_page


@pytest.fixture
def ui(open_ui: OpenUi, model_server: ServerProcess) -> TranslatePage:
    """The page of the bundled model's server, ready for input."""
    return open_ui(model_server).ready()


@pytest.fixture(scope="module")
def shared_ui(browser: Browser, model_server: ServerProcess) -> Iterator[TranslatePage]:
    """One page for tests that only call functions of the page's modules."""
    with pages(browser) as open_page:
        yield open_page(model_server).ready()
