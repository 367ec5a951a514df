"""Limits of API keys over HTTP: refusals in every dialect, what costs nothing, reloads of the keys, metrics."""

from __future__ import annotations

import hashlib
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.files.routes import UPLOAD_PATHS
from tests.api.echo import POISON
from tests.api.server_process import HANG_TIMEOUT_S, ServerProcess

TOKEN = "an-administrators-token"
TEXT = "Anna sees the river."  # 20 characters
BODY = {"text": TEXT, "source": "en", "target": "de"}
LIMITS = {
    "free": "",
    "small": "characters_per_month = 60",
    "daily": "requests_per_day = 2",
    "failing": "characters_per_day = 100",
    "counted": "characters_per_day = 10_000",
    "single": "concurrent_requests = 1",
    "used-up": "requests_per_day = 1",
    "uploads": "concurrent_requests = 1\nrequests_per_day = 1\ncharacters_per_day = 30",
}


def secret(name: str) -> str:
    return f"the-secret-of-{name}"


def write_keys(file: Path, limits: dict[str, str]) -> None:
    text = "".join(f'[{name}]\nkey = "{secret(name)}"\n{limit}\n' for name, limit in limits.items())
    new = file.with_suffix(".new")
    new.write_text(text, "utf-8")
    new.replace(file)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quotas")


@pytest.fixture(scope="module")
def limited(echo_command: list[str], folder: Path) -> Iterator[ServerProcess]:
    write_keys(folder / "keys.toml", LIMITS)
    settings = {
        "api_keys_file": folder / "keys.toml",
        "admin_token": TOKEN,
        "usage_path": folder / "usage.sqlite",
    }
    with ServerProcess([*echo_command, f"hang_file={folder / 'hang'}"], settings) as server:
        yield server.ready()


def client_of(server: ServerProcess, name: str) -> httpx.Client:
    return server.client(headers={"authorization": f"Bearer {secret(name)}"})


