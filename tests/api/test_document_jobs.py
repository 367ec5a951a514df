"""The batches of documents, and translations of documents that take too long or fail."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.api.files import document_jobs
from app.api.files.document_jobs import DocumentJob, DocumentJobs
from app.api.files.document_store import DocumentLimits, DocumentStatus
from app.api.plain_translation import NoSuchPair, PlainTranslator
from app.errors import DeadlineExceeded, EngineFailure, PayloadTooLarge
from app.file_worker.messages import TextUnit, WorkerLimits
from app.files import FileFormat, UnitFormat
from app.observability.logging import JsonFormatter
from app.observability.metrics import REASONS, Metrics
from app.stores.key_limits import KeyLimits
from app.stores.usage import Usage
from tests.api.server_process import HANG_TIMEOUT_S


def limits_with(timeout_s: float) -> DocumentLimits:
    return DocumentLimits(
        max_file_bytes=100,
        max_files=1,
        max_kept_bytes=100,
        ttl_s=60,
        timeout_s=timeout_s,
        worker=WorkerLimits(memory_bytes=500_000_000, cpu_s=10, part_characters=100),
    )


def test_a_document_that_is_written_too_late_names_the_limit() -> None:
    plain = cast("PlainTranslator", object())  # a document in the target language needs no translator
    job = DocumentJob(b"a", FileFormat.TXT, source="de", target="de", request_id="1")

    async def run() -> None:
        jobs = DocumentJobs(plain, limits_with(timeout_s=0.001))
        document = jobs.store.add("", "", "a.txt", 1)
        try:
            with pytest.raises(DeadlineExceeded, match=r"^the file was not translated in 0\.001 s$"):
                await jobs.translate(document, job)
        finally:
            await jobs.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("error", "reason", "message", "event"),
    [
        (EngineFailure("the forward failed"), "engine", "the forward failed", "request_failed"),
        (
            ZeroDivisionError("1 / 0"),
            "engine",
            "the server failed to translate this file",
            "unexpected_error",
        ),
        (DeadlineExceeded("too late"), "deadline", "too late", None),
        (
            NoSuchPair("de", "fr"),
            "invalid",
            "German (de) to French (fr) is not translated here",
            None,
        ),
    ],
)
def test_a_document_that_fails_after_its_upload_is_counted_and_logged_like_a_request(
    error: Exception,
    reason: str,
    message: str,
    event: str | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics = Metrics()
    plain = cast("PlainTranslator", SimpleNamespace(service=SimpleNamespace(metrics=metrics)))
    job = DocumentJob(b"a", FileFormat.TXT, source="en", target="de", request_id="the-upload")

    async def read(*_: Any) -> list[TextUnit]:
        return []

    async def fail(*_: Any) -> None:
        raise error

    async def run() -> None:
        jobs = DocumentJobs(plain, limits_with(timeout_s=9))
        monkeypatch.setattr(jobs, "_read_texts", read)
        monkeypatch.setattr(jobs, "_translate", fail)
        document = jobs.store.add("", "", "a.txt", 1)
        try:
            await jobs.start({}, document, job, await Usage().begin("", 1), wait_s=HANG_TIMEOUT_S)
            await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})
            assert (document.status, document.message) == (DocumentStatus.ERROR, message)
        finally:
            await jobs.close()

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    counts = {
        each: metrics.registry.get_sample_value("transduce_rejected_total", {"reason": each})
        for each in REASONS
    }
    assert {each: count for each, count in counts.items() if count} == {reason: 1}
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    events = [(line["event"], line["request_id"]) for line in lines if line["level"] == "error"]
    assert events == ([] if event is None else [(event, "the-upload")])


def test_the_memory_of_a_file_beyond_a_quota_is_returned_to_the_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_returned = threading.Event()
    monkeypatch.setattr(document_jobs, "return_memory", is_returned.set)
    monkeypatch.setattr(document_jobs, "LARGE_BYTES", 3)
    monkeypatch.setattr(document_jobs, "RETURN_DELAY_S", 0.0)
    usage = Usage()
    usage.set_limits({"sales": KeyLimits(characters_per_day=3)})
    plain = cast("PlainTranslator", SimpleNamespace(service=SimpleNamespace(usage=usage)))
    texts = [TextUnit("Anna", UnitFormat.TEXT, is_wrapped=False)]
    job = DocumentJob(b"Anna", FileFormat.TXT, source="en", target="de", request_id="1", texts=texts)

    async def run() -> None:
        jobs = DocumentJobs(plain, limits_with(timeout_s=9))
        document = jobs.store.add("sales", "", "a.txt", 4)
        try:
            with await usage.begin("sales", 0) as spending, pytest.raises(PayloadTooLarge):
                await jobs.spend_characters({"state": {}}, document, job, spending)
            assert await asyncio.to_thread(is_returned.wait, HANG_TIMEOUT_S)
        finally:
            await jobs.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("sizes", "batches"),
    [
        ([1, 1, 1, 1], [[0, 1, 2], [3]]),
        ([3, 3, 3, 2, 2], [[0, 1], [2, 3], [4]]),
        ([9, 1], [[0], [1]]),  # a single text may be longer than a request
    ],
)
def test_a_batch_is_as_large_as_a_request_may_be(sizes: Sequence[int], batches: Sequence[list[int]]) -> None:
    limits = SimpleNamespace(max_items=3, max_request_characters=6)
    plain = cast("PlainTranslator", SimpleNamespace(limits=limits))
    texts = [TextUnit("a" * size, UnitFormat.TEXT, is_wrapped=False) for size in sizes]
    assert [*DocumentJobs(plain, limits_with(timeout_s=9))._batches(texts)] == batches
