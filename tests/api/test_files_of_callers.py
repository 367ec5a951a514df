"""The files of one caller do not keep out the files of another caller. Without keys, each address is a caller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from app.api.files.document_jobs import DocumentJob, DocumentJobs
from app.api.files.document_store import DocumentLimits, StoredDocument
from app.api.plain_translation import PlainTranslator
from app.file_worker.messages import (
    FromWorker,
    ReadRequest,
    ReadResult,
    WorkerLimits,
    WriteRequest,
    WriteResult,
)
from app.files import FileFormat
from app.observability.metrics import Metrics
from app.stores.usage import Usage
from tests.api.processes import wait_until
from tests.api.server_process import HANG_TIMEOUT_S, NO_CERTIFICATES, ServerProcess
from tests.api.test_file_workers import SLOW, post, post_document, status, workers

WORDS = b"Anna sees the river today."
WORKER = WorkerLimits(memory_bytes=256_000_000, cpu_s=20, part_characters=2048)
LIMITS = DocumentLimits(
    max_file_bytes=100, max_files=9, max_kept_bytes=100, ttl_s=60, timeout_s=60, worker=WORKER, num_workers=1
)


def at(server: ServerProcess, number: int) -> httpx.Client:
    """A client of the loopback address with this number."""
    transport = httpx.HTTPTransport(verify=NO_CERTIFICATES, local_address=f"127.0.0.{number}")
    return server.client(transport=transport)


def test_a_file_waits_for_one_file_of_another_caller_but_not_for_all(echo_command: list[str]) -> None:
    settings: dict[str, object] = {"file_cpu_s": 600, "compat_timeout_s": 0.3}
    with (
        ServerProcess(echo_command, settings) as server,
        at(server.ready(), 1) as many,
        at(server, 2) as one,
    ):
        handles = [post_document(many, "a.md", SLOW).json() for _ in range(4)]
        wait_until(lambda: len(workers(server)) == 2)
        first, second = workers(server)
        for worker in (first, second):
            worker.suspend()
        handle = post_document(one, "a.txt", WORDS).json()
        first.kill()
        wait_until(lambda: status(one, handle) != "queued")  # it is read
        assert sorted(status(many, each) for each in handles) == ["error", "queued", "queued", "queued"]
        second.kill()


def test_a_full_server_drops_the_oldest_file_of_the_caller_who_has_the_most(echo_command: list[str]) -> None:
    with (
        ServerProcess(echo_command, {"max_files": 4}) as server,
        at(server.ready(), 1) as many,
        at(server, 2) as one,
        at(server, 3) as other,
    ):
        handle = post_document(many, "a.txt", WORDS).json()
        wait_until(lambda: status(many, handle) == "done")
        urls = [post(many, "a.txt", WORDS).json()["translatedFileUrl"] for _ in range(3)]
        assert post(many, "a.txt", WORDS).status_code == 429
        assert post(one, "a.txt", WORDS).status_code == 200
        key = {"document_key": handle["document_key"]}
        for path in (f"/v2/document/{handle['document_id']}", f"/v2/document/{handle['document_id']}/result"):
            assert many.post(path, json=key).status_code == 404
        assert [many.get(url).status_code for url in urls] == [200, 200, 200]
        assert post_document(other, "a.txt", WORDS).status_code == 200
        assert [many.get(url).status_code for url in urls] == [404, 200, 200]
        refused = post(one, "a.txt", WORDS)  # `one` would have as many files as `many`
        assert (refused.status_code, [many.get(url).status_code for url in urls]) == (429, [404, 200, 200])


class HeldTasks:
    """Tasks that run until `end_next` ends them. order: the names of the tasks, in the order in which they begin."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self._begun: asyncio.Queue[str] = asyncio.Queue()
        self._ends: dict[str, asyncio.Event] = {}

    async def hold(self, name: str) -> None:
        self.order.append(name)
        self._ends[name] = asyncio.Event()
        self._begun.put_nowait(name)
        await self._ends[name].wait()

    async def end_next(self) -> None:
        async with asyncio.timeout(HANG_TIMEOUT_S):
            self._ends[await self._begun.get()].set()


async def order_of(held: HeldTasks, begin: Callable[[str], Awaitable[object]]) -> Sequence[str]:
    """The order in which the tasks begin, if one runs at a time. The first letter of a name is its caller."""
    names = ["a1", "a2", "a3", "b1"]
    tasks = []
    for name in names:
        tasks.append(asyncio.ensure_future(begin(name)))
        await asyncio.sleep(0.01)
    for _ in names:
        await held.end_next()
    await asyncio.gather(*tasks)
    return held.order


@pytest.mark.parametrize("kind", ["read", "read for a request", "write"])
def test_callers_take_turns_at_the_file_workers(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> Sequence[str]:
        held, jobs = HeldTasks(), DocumentJobs(cast("PlainTranslator", object()), LIMITS)
        file_workers = jobs._workers

        async def answer(frame: bytes) -> FromWorker:
            name = next(name for name in ("a1", "a2", "a3", "b1") if name.encode() in frame)
            await held.hold(name)
            return WriteResult(b"") if kind == "write" else ReadResult([])

        async def begin(name: str) -> object:
            content, share = name.encode(), name[0]
            request = ReadRequest(content, FileFormat.TXT)
            if kind == "read":
                return await file_workers.read(request, share=share, timeout_s=HANG_TIMEOUT_S)
            if kind == "read for a request":
                document = jobs.store.add("", share, name, 1)
                return await jobs.read(document, request, timeout_s=HANG_TIMEOUT_S)
            return await file_workers.write(
                WriteRequest(content, FileFormat.TXT, []), share=share, timeout_s=HANG_TIMEOUT_S
            )

        monkeypatch.setattr(file_workers, "_answer", answer)
        return await order_of(held, begin)

    assert asyncio.run(run()) == ["a1", "a2", "b1", "a3"]


@pytest.mark.parametrize("is_awaited", [True, False], ids=["with a request", "in the background"])
def test_callers_take_turns_to_have_their_files_translated(
    is_awaited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> Sequence[str]:
        plain = cast("PlainTranslator", SimpleNamespace(service=SimpleNamespace(metrics=Metrics())))
        held, jobs = HeldTasks(), DocumentJobs(plain, LIMITS)

        async def read(*_: Any) -> list[object]:
            return []

        async def translate(document: StoredDocument, _: DocumentJob) -> None:
            await held.hold(document.name)

        async def begin(name: str) -> None:
            job = DocumentJob(b"", FileFormat.TXT, "en", "de", request_id=name, share=name[0])
            document = jobs.store.add("", name[0], name, 1)
            if is_awaited:
                await jobs.translate(document, job)
            else:
                spending = await Usage().begin("", 1)
                await jobs.start({}, document, job, spending, wait_s=HANG_TIMEOUT_S)

        monkeypatch.setattr(jobs, "_read_texts", read)
        monkeypatch.setattr(jobs, "_translate", translate)
        try:
            return await order_of(held, begin)
        finally:
            await jobs.close()

    assert asyncio.run(run()) == ["a1", "a2", "b1", "a3"]
