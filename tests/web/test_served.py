"""How the page's files are served: their types, entity tags and security headers. No other file is served."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import httpx
import pytest

from app.api.page import SETTINGS_PATH, page_paths
from tests.api.server_process import ServerProcess

TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".json": "application/json"}


@pytest.fixture(scope="module")
def client(echo_command: list[str]) -> Iterator[httpx.Client]:
    with (
        ServerProcess(echo_command, {"max_item_characters": 321, "files_enabled": "false"}) as server,
        server.ready().client() as client,
    ):
        yield client


@pytest.mark.parametrize("path", sorted(page_paths()))
def test_a_file_has_its_type_and_the_security_headers(client: httpx.Client, path: str) -> None:
    found = client.get(path)
    suffix = path[path.rfind(".") :]
    assert found.status_code == 200
    assert found.headers["content-type"].partition(";")[0] == TYPES.get(suffix, "text/html")
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["referrer-policy"] == "no-referrer"
    policy = dict(each.split(" ", 1) for each in found.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert "unsafe" not in found.headers["content-security-policy"]


@pytest.mark.parametrize("path", ["/", "/assets/page.js"])
def test_an_unchanged_file_is_not_sent_again(client: httpx.Client, path: str) -> None:
    found = client.get(path)
    assert found.headers["cache-control"] == "no-cache"
    tag = found.headers["etag"]
    for known in (tag, f'"other", W/{tag}'):
        again = client.get(path, headers={"if-none-match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert client.get(path, headers={"if-none-match": '"other"'}).content == found.content


def test_the_page_gets_the_servers_facts(client: httpx.Client) -> None:
    facts = client.get(SETTINGS_PATH).json()
    assert facts == {
        "needs_key": False,
        "has_docs": True,
        "file_suffixes": [],
        "max_file_bytes": 10_000_000,
        "max_characters": 321,
        "max_beam_size": 16,
    }


@pytest.mark.parametrize(
    "path", ["/assets/", "/assets/nope.js", "/assets/../page.js", "/assets/%2e%2e/main.py", "/index.html"]
)
def test_nothing_else_is_served(client: httpx.Client, path: str) -> None:
    # If the path were given as a part of the URL, httpx would resolve the dots.
    assert client.get("/", extensions={"target": path.encode()}).status_code == 404


def test_the_page_needs_no_key_and_says_that_the_api_does(echo_command: list[str]) -> None:
    keys = hashlib.sha256(b"key").hexdigest()
    with (
        ServerProcess(echo_command, {"api_keys": keys, "docs_enabled": "false"}) as server,
        server.ready().client() as client,
    ):
        assert all(client.get(path).status_code == 200 for path in page_paths())
        facts = client.get(SETTINGS_PATH).json()
        assert (facts["needs_key"], facts["has_docs"]) == (True, False)
        assert client.get("/v1/models").status_code == 401


def test_the_page_can_be_disabled(echo_command: list[str]) -> None:
    with ServerProcess(echo_command, {"page_enabled": "false"}) as server, server.ready().client() as client:
        assert {client.get(path).status_code for path in page_paths()} == {404}
        assert client.get("/livez").status_code == 200
