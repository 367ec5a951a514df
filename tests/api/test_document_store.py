"""The store of translated documents, without a server."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import logging
import os
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from app.api.files.document_store import (
    BEHIND_RETRY_S,
    FOLDER_PREFIX,
    DocumentLimits,
    DocumentStore,
    StoredDocument,
)
from app.api.files.full_disk import RETRY_AFTER_S
from app.api.files.locked_folder import LockedFolder, remove_abandoned_folders
from app.errors import NotReady, Overloaded, PayloadTooLarge
from app.file_worker.messages import WorkerLimits
from app.observability.logging import JsonFormatter
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
        document = store.add("", "", "a.txt", 1)
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


@pytest.mark.parametrize(
    ("number", "problem", "message"),
    [
        (errno.ENOSPC, "ENOSPC", "no room is left on the disk for files"),
        (errno.EDQUOT, "EDQUOT", "no room is left on the disk for files"),
        (errno.EROFS, "EROFS", "files cannot be stored now (EROFS)"),
    ],
)
def test_a_file_that_the_disk_does_not_take_leaves_no_part_and_is_logged(
    number: int, problem: str, message: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write_bytes = Path.write_bytes

    def write_a_part(path: Path, content: bytes) -> int:
        write_bytes(path, content[:2])
        raise OSError(number, "the disk")

    async def run() -> list[Path]:
        document = store.add("", "", "a.txt", 1)
        with pytest.raises(NotReady) as refused:
            await store.keep(document, b"text")
        assert (refused.value.message, refused.value.retry_after_s) == (message, RETRY_AFTER_S)
        assert store._folder is not None
        left = [*store._folder.path.iterdir()]
        monkeypatch.setattr(Path, "write_bytes", write_bytes)
        await store.keep(document, b"text")
        assert await store.content(document) == b"text"
        return left

    monkeypatch.setattr(Path, "write_bytes", write_a_part)
    store = DocumentStore(LIMITS)
    with caplog.at_level(logging.INFO):
        try:
            assert asyncio.run(run()) == []
        finally:
            store.close()
    (line,) = [
        json.loads(JsonFormatter().format(record)) for record in caplog.records if record.name == "app.files"
    ]
    assert (line["event"], line["level"], line["problem"]) == ("file_store_failed", "error", problem)


def test_a_document_is_removed_although_its_file_cannot_be_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "the disk")

    async def run() -> None:
        document = store.add("", "", "a.txt", 1)
        await store.keep(document, b"text")
        monkeypatch.setattr(Path, "unlink", refuse)
        store.remove(document)
        assert not store._documents

    store = DocumentStore(LIMITS)
    try:
        asyncio.run(run())
    finally:
        store.close()


def test_a_translation_that_alone_exceeds_the_limit_is_too_large() -> None:
    async def run() -> None:
        document = store.add("", "", "a.txt", 1)
        await store.keep(document, b"a" * 100)
        with pytest.raises(PayloadTooLarge, match=r"^the translated file has 101 bytes.* at most 100 bytes"):
            await store.keep(document, b"a" * 101)

    store = DocumentStore(LIMITS)
    try:
        asyncio.run(run())
    finally:
        store.close()


class Filled:
    """A store with documents. The name of a document is a letter for its caller and a number.

    A capital letter means that the document is in progress.
    """

    def __init__(self, max_files: int, max_kept_bytes: int) -> None:
        self.store = DocumentStore(replace(LIMITS, max_files=max_files, max_kept_bytes=max_kept_bytes))
        self.files: dict[str, StoredDocument] = {}

    async def add(self, name: str, num_bytes: int) -> None:
        file = self.store.add("", name[0].lower(), name, num_bytes)
        self.files[name] = file
        if name.islower():
            await self.store.keep(file, b"a" * num_bytes)

    @property
    def left(self) -> list[str]:
        """The names of the documents in the store. Checks that the disk has all of them but those in progress."""
        names = [name for name, file in self.files.items() if file.file_id in self.store._documents]
        folder = self.store._folder
        kept = {path.name for path in folder.path.iterdir()} if folder is not None else set()
        assert kept == {self.files[name].file_id for name in names if name.islower()}
        return names


def left_after(
    before: Mapping[str, int], name: str, num_bytes: int, *, max_files: int = 9, max_kept_bytes: int = 100
) -> list[str]:
    """The documents that are left after one is added. before: the bytes of each document, by name.

    Raises Overloaded if the store refuses the new document. The store then drops no other document.
    """

    async def run() -> list[str]:
        filled = Filled(max_files, max_kept_bytes)
        try:
            for each, size in before.items():
                await filled.add(each, size)
            try:
                await filled.add(name, num_bytes)
            except Overloaded:
                assert filled.left == [*before]
                raise
            return filled.left
        finally:
            filled.store.close()

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("before", "left"),
    [
        ("a1 a2 a3 b1", "a2 a3 b1 c1"),
        ("b1 b2 a1 a2 a3", "b1 b2 a2 a3 c1"),
        ("A1 a2 A3 b1 b2", "A1 A3 b1 b2 c1"),
        ("A1 A2 A3 b1 b2", "A1 A2 A3 b2 c1"),  # a has no finished document
    ],
)
def test_a_place_is_taken_from_the_caller_who_has_the_most(before: str, left: str) -> None:
    documents = dict.fromkeys(before.split(), 1)
    assert left_after(documents, "c1", 1, max_files=len(documents)) == left.split()


@pytest.mark.parametrize(
    ("before", "name", "retry_after_s"),
    [
        ("a1 a2", "a3", LIMITS.ttl_s),
        ("a1 a2 b1 b2", "a3", LIMITS.ttl_s),
        ("a1 a2 b1", "b2", LIMITS.ttl_s),  # b would hold as many as a
        ("a1 b1", "c1", LIMITS.ttl_s),
        ("A1 A2", "c1", BEHIND_RETRY_S),
    ],
)
def test_no_place_is_taken_from_a_caller_who_has_as_few_or_no_finished_document(
    before: str, name: str, retry_after_s: float
) -> None:
    documents = dict.fromkeys(before.split(), 1)
    with pytest.raises(Overloaded) as refused:
        left_after(documents, name, 1, max_files=len(documents))
    assert refused.value.retry_after_s == pytest.approx(retry_after_s, rel=0.1)


@pytest.mark.parametrize(
    ("before", "num_bytes", "left"),
    [
        ({"a1": 60, "a2": 30}, 20, "a2 b1"),
        ({"a1": 30, "a2": 30, "a3": 40}, 45, "a3 b1"),
        ({"a1": 10, "A2": 80}, 20, "A2 b1"),
        ({"a1": 10, "A2": 80}, 30, None),  # to drop a1 is not enough, and A2 is in progress
        ({"a1": 30, "a2": 30, "a3": 40}, 70, None),  # without a1, a would hold no more than b
        ({"a1": 0, "a2": 60, "a3": 40}, 20, "a1 a3 b1"),  # to drop a1 makes no room
    ],
)
def test_bytes_are_taken_from_the_caller_who_has_the_most(
    before: dict[str, int], num_bytes: int, left: str | None
) -> None:
    if left is None:
        with pytest.raises(Overloaded):
            left_after(before, "b1", num_bytes)
    else:
        assert left_after(before, "b1", num_bytes) == left.split()


@pytest.mark.parametrize(
    ("before", "left"),
    [
        ({"a1": 40, "a2": 40, "B1": 10}, "a2 b1"),
        ({"b2": 40, "a1": 30, "B1": 30}, None),  # b holds more than a
    ],
)
def test_bytes_are_taken_for_a_translation_that_is_longer_than_its_document(
    before: dict[str, int], left: str | None
) -> None:
    async def run() -> list[str]:
        filled = Filled(9, 100)
        try:
            for name, num_bytes in before.items():
                await filled.add(name, num_bytes)
            await filled.store.keep(filled.files["B1"], b"b" * 50)
            filled.files["b1"] = filled.files.pop("B1")
            return filled.left
        finally:
            filled.store.close()

    if left is None:
        with pytest.raises(Overloaded):
            asyncio.run(run())
    else:
        assert asyncio.run(run()) == left.split()


def test_retry_after_ignores_a_failed_document_because_it_holds_no_bytes() -> None:
    async def run() -> float:
        filled = Filled(9, 100)
        try:
            await filled.add("A1", 1)
            filled.store.fail(filled.files["A1"], "it failed")
            filled.files["A1"].expires_at -= LIMITS.ttl_s - 5
            await filled.add("a2", 100)
            with pytest.raises(Overloaded) as refused:
                await filled.add("A3", 10)
            return refused.value.retry_after_s
        finally:
            filled.store.close()

    assert asyncio.run(run()) == pytest.approx(LIMITS.ttl_s, rel=0.1)


def test_an_abandoned_folder_of_another_user_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test sets who this user is, because only root may change the owner of a folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"{FOLDER_PREFIX}1").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
        assert remove_abandoned_folders(FOLDER_PREFIX) == 0
    assert remove_abandoned_folders(FOLDER_PREFIX) == 1
    assert not [*tmp_path.iterdir()]


def test_a_folder_that_is_removed_before_it_is_locked_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, num_calls = fcntl.flock, 0

    def remove_the_first_and_lock(handle: int, operation: int) -> None:
        nonlocal num_calls
        num_calls += 1
        if num_calls == 1:
            next(tmp_path.iterdir()).rmdir()  # like another process
        flock(handle, operation)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(fcntl, "flock", remove_the_first_and_lock)
    folder = LockedFolder(FOLDER_PREFIX)
    assert [*tmp_path.iterdir()] == [folder.path]
    assert num_calls == 2
    folder.remove()
