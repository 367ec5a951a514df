"""The API page has a section for every route, and its forms send requests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, FilePayload, Locator, expect

from app.api.page import page_paths
from app.api.probes import api_routes
from app.main import Application
from app.settings import load_settings
from tests.api.echo import release_steps
from tests.api.server_process import ServerProcess
from tests.web.barriers import barriers
from tests.web.conftest import OpenUi, pages
from tests.web.page_object import TranslatePage


@pytest.fixture
def docs(open_ui: OpenUi, model_server: ServerProcess) -> TranslatePage:
    return open_docs(open_ui, model_server)


@pytest.fixture(scope="module")
def shared_docs(browser: Browser, model_server: ServerProcess) -> Iterator[TranslatePage]:
    """One page for tests that change no input, each in its own section."""
    with pages(browser) as open_page:
        yield open_docs(open_page, model_server)


def open_docs(open_page: OpenUi, server: ServerProcess) -> TranslatePage:
    """Open the API page, and wait until its examples have the model's name."""
    ui = open_page(server, "/docs")
    expect(section(ui, "GET", "/v2/models/{name}").locator("[name=path]")).to_have_value(
        "v2/models/en-de-small"
    )
    return ui


def section(ui: TranslatePage, method: str, path: str) -> Locator:
    """The section of a route, with its form open."""
    found = ui.page.get_by_role("region", name=f"{method} {path}", exact=True)
    if found.locator("details:not([open])").count():
        found.get_by_text("Try it").click()
    return found


def send(ui: TranslatePage, method: str, path: str) -> Locator:
    """Send the form's request, and wait for its answer. Returns the route's section."""
    found = section(ui, method, path)
    found.get_by_role("button", name="Send").click()
    expect(found.get_by_role("status")).to_contain_text(re.compile(r"^\d{3} "))
    return found


def test_every_route_has_a_section(shared_docs: TranslatePage) -> None:
    """Check the routes of all dialects and of files. This test fails for a new route without an example."""
    application = Application(load_settings({"files_enabled": True}))
    routes = set(api_routes(application.app.router))
    assert not {path for _, path in routes} & page_paths()
    shown = shared_docs.page.locator("section").evaluate_all(
        "all => all.map(each => each.getAttribute('aria-label'))"
    )
    assert set(shown) == {f"{method} {path}" for method, path in routes}
    summaries = shared_docs.page.locator("section > h2 + p:not(.soft)").all_text_contents()
    assert len(summaries) == len(shown)
    assert all(summaries)


@pytest.mark.parametrize(
    ("method", "path", "text"),
    [
        ("POST", "/v1/translate", "Wo ist der Bahnhof?"),
        ("POST", "/v1/translate/stream", "event: done"),
        ("POST", "/v1/score", "log_probability"),
        ("POST", "/v1/detect", "detections"),
        ("GET", "/v1/models", "en-de-small"),
        ("POST", "/translate", "Wo ist der Bahnhof?"),
        ("POST", "/v2/translate", "Wo ist der Bahnhof?"),
        ("GET", "/v2/languages", "German"),
        ("POST", "/v2/models/{name}/infer", "Wo ist der Bahnhof?"),
        ("POST", "/v2/models/{name}/versions/{number}/infer", "Wo ist der Bahnhof?"),
        ("POST", "/v2/glossaries", "glossary_id"),
        ("GET", "/livez", "ok"),
        ("GET", "/metrics", "transduce_"),
    ],
)
def test_a_request_can_be_tried(shared_docs: TranslatePage, method: str, path: str, text: str) -> None:
    found = send(shared_docs, method, path)
    expect(found.locator(".answer")).to_contain_text(text)
    expect(found.get_by_role("status")).to_contain_text(re.compile(r"^20[01] .* ms, "))


def test_only_the_routes_of_models_have_the_models_name(shared_docs: TranslatePage) -> None:
    path = section(shared_docs, "GET", "/download_file/{name}").locator("[name=path]")
    expect(path).to_have_value("download_file/{name}")


def test_a_request_can_be_changed_and_refused(docs: TranslatePage) -> None:
    found = section(docs, "POST", "/v1/translate")
    found.locator("[name=body]").fill('{"text": "It is late.", "source": "en", "taget": "de"}')
    send(docs, "POST", "/v1/translate")
    expect(found.get_by_role("status")).to_contain_text("422")
    expect(found.locator(".answer")).to_contain_text("did you mean target?")


def test_a_file_can_be_sent_and_fetched(docs: TranslatePage) -> None:
    found = section(docs, "POST", "/translate_file")
    file = FilePayload(name="late.txt", mimeType="text/plain", buffer=b"It is late.")
    found.locator("[name=file]").set_input_files(file)
    send(docs, "POST", "/translate_file")
    expect(found.locator(".answer")).to_contain_text("translatedFileUrl")
    url = re.search(r"download_file/[\w.-]+", found.locator(".answer").inner_text())
    assert url is not None
    download = section(docs, "GET", "/download_file/{name}")
    download.locator("[name=path]").fill(url.group())
    send(docs, "GET", "/download_file/{name}")
    expect(download.locator(".save")).to_contain_text("Save the response, 13 bytes")


def test_a_new_request_cancels_the_one_whose_response_still_arrives(
    echo_command: list[str], hang_file: Path, open_ui: OpenUi
) -> None:
    cancelled = 'transduce_rejected_total{reason="cancelled"}'
    with ServerProcess([*echo_command, f"hang_file={hang_file}"]) as server:
        ui = open_ui(server.ready(), "/docs")
        found = section(ui, "POST", "/v1/translate/stream")
        answer, status = found.locator(".answer"), found.get_by_role("status")
        release_steps(hang_file, 1)
        found.locator("[name=body]").fill(
            '{"text": "Anna sees the river.", "source": "en", "target": "de", "beam_size": 1}'
        )
        send(ui, "POST", "/v1/translate/stream")
        expect(answer).to_contain_text("event: delta")
        found.locator("[name=body]").fill('{"txt": "Anna sees the river."}')
        found.get_by_role("button", name="Send").click()
        expect(status).to_contain_text("422")
        hang_file.unlink()
        server.wait_until("transduce_inflight_requests", 0)
        ui.page.wait_for_timeout(500)
        assert status.inner_text().startswith("422 ")
        assert "event" not in answer.inner_text()
        assert server.metric(cancelled) == 1


def test_no_barrier(docs: TranslatePage) -> None:
    send(docs, "GET", "/v1/models")
    assert barriers(docs, has_many_alike=True) == []


def test_the_page_fits_the_window(docs: TranslatePage) -> None:
    forms = docs.page.locator("details")
    assert forms.evaluate_all("all => { for (const each of all) each.open = true; return all.length; }") >= 40
    for width in (320, 1180):
        docs.page.set_viewport_size({"width": width, "height": 800})
        assert docs.page.evaluate("() => document.documentElement.scrollWidth") <= width
