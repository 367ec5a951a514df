"""A file that takes too much CPU time or memory fails alone, and no worker outlives its caller or its server.

The tests use sockets and real worker processes.
"""

from __future__ import annotations

import asyncio
import io
import json
import resource
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import psutil
import pytest

from app.errors import NotReady
from app.file_worker.__main__ import MAX_REUSED_KIB, _read_frame
from app.file_worker.messages import LENGTH_BYTES, ReadRequest, WorkerLimits
from app.file_worker.workers import FileWorkers, _environment, _Worker, _WorkerDied
from app.files import FileFormat
from tests.api.processes import have_ended, wait_until
from tests.api.server_process import HANG_TIMEOUT_S, ServerProcess

# Markdown's parser needs more than ten seconds for this file.
SLOW = b"![" * 400_000
# This file needs more memory than a worker with 100 MB has.
LARGE = b"# a\n" * 60_000


@pytest.fixture(scope="module")
def server(echo_command: list[str]) -> Iterator[ServerProcess]:
    settings: dict[str, object] = {"file_cpu_s": 2, "file_memory_bytes": 100_000_000}
    with ServerProcess(echo_command, settings) as process:
        yield process.ready()


@pytest.fixture
def http(server: ServerProcess) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def post(http: httpx.Client, name: str, content: bytes) -> httpx.Response:
    return http.post(
        "/translate_file", files={"file": (name, content)}, data={"source": "en", "target": "de"}
    )


def post_document(http: httpx.Client, name: str, content: bytes) -> httpx.Response:
    form = {"source_lang": "en", "target_lang": "de"}
    return http.post("/v2/document", files={"file": (name, content)}, data=form)


def state(http: httpx.Client, handle: dict[str, str]) -> dict[str, Any]:
    """What the server says about an uploaded document."""
    form = {"document_key": handle["document_key"]}
    return dict(http.post(f"/v2/document/{handle['document_id']}", json=form).json())


def status(http: httpx.Client, handle: dict[str, str]) -> str:
    """The status of an uploaded document."""
    return str(state(http, handle)["status"])


def upload(name: str, content: bytes, *, num_sent: int | None = None, path: str = "/translate_file") -> bytes:
    """The bytes of an upload, which end after `num_sent` bytes of the file. num_sent: None for the whole upload."""
    form = b'--x\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
    head = (
        form % (b"source", b"en")
        + form % (b"target", b"de")
        + form % (b"target_lang", b"de")
        + b'--x\r\nContent-Disposition: form-data; name="file"; filename="%s"\r\n\r\n' % name.encode()
    )
    body = head + content + b"\r\n--x--\r\n"
    start = (
        b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=x\r\n"
        b"Content-Length: %d\r\n\r\n" % (path.encode(), len(body))
    )
    return start + (body if num_sent is None else body[: len(head) + num_sent])


def workers(server: ServerProcess) -> list[psutil.Process]:
    found = []
    for child in psutil.Process(server.pid).children(recursive=True):
        try:
            if "app.file_worker" in child.cmdline() and child.status() != psutil.STATUS_ZOMBIE:
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


def busy_worker(server: ServerProcess) -> psutil.Process:
    """The worker that has used some CPU time."""
    until = time.monotonic() + HANG_TIMEOUT_S
    while time.monotonic() < until:
        for worker in workers(server):
            if worker.cpu_times().user > 0.4:
                return worker
        time.sleep(0.02)
    raise AssertionError("no worker is busy")


def test_a_file_that_takes_too_long_is_refused_and_the_next_one_is_read(http: httpx.Client) -> None:
    answer = post(http, "a.md", SLOW)
    assert answer.status_code == 400
    assert "2 s of CPU time" in answer.json()["error"]
    assert post(http, "a.md", b"Anna sees the river today.").status_code == 200


def test_a_file_that_takes_too_much_memory_is_refused_and_the_next_one_is_read(http: httpx.Client) -> None:
    answer = post(http, "a.md", LARGE)
    assert answer.status_code == 400
    assert "100000000 bytes of memory" in answer.json()["error"]
    assert post(http, "a.md", b"Anna sees the river today.").status_code == 200


