"""Uploads to /v2/document while both file workers are busy. The workers are real processes that the tests suspend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import deepl
import httpx
import psutil
import pytest

from tests.api.dialects.test_files import FastClock
from tests.api.processes import have_ended, wait_until
from tests.api.server_process import HANG_TIMEOUT_S, ServerProcess
from tests.api.test_file_workers import SLOW, busy_worker, post_document, state, status, upload, workers
from tests.api.test_quotas import TOKEN, client_of, metric, secret, used, write_keys

WORDS = b"Anna sees the river today."
MAX_FILES = 5
# The limits of each API key, by the name of the key.
LIMITS = {
    "readers": "",
    "free": "",
    "used-up": "requests_per_day = 9\ncharacters_per_day = 40",
    "small": "characters_per_day = 9",
}


@pytest.fixture
def server(echo_command: list[str], tmp_path: Path) -> Iterator[ServerProcess]:
    """A server that answers an upload after 0.3 s at the latest."""
    write_keys(tmp_path / "keys.toml", LIMITS)
    settings = {
        "api_keys_file": tmp_path / "keys.toml",
        "admin_token": TOKEN,
        "compat_timeout_s": 0.3,
        "file_cpu_s": 600,
        "max_files": MAX_FILES,
    }
    with ServerProcess(echo_command, settings) as process:
        yield process.ready()


@pytest.fixture
def busy(server: ServerProcess) -> Iterator[list[psutil.Process]]:
    """Both file workers, suspended while each reads a file. So both are busy until they are killed."""
    with client_of(server, "readers") as http:
        for _ in range(2):
            assert post_document(http, "a.md", SLOW).status_code == 200
    wait_until(lambda: len(workers(server)) == 2)
    found = workers(server)
    for worker in found:
        worker.suspend()
    yield found
    kill(found)


def kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        if process.is_running():
            process.kill()


def queued(http: httpx.Client, name: str, content: bytes) -> dict[str, str]:
    """The handle of an uploaded document, which is not read yet."""
    answer = post_document(http, name, content)
    assert answer.status_code == 200, answer.text
    assert status(http, answer.json()) == "queued"
    return dict(answer.json())


def test_the_unmodified_client_uploads_a_file_although_no_worker_is_free(
    server: ServerProcess, busy: list[psutil.Process], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deepl.translator, "time", FastClock)
    path, out = tmp_path / "a.txt", tmp_path / "out"
    path.write_bytes(WORDS)
    client = deepl.DeepLClient(secret("free"), server_url=server.url)
    with path.open("rb") as file:
        handle = client.translate_document_upload(file, source_lang="EN", target_lang="DE")
    assert client.translate_document_get_status(handle).status == deepl.DocumentStatus.Status.QUEUED
    assert used(server, "free")["concurrent_requests"]["used"] == 1
    with client_of(server, "readers") as http:
        document = {"document_id": handle.document_id, "document_key": handle.document_key}
        assert state(http, document) == {"message": "there is no such file here"}
    kill(busy)
    done = client.translate_document_wait_until_done(handle)
    assert (done.ok, done.billed_characters) == (True, len(WORDS))
    with out.open("wb") as file:
        client.translate_document_download(handle, file)
    assert out.read_bytes() == WORDS
    assert used(server, "free")["characters_per_day"]["used"] == len(WORDS)


@pytest.mark.parametrize(
    ("key", "name", "content", "code", "reason", "num_rejected"),
    [
        ("free", "a.json", b"{", 400, "invalid", 1),
        ("used-up", "a.txt", WORDS, 456, "quota", 1),
        ("small", "a.txt", WORDS, 413, "too_large", 3),  # two of the three: the files of the killed workers
    ],
)
def test_an_error_found_after_the_answer_has_the_message_of_an_immediate_error(
    server: ServerProcess,
    busy: list[psutil.Process],
    key: str,
    name: str,
    content: bytes,
    code: int,
    reason: str,
    num_rejected: int,
) -> None:
    with client_of(server, key) as http:
        if key == "used-up":
            body = {"text": WORDS.decode(), "source": "en", "target": "de"}
            assert http.post("/v1/translate", json=body).status_code == 200
        before = used(server, key)
        handle = queued(http, name, content)
        kill(busy)
        wait_until(lambda: status(http, handle) == "error")
        wait_until(lambda: metric(server, f'transduce_rejected_total{{reason="{reason}"}}') == num_rejected)
        immediate = post_document(http, name, content)
        assert immediate.status_code == code
        assert state(http, handle)["error_message"] == immediate.json()["message"]
    after = used(server, key)
    for kind in ("concurrent_requests", "requests_per_day", "characters_per_day"):
        assert after[kind]["used"] == before[kind]["used"], kind


def test_a_file_that_waits_for_a_worker_counts_towards_max_files(
    server: ServerProcess, busy: list[psutil.Process]
) -> None:
    with client_of(server, "free") as http:
        handles = [queued(http, "a.txt", WORDS) for _ in range(MAX_FILES - len(busy))]
        assert post_document(http, "a.txt", WORDS).status_code == 429
        kill(busy)
        wait_until(lambda: [status(http, handle) for handle in handles] == ["done"] * len(handles))


def test_a_file_that_waits_for_a_worker_has_no_result_yet(
    server: ServerProcess, busy: list[psutil.Process]
) -> None:
    with client_of(server, "free") as http:
        handle = queued(http, "a.txt", WORDS)
        path = f"/v2/document/{handle['document_id']}/result"
        answer = http.post(path, json={"document_key": handle["document_key"]})
    assert (answer.status_code, answer.json()) == (503, {"message": "the document is not translated yet"})


def test_the_end_of_the_server_ends_file_workers(server: ServerProcess, busy: list[psutil.Process]) -> None:
    with client_of(server, "free") as http:
        queued(http, "a.txt", WORDS)
    server.signal()
    assert server.ended() == 0
    wait_until(lambda: have_ended(busy))
    assert not [line for line in server.log if '"level": "error"' in line or "Traceback" in line]
    assert server.errors == []


def test_a_worker_ends_if_its_client_disconnects_before_the_answer(echo_command: list[str]) -> None:
    settings: dict[str, object] = {"file_cpu_s": 600, "compat_timeout_s": HANG_TIMEOUT_S, "max_files": 1}
    with ServerProcess(echo_command, settings) as server, server.ready().client() as http:
        with server.connect() as caller:
            caller.sendall(upload("a.md", SLOW, path="/v2/document"))
            worker = busy_worker(server)
        wait_until(lambda: have_ended([worker]))
        server.wait_until('transduce_rejected_total{reason="cancelled"}', 1)
        handle = post_document(http, "a.txt", WORDS).json()  # max_files is 1, so the first file must be gone
        wait_until(lambda: status(http, handle) == "done")
