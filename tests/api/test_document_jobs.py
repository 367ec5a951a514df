"""Translations of documents that take too long."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from app.api.files.document_jobs import DocumentJob, DocumentJobs
from app.api.files.document_store import DocumentLimits
from app.api.plain_translation import PlainTranslator
from app.errors import DeadlineExceeded
from app.file_worker.messages import WorkerLimits
from app.files import FileFormat


def test_a_document_that_is_written_too_late_names_the_limit() -> None:
    limits = DocumentLimits(
        max_file_bytes=100,
        max_files=1,
        max_kept_bytes=100,
        ttl_s=60,
        timeout_s=0.001,
        worker=WorkerLimits(memory_bytes=500_000_000, cpu_s=10, part_characters=100),
    )
    plain = cast("PlainTranslator", object())  # a document in the target language needs no translator
    job = DocumentJob(b"a", FileFormat.TXT, texts=(), source="de", target="de", request_id="1")

    async def run() -> None:
        jobs = DocumentJobs(plain, limits)
        document = jobs.store.add("", "a.txt", 1)
        try:
            with pytest.raises(DeadlineExceeded, match=r"^the file was not translated in 0\.001 s$"):
                await jobs.translate(document, job)
        finally:
            await jobs.close()

    asyncio.run(run())
