"""A page of another site cannot use a visitor's browser to change a server that needs no key."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import httpx
import pytest

from app.api.http.cross_site import check_site
from app.errors import CrossSite
from tests.api.echo import GOLDEN
from tests.api.server_process import ServerProcess

KEY = "a key"
ELSEWHERE = {"origin": "https://elsewhere.example", "sec-fetch-site": "cross-site"}
GLOSSARY = {
    "name": "g", "source_lang": "en", "target_lang": "de", "entries": "river\tFluss", "entries_format": "tsv"
}  # fmt: skip


@pytest.fixture(scope="module", params=[False, True], ids=["no keys", "keys"])
def http(request: pytest.FixtureRequest, echo_command: list[str]) -> Iterator[httpx.Client]:
    settings: dict[str, object] = {"files_enabled": "true"}
    if request.param:
        settings["api_keys"] = hashlib.sha256(KEY.encode()).hexdigest()
    with ServerProcess(echo_command, settings) as server, server.ready().client() as client:
        if request.param:
            client.headers["authorization"] = f"Bearer {KEY}"
        yield client


def send(http: httpx.Client, path: str, headers: dict[str, str]) -> httpx.Response:
    """Send a form like a browser."""
    if path == "/v2/glossaries":
        return http.post(path, data=GLOSSARY, headers=headers)
    fields = {"source": "en", "target": "de", "source_lang": "EN", "target_lang": "DE"}
    return http.post(path, data=fields, files={"file": ("a.txt", GOLDEN.encode())}, headers=headers)


FORMS = pytest.mark.parametrize("path", ["/translate_file", "/v2/document", "/v2/glossaries"])


@FORMS
@pytest.mark.parametrize(
    "headers",
    [
        ELSEWHERE,
        {"sec-fetch-site": "cross-site"},
        {"origin": "http://elsewhere.example"},
        {"origin": "null"},
        {"origin": "https://other.elsewhere.example", "sec-fetch-site": "same-site"},
    ],
    ids=["both headers", "cross-site", "other origin", "null origin", "same site"],
)
def test_a_form_of_another_site_needs_a_key(http: httpx.Client, path: str, headers: dict[str, str]) -> None:
    answer = send(http, path, headers)
    if "authorization" in http.headers:
        assert answer.status_code < 300, answer.text
    else:
        assert answer.status_code == 403
        assert "another site" in answer.text
        assert answer.headers["x-request-id"]


@FORMS
@pytest.mark.parametrize(
    "headers",
    [{}, {"sec-fetch-site": "same-origin"}, {"sec-fetch-site": "none"}, {"origin": "http://HOST"}],
    ids=["no browser", "own page", "typed", "own origin"],
)
def test_all_other_forms_are_served(http: httpx.Client, path: str, headers: dict[str, str]) -> None:
    own = {name: value.replace("HOST", http.base_url.netloc.decode()) for name, value in headers.items()}
    assert send(http, path, own).status_code < 300


def test_pages_of_other_sites_may_call_the_routes_at_the_root(http: httpx.Client) -> None:
    assert http.get("/v2/glossary-language-pairs", headers=ELSEWHERE).status_code == 200
    question = {"q": GOLDEN, "source": "en", "target": "de", "api_key": KEY}
    answer = http.post("/translate", data=question, headers=ELSEWHERE)
    assert answer.json() == {"translatedText": GOLDEN}
    assert answer.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("allowed", ["https://elsewhere.example", "*"])
def test_an_origin_may_be_allowed(allowed: str) -> None:
    headers = {name.encode(): value.encode() for name, value in ELSEWHERE.items()}
    check_site("POST", headers, {allowed})
    with pytest.raises(CrossSite):
        check_site("POST", headers, {"https://another.example"})


def test_the_setting_for_other_origins_allows_their_forms(echo_command: list[str]) -> None:
    settings: dict[str, object] = {"files_enabled": "true", "cors_origins": ELSEWHERE["origin"]}
    with ServerProcess(echo_command, settings) as server, server.ready().client() as http:
        assert send(http, "/v2/glossaries", ELSEWHERE).status_code < 300
        assert send(http, "/v2/glossaries", {"origin": "https://another.example"}).status_code == 403


@pytest.mark.parametrize("host", [b"", b"elsewhere.example:8000", b"xelsewhere.example"])
def test_the_whole_origin_is_compared_with_the_host(host: bytes) -> None:
    headers = {b"host": host, b"origin": b"http://elsewhere.example"}
    with pytest.raises(CrossSite):
        check_site("POST", headers, ())
    check_site("POST", {**headers, b"host": b"Elsewhere.example"}, ())
    with pytest.raises(CrossSite):
        check_site("POST", {b"host": b"", b"origin": b"null"}, ())