def test_a_file_is_answered_in_time_although_other_files_have_their_turn(
    echo_command: list[str], hang_file: Path
) -> None:
    settings: dict[str, object] = {"file_timeout_s": 3}
    with ServerProcess([*echo_command, f"hang_file={hang_file}"], settings) as server:
        http = server.ready().client()
        hang_file.touch()

        def answer(_: int) -> tuple[int, float]:
            began_at = time.monotonic()
            answer = post(http, "a.txt", b"Anna sees the river today.")
            assert answer.json() == {"error": "the file was not translated in 3 s"}
            return answer.status_code, time.monotonic() - began_at

        with http, ThreadPoolExecutor(5) as pool:
            answers = list(pool.map(answer, range(5)))
        hang_file.unlink()
    assert max(taken for _, taken in answers) < 5
    assert {status for status, _ in answers} == {504}


def test_the_time_of_a_document_begins_with_its_turn(echo_command: list[str], hang_file: Path) -> None:
    settings: dict[str, object] = {"file_timeout_s": 3}
    command = [*echo_command, f"hang_file={hang_file}"]
    with ServerProcess(command, settings) as server, server.ready().client() as http:
        hang_file.touch()
        handles = [post_document(http, "a.txt", b"Anna sees the river today.").json() for _ in range(3)]
        wait_until(lambda: [status(http, handle) for handle in handles[:2]] == ["error", "error"])
        assert status(http, handles[2]) == "translating"
        hang_file.unlink()
        wait_until(lambda: status(http, handles[2]) == "done")


def test_a_document_that_is_read_for_too_long_fails(echo_command: list[str]) -> None:
    settings: dict[str, object] = {"file_cpu_s": 600, "compat_timeout_s": 0.5, "file_timeout_s": 2}
    with ServerProcess(echo_command, settings) as server, server.ready().client() as http:
        handle = post_document(http, "a.md", SLOW).json()
        wait_until(lambda: status(http, handle) == "error")
        found = http.post(f"/v2/document/{handle['document_id']}", json=handle).json()
        assert found["error_message"] == "the file was not read or written within 2 s"
        wait_until(lambda: not workers(server))


def test_a_worker_ends_when_its_caller_disconnects(echo_command: list[str]) -> None:
    with ServerProcess(echo_command, {"file_cpu_s": 600}) as server, server.ready().client() as http:
        with socket.create_connection(("127.0.0.1", http.base_url.port)) as caller:
            caller.sendall(upload("a.md", SLOW))
            worker = busy_worker(server)
            assert http.get("/livez").status_code == 200
        wait_until(lambda: have_ended([worker]))
        assert post(http, "a.md", b"Anna sees the river today.").status_code == 200


def test_a_drain_ends_a_worker_that_is_at_work(echo_command: list[str]) -> None:
    with ServerProcess(echo_command, {"file_cpu_s": 600, "drain_timeout_s": 1}) as server:
        port = server.ready().client().base_url.port
        with socket.create_connection(("127.0.0.1", port)) as caller:
            caller.sendall(upload("a.md", SLOW))
            worker = busy_worker(server)
            server.signal()
            assert server.ended() == 0
            wait_until(lambda: have_ended([worker]))


