"""If API keys are set, every route of the native API requires a key, except the probes and the page."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fastapi.routing import APIRoute

from app.api.dialects import DIALECTS
from app.api.http.auth import OPEN_PATHS, ApiKeys, unnamed_key
from app.api.page import page_paths
from app.errors import Unauthorized
from app.main import create_app
from app.settings import load_settings
from tests.api.server_process import ServerProcess

KEY, OTHER_KEY = "correct horse", "from the file"


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture(scope="module")
def guarded(echo_command: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text(f'[second]\nsha256 = "{sha256(OTHER_KEY)}"\n', "utf-8")
    with ServerProcess(echo_command, {"api_keys": f"{sha256(KEY)},", "api_keys_file": file}) as server:
        yield server.ready()


@pytest.fixture(scope="module")
def client(guarded: ServerProcess) -> Iterator[httpx.Client]:
    with guarded.client() as client:
        yield client


def routes() -> list[tuple[str, str]]:
    app = create_app(load_settings())
    found = [route for route in app.routes if isinstance(route, APIRoute)]
    assert len(found) == len(app.routes), "the app has a kind of route that this test does not support"
    # tests/api/dialects tests the routes of the dialects.
    found = [route for route in found if DIALECTS.of(route.path) is None]
    return [(method, route.path) for route in found for method in sorted(route.methods or ())]


def test_only_the_probes_and_the_page_are_open() -> None:
    assert {"/livez", "/readyz"} | page_paths() == OPEN_PATHS
    assert {path for _, path in routes()} >= OPEN_PATHS


@pytest.mark.parametrize(("method", "path"), routes())
def test_every_other_route_needs_a_key(client: httpx.Client, method: str, path: str) -> None:
    without = client.request(method, path)
    wrong = client.request(method, path, headers={"authorization": "Bearer wrong"})
    right = client.request(method, path, headers={"authorization": f"Bearer {KEY}"})
    if path in OPEN_PATHS:
        assert (without.status_code, wrong.status_code, right.status_code) == (200, 200, 200)
        return
    assert (without.status_code, wrong.status_code) == (401, 403)
    assert right.status_code not in {401, 403}
    assert without.json()["error"]["code"] == "unauthorized"
    assert wrong.json()["error"]["code"] == "forbidden"
    assert without.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "path", ["/livez/", "//livez", "/livez/../metrics", "/nope", "/v1/translate/", "/LIVEZ"]
)
def test_a_path_that_looks_like_a_probe_is_not_open(client: httpx.Client, path: str) -> None:
    assert client.get(httpx.URL(str(client.base_url) + path)).status_code == 401


def test_an_options_request_needs_a_key(client: httpx.Client) -> None:
    assert client.request("OPTIONS", "/v1/translate").status_code == 401


@pytest.mark.parametrize(
    "values",
    [
        [],
        [b""],
        [b"Bearer"],
        [b"Basic " + KEY.encode()],
        [KEY.encode()],
        [b"Bearer " + KEY.encode(), b"Bearer " + KEY.encode()],
    ],
)
def test_a_header_without_a_bearer_key_counts_as_missing(values: list[bytes]) -> None:
    with pytest.raises(Unauthorized) as raised:
        ApiKeys([unnamed_key(sha256(KEY))]).caller("/metrics", values)
    assert not raised.value.is_wrong_key


@pytest.mark.parametrize("key", [KEY[:-1], KEY + "x", KEY.upper(), "", "\u00e9", sha256(KEY)])
def test_a_wrong_key(key: str) -> None:
    with pytest.raises(Unauthorized) as raised:
        ApiKeys([unnamed_key(sha256(KEY))]).caller("/metrics", [b"Bearer " + key.encode()])
    assert raised.value.is_wrong_key
    assert key not in raised.value.message or not key


def test_blanks_around_a_key_are_no_part_of_it() -> None:
    key = unnamed_key(sha256(KEY))
    assert ApiKeys([key]).caller("/metrics", [b"Bearer   " + KEY.encode() + b" \t"]) == key.name


def test_caller_names_differ_by_key_and_hide_it() -> None:
    keys = ApiKeys([unnamed_key(sha256(KEY)), unnamed_key(sha256(OTHER_KEY))])
    first = keys.caller("/metrics", [b"bearer " + KEY.encode()])
    second = keys.caller("/metrics", [b"Bearer " + OTHER_KEY.encode()])
    assert first != second
    assert KEY not in first


def test_a_key_of_the_file_works(client: httpx.Client) -> None:
    assert client.get("/v1/models", headers={"authorization": f"Bearer {OTHER_KEY}"}).status_code == 200


def test_two_keys_in_a_request_count_as_none(client: httpx.Client) -> None:
    twice = [("authorization", f"Bearer {OTHER_KEY}")] * 2
    assert client.get("/v1/models", headers=twice).status_code == 401


def test_no_log_line_holds_a_key(guarded: ServerProcess, client: httpx.Client) -> None:
    client.get("/v1/models", headers={"authorization": f"Bearer {KEY}", "x-request-id": "logged"})
    guarded.wait_for_request("logged")
    text = "".join(guarded.log)
    assert KEY not in text
    assert sha256(KEY) not in text


def test_without_keys_every_request_is_accepted() -> None:
    assert ApiKeys([]).caller("/metrics", []) == ""


def test_the_server_does_not_start_with_a_bad_key_file(echo_command: list[str], tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("not a hash", "utf-8")
    with ServerProcess(echo_command, {"api_keys_file": file}) as server:
        assert server.ended() == 1
        assert "the file is not TOML at line 1" in "".join(server.errors)
