"""The store of translated documents, without a server."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from app.api.files.document_store import DocumentLimits, DocumentStore
from app.file_worker.messages import WorkerLimits
from tests.api.server_process import HANG_TIMEOUT_S

LIMITS = DocumentLimits(
    max_file_bytes=100,
    max_files=2,
    max_kept_bytes=100,
    ttl_s=60.0,
    timeout_s=60.0,
    worker=WorkerLimits(1, 1, 1),
)


def test_a_document_that_is_removed_while_it_is_written_leaves_no_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_writing, may_write = threading.Event(), threading.Event()
    write_bytes = Path.write_bytes

    def write_late(path: Path, content: bytes) -> int:
        is_writing.set()
        assert may_write.wait(HANG_TIMEOUT_S)
        return write_bytes(path, content)

    monkeypatch.setattr(Path, "write_bytes", write_late)

    async def run() -> list[Path]:
        document = store.add("", "a.txt", 1)
        keeping = asyncio.ensure_future(store.keep(document, b"text"))
        assert await asyncio.to_thread(is_writing.wait, HANG_TIMEOUT_S)
        keeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await keeping
        store.remove(document)
        may_write.set()
        await asyncio.get_running_loop().shutdown_default_executor()
        assert store._folder is not None
        return [*store._folder.path.iterdir()]

    store = DocumentStore(LIMITS)
    try:
        assert asyncio.run(run()) == []
    finally:
        store.close()