def used(server: ServerProcess, name: str) -> dict[str, Any]:
    """The administrator's view of a key."""
    with server.client() as client:
        answer = client.get("/admin/keys", headers={"authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200, answer.text
    (found,) = [each for each in answer.json()["keys"] if each["name"] == name]
    return dict(found)


def metric(server: ServerProcess, name: str, *, key: str = "free") -> float:
    with client_of(server, key) as client:
        lines = client.get("/metrics").text.splitlines()
    return next(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name} "))


def test_every_dialect_refuses_what_is_beyond_a_quota(limited: ServerProcess) -> None:
    text = TEXT + "."  # one character more than the quota has left
    long, file = {**BODY, "text": text}, {"file": ("a.txt", text.encode())}
    infer = {
        "inputs": [{"name": "text", "datatype": "BYTES", "shape": [1], "data": [text]}],
        "parameters": {"source": "en", "target": "de"},
    }
    v2 = {"source_lang": "en", "target_lang": "de"}
    keyed = {"source": "en", "target": "de", "api_key": secret("small")}
    with client_of(limited, "small") as client:
        for _ in range(2):
            answer = client.post("/v1/translate", json=BODY)
            assert answer.status_code == 200, answer.text
        policy, rest = answer.headers["ratelimit-policy"], answer.headers["ratelimit"]
        assert re.fullmatch(r'"characters_per_month";q=60;w=\d{7}', policy)
        assert re.fullmatch(r'"characters_per_month";r=20;t=\d+', rest)
        answers = [
            (429, client.post("/v1/translate", json=long)),
            (429, client.post("/v1/translate/stream", json=long)),
            (429, client.post("/v1/score", json={**BODY, "translation": TEXT})),
            (429, client.post("/translate", json={**keyed, "q": text})),
            (429, client.post("/translate_file", data=keyed, files=file)),
            (429, client.post("/v2/models/echo/infer", json=infer)),
            (456, client.post("/v2/translate", json={**v2, "text": [text]})),
            (456, client.post("/v2/document", data=v2, files=file)),
        ]
        for status, answer in answers:
            assert answer.status_code == status, answer.text
            assert (
                "the limit of this API key is 60 characters a month: 40 are used, and this request needs"
                in answer.text
            )
            left_s = int(re.search(r"t=(\d+)", answer.headers["ratelimit"])[1])  # type: ignore[index]
            assert (
                left_s <= int(answer.headers["retry-after"]) <= left_s + 1
            )  # the clock may tick between the two
        assert answers[0][1].json()["error"]["code"] == "quota_exceeded"
        assert answers[3][1].json()["error"].startswith("Slowdown: ")
        assert answers[6][1].json().keys() == {"message"}
        too_long = client.post("/v1/translate", json={**BODY, "text": TEXT * 4})
        assert (too_long.status_code, too_long.json()["error"]["code"]) == (413, "payload_too_large")
        assert client.get("/v2/usage").json() == {"character_count": 40, "character_limit": 60}
        assert client.post("/v1/translate", json=BODY).status_code == 200, "what is refused costs nothing"
    assert used(limited, "small")["refused"] == 9
    assert metric(limited, 'transduce_key_refused_total{key="small",limit="characters_per_month"}') == 9
    assert metric(limited, 'transduce_key_limit_used_ratio{key="small",limit="characters_per_month"}') == 1


def test_requests_are_limited_apart_from_characters(limited: ServerProcess) -> None:
    with client_of(limited, "daily") as client:
        assert client.post("/v1/detect", json={"text": TEXT}).status_code == 200
        assert client.get("/v1/models").status_code == 200, "only work counts"
        assert client.post("/v1/translate", json={**BODY, "target": "xx"}).status_code == 422
        assert client.post("/v1/translate", json=BODY).status_code == 200
        answer = client.post("/v2/translate", json={"text": [TEXT], "source_lang": "en", "target_lang": "de"})
        assert answer.status_code == 429
        assert "2 requests a day: 2 are used" in answer.json()["message"]
        assert client.post("/v1/detect", json={"text": TEXT}).status_code == 429


def test_a_request_that_fails_costs_nothing(limited: ServerProcess, folder: Path) -> None:
    failures = 'transduce_rejected_total{reason="engine"}'
    failed_before = metric(limited, failures)
    with client_of(limited, "failing") as client:
        for path in ("/v1/translate", "/v1/translate/stream"):
            answers = [client.post(path, json={**BODY, "text": POISON})]
            (folder / "hang").touch()
            answers.append(client.post(path, json={**BODY, "text": "This is late.", "timeout_ms": 100}))
            (folder / "hang").unlink()
            assert [answer.status_code for answer in answers] == [500, 504]
            for answer in answers:
                assert answer.headers["ratelimit"].startswith('"characters_per_day";r=100;')
        file = {"file": ("a.txt", POISON.encode())}
        v2 = client.post("/v2/document", data={"source_lang": "en", "target_lang": "de"}, files=file).json()
        path, key = f"/v2/document/{v2['document_id']}", {"document_key": v2["document_key"]}
        until = time.monotonic() + HANG_TIMEOUT_S
        while client.post(path, json=key).json()["status"] != "error":
            assert time.monotonic() < until
            time.sleep(0.05)
    assert metric(limited, failures) == failed_before + 3
    found = used(limited, "failing")
    assert found["characters_per_day"]["used"] == found["requests_per_day"]["used"] == 0


def test_streams_files_and_scores_count_towards_the_limits(limited: ServerProcess) -> None:
    expected = 0
    with client_of(limited, "counted") as client:
        assert "event: done" in client.post("/v1/translate/stream", json=BODY).text
        expected += 20
        assert client.post("/v1/score", json={**BODY, "translation": "Anna."}).status_code == 200
        expected += 25
        keyed = {"source": "en", "target": "de", "api_key": secret("counted")}
        file = {"file": ("a.txt", TEXT.encode())}
        assert client.post("/translate_file", data=keyed, files=file).status_code == 200
        expected += 20
        assert client.post("/translate", json={**keyed, "q": "Anna."}).status_code == 200
        expected += 5
    found = used(limited, "counted")
    assert found["characters_per_day"]["used"] == found["characters_per_month"]["used"] == expected
    assert found["characters_per_day"]["limit"] == 10_000
    assert "limit" not in found["characters_per_month"]
    assert found["requests_per_day"]["used"] == 4
    assert re.fullmatch(r"\d{4}-\d\d-01T00:00:00Z", found["characters_per_month"]["next_period_at"])
    assert metric(limited, 'transduce_key_characters_total{key="counted"}') == expected
    with client_of(limited, "counted") as client:
        assert client.get("/admin/keys").status_code == 401, "a key is no token"


def test_requests_in_progress_are_limited(limited: ServerProcess, folder: Path) -> None:
    (folder / "hang").touch()
    statuses = []

    def translate() -> None:
        with client_of(limited, "single") as client:
            body = {**BODY, "text": "The cache does not know this."}
            statuses.append(client.post("/v1/translate", json=body).status_code)

    first = threading.Thread(target=translate)
    first.start()
    until = time.monotonic() + HANG_TIMEOUT_S
    while used(limited, "single")["concurrent_requests"] != {"used": 1, "limit": 1}:
        assert time.monotonic() < until
        time.sleep(0.02)
    with client_of(limited, "single") as client:
        answer = client.post("/v1/translate", json=BODY)
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        (folder / "hang").unlink()
        first.join()
        assert statuses == [200]
        assert client.post("/v1/translate", json=BODY).status_code == 200


def upload(client: httpx.Client, path: str, name: str, content: bytes, **fields: str) -> httpx.Response:
    form = {"source": "en", "target": "de", "source_lang": "en", "target_lang": "de", **fields}
    return client.post(path, data=form, files={"file": (name, content)})


def test_a_file_beyond_a_limit_of_requests_is_refused_before_it_is_read(
    limited: ServerProcess, folder: Path
) -> None:
    """A reader would refuse the file, because it is no JSON."""
    with client_of(limited, "used-up") as client:
        assert client.post("/v1/translate", json=BODY).status_code == 200
        for path in UPLOAD_PATHS:
            answer = upload(client, path, "a.json", b"{")
            assert answer.status_code == 429, answer.text
    with client_of(limited, "single") as client:
        (folder / "hang").touch()
        handle = upload(client, "/v2/document", "a.txt", b"The cache does not know this file.")
        assert handle.status_code == 200, handle.text
        for path in UPLOAD_PATHS:
            answer = upload(client, path, "a.json", b"{")
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "1"), answer.text
        (folder / "hang").unlink()
        until = time.monotonic() + HANG_TIMEOUT_S
        while used(limited, "single")["concurrent_requests"]["used"]:
            assert time.monotonic() < until
            time.sleep(0.02)
        assert upload(client, "/translate_file", "a.json", b"{").status_code == 400, "it is now read"


@pytest.mark.parametrize("path", UPLOAD_PATHS)
def test_an_upload_that_fails_at_any_step_costs_nothing(limited: ServerProcess, path: str) -> None:
    with client_of(limited, "uploads") as client:
        answers = [
            (415, client.post(path, json={})),
            (400, client.post(path, files={"other": ("a.txt", b"a")})),
            (400, upload(client, path, "a.exe", b"a")),
            (400, upload(client, path, "a.txt", b"a", source="xx", source_lang="xx")),
            (400, upload(client, path, "a.json", b"{")),
            (413, upload(client, path, "a.txt", (TEXT * 2).encode())),
        ]
        if path == "/v2/document":
            answers.append((404, upload(client, path, "a.txt", b"a", glossary_id="missing")))
        else:
            answers.append((500, upload(client, path, "a.txt", POISON.encode())))
    for status, answer in answers:
        assert answer.status_code == status, answer.text
    found = used(limited, "uploads")
    counts = [
        found[each]["used"] for each in ("concurrent_requests", "requests_per_day", "characters_per_day")
    ]
    assert counts == [0, 0, 0]


def test_keys_change_without_a_restart(echo_command: list[str], tmp_path: Path) -> None:
    file, old = tmp_path / "keys.toml", {"free": "", "old": ""}
    write_keys(file, old)

    def status(name: str) -> int:
        with client_of(server, name) as client:
            return client.post("/v1/translate", json=BODY).status_code

    with ServerProcess(echo_command, {"api_keys_file": file, "watch": True}) as server:
        server.ready()
        assert (status("free"), status("new")) == (200, 403)
        write_keys(file, {**old, "new": "requests_per_day = 1"})
        server.signal(signal.SIGHUP)
        assert server.wait_for("keys_reloaded")["names"] == 3
        assert [status("new"), status("new")] == [200, 429]
        write_keys(file, {**old, "new": "requests_per_days = 9"})
        server.signal(signal.SIGHUP)
        assert server.wait_for("keys_reload_failed")["problem"].endswith(
            "[new] requests_per_days is not known; did you mean requests_per_day?"
        )
        assert (status("free"), status("old"), status("new")) == (200, 200, 429)
        write_keys(file, {"free": ""})  # no signal: the server watches the file
        assert server.wait_for("keys_reloaded")["names"] == 1
        assert (status("free"), status("old"), status("new")) == (200, 403, 403)
        assert metric(server, 'transduce_key_reloads_total{outcome="failed"}') >= 1


def test_the_log_and_the_metrics_have_only_the_names_of_keys(limited: ServerProcess) -> None:
    names = [*LIMITS, "unknown"]
    for name in names:
        with client_of(limited, name) as client:
            answer = client.post("/v1/translate", json=BODY, headers={"x-request-id": f"logged-{name}"})
        line = limited.wait_for_request(f"logged-{name}")
        assert (answer.status_code == 403) == (name == "unknown")
        assert line.get("caller") == (None if name == "unknown" else name)
    with client_of(limited, "free") as client:
        metrics = client.get("/metrics").text
    log = "".join(limited.log)
    for name in names:
        for hidden in (secret(name), hashlib.sha256(secret(name).encode()).hexdigest()[:12]):
            assert hidden not in log
            assert hidden not in metrics


def test_servers_with_one_usage_file_share_their_counts_even_after_a_kill(
    echo_command: list[str], tmp_path: Path
) -> None:
    """Another server sees counts after three seconds at most. Counts survive a SIGKILL of the server that made them."""
    write_keys(tmp_path / "keys.toml", {"team": "characters_per_month = 100"})
    settings = {
        "api_keys_file": tmp_path / "keys.toml",
        "admin_token": TOKEN,
        "usage_path": tmp_path / "usage.sqlite",
    }

    ratio = 'transduce_key_limit_used_ratio{key="team",limit="characters_per_month"}'

    def status(server: ServerProcess, text: str) -> int:
        with client_of(server, "team") as client:
            return client.post("/v1/translate", json={**BODY, "text": text}).status_code

    with ServerProcess(echo_command, settings) as second:
        second.ready()
        with ServerProcess(echo_command, settings) as first:
            first.ready()
            assert [status(first, TEXT) for _ in range(3)] == [200] * 3
            time.sleep(3)
            assert metric(second, ratio, key="team") == 0.6
            assert used(second, "team")["characters_per_month"]["used"] == 60
            assert status(second, TEXT * 2 + ".") == 429
            first.signal(signal.SIGKILL)
            first.ended()
        with ServerProcess(echo_command, settings) as first:
            assert metric(first.ready(), ratio, key="team") == 0.6
            assert used(first, "team")["characters_per_month"]["used"] == 60
            assert [status(first, TEXT) for _ in range(3)] == [200, 200, 429]


def test_counts_that_a_restart_forgets_are_logged(echo_command: list[str], tmp_path: Path) -> None:
    """A key whose only limit is of requests in progress has no count."""
    for limit, is_logged in (("concurrent_requests = 1", False), ("requests_per_day = 1", True)):
        write_keys(tmp_path / "keys.toml", {"team": limit})
        with ServerProcess(echo_command, {"api_keys_file": tmp_path / "keys.toml"}) as server:
            server.ready()
            assert metric(server, "transduce_model_load_seconds", key="team") > 0
        assert any('"usage_not_kept"' in line for line in server.log) == is_logged