def test_a_killed_server_leaves_no_worker_and_the_next_start_deletes_its_files(
    echo_command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with ServerProcess(echo_command) as live, live.ready().client() as http:
        url = post(http, "a.txt", b"Anna sees the river today.").json()["translatedFileUrl"]
        with ServerProcess(echo_command) as killed, killed.ready().client() as other:
            assert post(other, "a.txt", b"Anna sees the river today.").status_code == 200
            with socket.create_connection(("127.0.0.1", other.base_url.port)) as caller:
                caller.sendall(upload("a.md", SLOW))
                worker = busy_worker(killed)
                killed.signal(signal.SIGKILL)
                wait_until(lambda: have_ended([worker]))
        assert len(list(tmp_path.glob("transduce-files-*"))) == 2
        with ServerProcess(echo_command) as following:
            following.ready()
            # The start deletes the folder of the killed server, and keeps the folder of the live server.
            assert len(list(tmp_path.glob("transduce-files-*"))) == 1
            assert http.get(url).content == b"Anna sees the river today."


def test_an_upload_that_is_read_when_a_drain_begins_gets_503(echo_command: list[str]) -> None:
    with ServerProcess(echo_command) as server:
        port = server.ready().client().base_url.port
        with socket.create_connection(("127.0.0.1", port)) as caller:
            caller.sendall(upload("a.txt", b"a" * 50_000, num_sent=20_000))
            time.sleep(0.5)
            server.signal()
            answer = b"".join(iter(lambda: caller.recv(65_536), b""))
        assert server.ended() == 0
    assert answer.startswith(b"HTTP/1.1 503 ")
    logged = [json.loads(line) for line in server.log if "/translate_file" in line]
    assert [line["status"] for line in logged] == [503]
    assert not [line for line in server.log if '"level": "error"' in line or "Traceback" in line]


def test_a_line_of_many_sentences_is_split(echo_command: list[str]) -> None:
    line = b"Anna sees. " * 1_500
    settings: dict[str, object] = {"max_request_sentences": 100, "max_items": 50}
    with ServerProcess(echo_command, settings) as server, server.ready().client() as http:
        for name in ("a.txt", "a.md", "a.html"):
            answer = post(http, name, line)
            assert answer.status_code == 200, answer.text
            assert http.get(answer.json()["translatedFileUrl"]).content == line


def test_a_worker_does_not_get_the_servers_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The case of a setting's name does not matter."""
    monkeypatch.setenv("TRANSDUCE_API_KEYS", "secret")
    monkeypatch.setenv("transduce_admin_token", "secret")
    assert "secret" not in _environment().values()


def test_a_worker_is_used_again_although_the_server_has_used_much_memory() -> None:
    """A worker begins with the `ru_maxrss` of the server, which must not count as memory of the worker."""
    content = b"x" * 1024 * MAX_REUSED_KIB
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > len(content)

    async def scenario() -> list[set[int]]:
        before = {process.pid for process in psutil.Process().children()}
        workers = FileWorkers(WorkerLimits(256_000_000, 20, 2048), num_workers=1)
        found = []
        for _ in range(2):
            await workers.read(ReadRequest(b"Yes.", FileFormat.TXT), share="", timeout_s=HANG_TIMEOUT_S)
            found.append({process.pid for process in psutil.Process().children()} - before)
        await workers.close()
        return found

    first, second = asyncio.run(scenario())
    assert first == second
    assert len(first) == 1


def test_a_worker_that_starts_while_the_pool_closes_is_ended() -> None:
    before = set(psutil.Process().children())

    async def scenario() -> None:
        workers = FileWorkers(WorkerLimits(256_000_000, 20, 2048), num_workers=1)
        reading = asyncio.create_task(
            workers.read(ReadRequest(b"Yes.", FileFormat.TXT), share="", timeout_s=HANG_TIMEOUT_S)
        )
        await asyncio.sleep(0)  # the process begins to start
        await workers.close()
        with pytest.raises(NotReady):
            await reading
        await workers.close()

    asyncio.run(scenario())
    wait_until(lambda: have_ended(list(set(psutil.Process().children()) - before)))


@pytest.mark.parametrize("num_lost", [0, 1, 4, 5, 8])
def test_a_message_that_has_not_arrived_completely_is_none(num_lost: int) -> None:
    frame = (4).to_bytes(LENGTH_BYTES, "little") + b"text"
    source = io.BytesIO(frame[: len(frame) - num_lost])
    assert _read_frame(source) == (None if num_lost else b"text")


def test_a_response_is_read_only_if_it_is_within_its_limit() -> None:
    async def answer(max_bytes: int) -> bytes:
        reader = asyncio.StreamReader()
        reader.feed_data((4).to_bytes(LENGTH_BYTES, "little") + b"text")
        writer = SimpleNamespace(write=lambda _data: None, drain=lambda: asyncio.sleep(0))
        process: Any = SimpleNamespace(stdin=writer, stdout=reader)
        return await _Worker(process).exchange(b"", max_bytes)

    assert asyncio.run(answer(4)) == b"text"
    with pytest.raises(_WorkerDied):
        asyncio.run(answer(3))
