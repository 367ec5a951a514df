"""Cross-origin requests: allowed for listed origins only, none by default."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import httpx
import pytest

from app.errors import SettingsError
from app.settings import Settings, load_settings
from tests.api.server_process import ServerProcess

OURS, OTHER = "https://shop.example", "https://elsewhere.example"
BODY = {"text": "Anna sees.", "source": "en", "target": "de"}
PREFLIGHT = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization, content-type",
}
KEY = "correct horse"


@pytest.fixture(scope="module")
def listing(echo_command: list[str]) -> Iterator[httpx.Client]:
    """A client of a server that allows two origins, OURS and one of this machine, and requires a key."""
    keys = hashlib.sha256(KEY.encode()).hexdigest()
    settings: dict[str, object] = {"cors_origins": f"{OURS}, http://localhost:5173", "api_keys": keys}
    with ServerProcess(echo_command, settings) as server, server.ready().client() as client:
        yield client


@pytest.mark.parametrize(
    "path", ["/v1/translate", "/v1/translate/stream", "/v2/translate", "/v2/models/echo/infer"]
)
def test_a_preflight_request_needs_no_key(listing: httpx.Client, path: str) -> None:
    reply = listing.options(path, headers={"origin": OURS, **PREFLIGHT})
    assert reply.status_code == 200
    assert reply.headers["access-control-allow-origin"] == OURS
    assert "POST" in reply.headers["access-control-allow-methods"]
    assert "authorization" in reply.headers["access-control-allow-headers"].lower()
    assert "Origin" in reply.headers["vary"]
    assert "access-control-allow-credentials" not in reply.headers
    refused = listing.options(path, headers={"origin": OTHER, **PREFLIGHT})
    assert refused.status_code == 400
    assert "access-control-allow-origin" not in refused.headers


def test_a_listed_page_may_read_the_answer(listing: httpx.Client) -> None:
    headers = {"origin": OURS, "authorization": f"Bearer {KEY}"}
    answer = listing.post("/v1/translate", json=BODY, headers=headers)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == OURS
    assert "server-timing" in answer.headers
    exposed = answer.headers["access-control-expose-headers"].lower()
    assert {"server-timing", "retry-after", "x-request-id", "ratelimit", "ratelimit-policy"} <= set(
        exposed.split(", ")
    )
    assert "origin" in answer.headers["vary"].lower()


def test_a_listed_page_may_read_an_error(listing: httpx.Client) -> None:
    """Without the header the page sees only that its request failed."""
    answer = listing.post("/v1/translate", json=BODY, headers={"origin": OURS})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (401, OURS)
    assert answer.json()["error"]["code"] == "unauthorized"
    unknown = listing.get("/nowhere", headers={"origin": OURS, "authorization": f"Bearer {KEY}"})
    assert (unknown.status_code, unknown.headers["access-control-allow-origin"]) == (404, OURS)


def test_another_page_may_not_read_the_answer(listing: httpx.Client) -> None:
    headers = {"origin": OTHER, "authorization": f"Bearer {KEY}"}
    answer = listing.post("/v1/translate", json=BODY, headers=headers)
    assert answer.status_code == 200, (
        "the server must answer, because a client other than a browser may send any origin"
    )
    assert "access-control-allow-origin" not in answer.headers


def test_without_an_origin_there_is_no_cors_header(listing: httpx.Client) -> None:
    answer = listing.post("/v1/translate", json=BODY, headers={"authorization": f"Bearer {KEY}"})
    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_the_routes_at_the_root_stay_open_to_all(listing: httpx.Client) -> None:
    for path in ("/translate", "/languages"):
        reply = listing.options(path, headers={"origin": OTHER, **PREFLIGHT})
        assert (reply.status_code, reply.headers["access-control-allow-origin"]) == (204, "*")
    answer = listing.get("/languages", headers={"origin": OTHER})
    assert answer.headers.get_list("access-control-allow-origin") == ["*"]


def test_by_default_no_other_page_may_read_an_answer(client: httpx.Client) -> None:
    reply = client.options("/v1/translate", headers={"origin": OURS, **PREFLIGHT})
    assert reply.status_code == 405
    answer = client.post("/v1/translate", json=BODY, headers={"origin": OURS})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "cross_site")
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_all_origins_can_be_allowed(echo_command: list[str]) -> None:
    with ServerProcess(echo_command, {"cors_origins": "*"}) as server, server.ready().client() as client:
        for origin in (OURS, OTHER, "null"):
            answer = client.post("/v1/translate", json=BODY, headers={"origin": origin})
            assert answer.status_code == 200
            assert answer.headers["access-control-allow-origin"] == "*"
            assert client.options("/v1/translate", headers={"origin": origin, **PREFLIGHT}).status_code == 200


@pytest.mark.parametrize(
    "origin", ["shop.example", "https://shop.example/", "https://Shop.example", "https://a/b", "**"]
)
def test_an_invalid_origin_stops_the_start(origin: str) -> None:
    with pytest.raises(SettingsError, match="CORS_ORIGINS"):
        load_settings({"cors_origins": f"{OURS},{origin}"})


def test_no_origin_is_allowed_by_default() -> None:
    assert Settings().cors_origins == frozenset()
