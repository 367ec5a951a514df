"""docs/access.md lists exactly the routes that need no key."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

import httpx
import pytest
from fastapi.routing import APIRoute

from app.api.simple import routes as simple
from app.main import create_app
from app.settings import load_settings
from tests.api.server_process import ROOT, ServerProcess

OPEN_LINE = re.compile(r"^These routes stay open to all if keys are set: (.*?)\.$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def http(echo_command: list[str]) -> Iterator[httpx.Client]:
    settings: dict[str, object] = {"files_enabled": "true", "api_keys": hashlib.sha256(b"a key").hexdigest()}
    with ServerProcess(echo_command, settings) as server, server.ready().client() as client:
        yield client


def wants_key(http: httpx.Client, method: str, path: str) -> bool:
    """Whether a request without a key is rejected for its missing key. Fails if it is rejected for another reason."""
    path = re.sub(r"\{\w+\}", "x", path)
    if path == "/translate_file":
        answer = http.post(path, files={"file": ("a.txt", b"It is late.")})
    else:
        answer = http.request(method, path, json=None if method == "GET" else {})
    if not answer.is_error:
        return False
    assert "API key" in answer.text, f"{method} {path} is refused for another reason: {answer.text}"
    return True


def test_the_documentation_lists_every_open_route(http: httpx.Client) -> None:
    app = create_app(load_settings({"files_enabled": True}))
    routes = [route for route in app.routes if isinstance(route, APIRoute)]
    assert len(routes) == len(app.routes)
    methods = [(method, route.path) for route in routes for method in sorted(route.methods or ())]
    preflight_paths = {path for method, path in methods if method == "OPTIONS"}
    assert preflight_paths <= set(simple.PATHS), "a preflight request has no key, so its route is open"
    methods = [(method, path) for method, path in methods if method != "OPTIONS"]
    open_paths = {path for method, path in methods if not wants_key(http, method, path)}
    line = OPEN_LINE.search((ROOT / "docs" / "access.md").read_text("utf-8"))
    assert line is not None
    listed = set(re.findall(r"`([^`]+)`", line[1]))
    assert {"/assets/" if path.startswith("/assets/") else path for path in open_paths} == listed
