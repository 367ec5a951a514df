"""Translated files on disk until they are fetched or their time is up: so many, so many bytes, each for its owner.

They lie in a temporary folder that no other user may read and that goes with the server; the next server removes what a
killed one has left. Every method is called on the event loop; only the bytes are moved in a thread.
"""

from __future__ import annotations

import asyncio
import hmac
import math
import secrets
import time
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from app.api.files.locked_folder import LockedFolder
from app.errors import Overloaded
from app.file_worker.messages import WorkerLimits

FOLDER_PREFIX = "transduce-files-"


class DocumentStatus(StrEnum):
    """What has become of a file; the last two are final."""

    QUEUED = "queued"
    TRANSLATING = "translating"
    DONE = "done"
    ERROR = "error"


@dataclass(frozen=True)
class DocumentLimits:
    """Of the file routes; each is a setting.

    max_file_bytes: of an upload. max_files: at work or kept. max_kept_bytes: of all of them. ttl_s: seconds that one is
    kept. timeout_s: from a file's turn to its translation. worker: of the processes that read and write files.
    num_workers: files at work at once.
    """

    max_file_bytes: int
    max_files: int
    max_kept_bytes: int
    ttl_s: float
    timeout_s: float
    worker: WorkerLimits
    num_workers: int = 2


@dataclass
class StoredDocument:
    """One file. file_id, key: neither can be guessed. message: what is in the way, where its status is ERROR.

    num_characters: to translate; num_done: of them translated; started_at, expires_at: seconds of time.monotonic.
    num_bytes: of the upload in memory, then of the translation on disk.
    """

    file_id: str
    key: str
    owner: str
    name: str
    num_bytes: int
    expires_at: float = math.inf
    status: DocumentStatus = DocumentStatus.QUEUED
    message: str = ""
    num_characters: int = 0
    num_done: int = 0
    started_at: float = field(default_factory=time.monotonic)


class NoSuchDocument(Exception):
    """There is none of this name, or its time is up, or it is somebody else's."""


class DocumentStore:
    """The files at work and kept."""

    def __init__(self, limits: DocumentLimits) -> None:
        self._limits = limits
        self._files: dict[str, StoredDocument] = {}
        self._folder: LockedFolder | None = None

    def add(self, owner: str, name: str, num_bytes: int) -> StoredDocument:
        """A place for one more. Raises Overloaded while there is none."""
        self._sweep()
        self._check_room(num_bytes)
        if len(self._files) >= self._limits.max_files:
            first = min(file.expires_at for file in self._files.values())
            raise Overloaded(
                f"{self._limits.max_files} files are at work or kept here already",
                retry_after_s=max(1.0, min(first - time.monotonic(), self._limits.ttl_s)),
            )
        file = StoredDocument(
            file_id=secrets.token_hex(24),
            key=secrets.token_hex(24),
            owner=owner,
            name=name,
            num_bytes=num_bytes,
        )
        self._files[file.file_id] = file
        return file

    async def keep(self, file: StoredDocument, content: bytes) -> None:
        """Put the translation on the store. Raises Overloaded where there is no room for it."""
        self._sweep()
        self._check_room(len(content) - file.num_bytes)
        file.num_bytes = len(content)
        await asyncio.to_thread(self._path(file).write_bytes, content)
        self._finish(file, DocumentStatus.DONE)

    def fail(self, file: StoredDocument, message: str) -> None:
        """It will not be translated; its owner may read why for as long as a file is kept."""
        file.message = message
        file.num_bytes = 0
        self._finish(file, DocumentStatus.ERROR)

    def _finish(self, file: StoredDocument, status: DocumentStatus) -> None:
        file.status = status
        file.expires_at = time.monotonic() + self._limits.ttl_s
        asyncio.get_running_loop().call_later(self._limits.ttl_s + 0.1, self._sweep)

    def _check_room(self, num_bytes: int) -> None:
        if sum(file.num_bytes for file in self._files.values()) + num_bytes > self._limits.max_kept_bytes:
            raise Overloaded("no room is left for files", retry_after_s=self._limits.ttl_s)

    def find(self, file_id: str, owner: str, key: str | None = None) -> StoredDocument:
        """A file of its owner's; with the key that it was given, where that is asked for. Raises NoSuchDocument."""
        self._sweep()
        file = self._files.get(file_id)
        if file is None or file.owner != owner:
            raise NoSuchDocument("there is no such file here")
        if key is not None and not hmac.compare_digest(file.key.encode(), key.encode()):
            raise NoSuchDocument("there is no such file here")
        return file

    async def content(self, file: StoredDocument) -> bytes:
        """The translation. Raises NoSuchDocument."""
        try:
            return await asyncio.to_thread(self._path(file).read_bytes)
        except FileNotFoundError as error:
            raise NoSuchDocument("there is no such file here") from error

    def remove(self, file: StoredDocument) -> None:
        """Forget it."""
        self._files.pop(file.file_id, None)
        if self._folder is not None:
            self._path(file).unlink(missing_ok=True)

    def close(self) -> None:
        """Remove everything."""
        self._files.clear()
        if self._folder is not None:
            self._folder.remove()
            self._folder = None

    def _path(self, file: StoredDocument) -> Path:
        if self._folder is None:
            self._folder = LockedFolder(FOLDER_PREFIX)
        return Path(self._folder.path, file.file_id)

    def _sweep(self) -> None:
        """Remove what has had its time."""
        now = time.monotonic()
        for file in [file for file in self._files.values() if file.expires_at <= now]:
            self.remove(file)
