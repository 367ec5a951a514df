"""Fixtures for tests of the web page in a real browser with real servers. Without Chromium these tests are skipped."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

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
OpenUi = Callable[..., TranslatePage]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser per module, because no other test can start an event loop while Playwright runs."""
    if CHROMIUM is None:
        pytest.skip("no chromium here (Debian: apt install chromium-headless-shell)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


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


@contextlib.contextmanager
def pages(browser: Browser) -> Iterator[OpenUi]:
    """A function that opens a page of a server.

    path: the path of the page. before: called with the page before it is opened. options: for the browser context.
    At the end, check that no page has had a script error or has sent a request to another host.
    """
    opened: list[TranslatePage] = []

    def open_page(
        server: ServerProcess,
        path: str = "/",
        *,
        before: Callable[[Page], None] | None = None,
        **options: object,
    ) -> TranslatePage:
        context = browser.new_context(**{"viewport": {"width": 1180, "height": 860}, **options})  # type: ignore[arg-type]
        page = context.new_page()
        ui = TranslatePage(page, server.url)
        opened.append(ui)
        if before is not None:
            before(page)
        page.goto(f"{server.url}{path}")
        return ui

    yield open_page
    for ui in opened:
        ui.page.context.close()
        assert ui.script_errors == []
        assert [url for url in ui.urls if not url.startswith(f"{ui.url}/")] == []


@pytest.fixture
def open_ui(browser: Browser) -> Iterator[OpenUi]:
    with pages(browser) as open_page:
        yield open_page


@pytest.fixture
def ui(open_ui: OpenUi, model_server: ServerProcess) -> TranslatePage:
    """The page of the bundled model's server, ready for input."""
    return open_ui(model_server).ready()
