"""Stores translated documents on disk until they expire, within limits on their number and bytes.

The documents are in a temporary folder that no other user may read. The server removes the folder when it ends. If it
is killed, the next server removes the folder. Every method is called on the event loop; threads read and write the
bytes.
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
    """The state of a document; the last two are final."""

    QUEUED = "queued"
    TRANSLATING = "translating"
    DONE = "done"
    ERROR = "error"


@dataclass(frozen=True)
class DocumentLimits:
    """Limits of the file routes; each but num_workers comes from the settings.

    max_file_bytes: the most bytes of an upload.
    max_files: the most documents in progress or stored.
    max_kept_bytes: the most bytes of all documents.
    ttl_s: seconds for which a document is stored.
    timeout_s: the most seconds of one document: from its upload, or from its turn if no request waits for the result.
    worker: the limits of the processes that parse files.
    num_workers: the most documents that are translated at once, and the most file workers.
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
    """One document.

    file_id, key: 24 random bytes each, in hexadecimal. owner: the caller that uploaded it. name: of the uploaded file.
    message: the reason for the status ERROR.
    num_characters: code points to translate. num_done: how many of them are translated.
    started_at: when its translation began. ends_at: when its translation fails because it took too long.
    started_at, ends_at, expires_at: seconds of time.monotonic.
    num_bytes: bytes of the upload in memory, later of the translation on disk; 0 with the status ERROR.
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
    ends_at: float = math.inf


class NoSuchDocument(Exception):
    """No document has this id, or it has expired, has another owner or key, or has no translation."""


class DocumentStore:
    """The documents that are in progress or stored."""

    def __init__(self, limits: DocumentLimits) -> None:
        self._limits = limits
        self._files: dict[str, StoredDocument] = {}
        self._folder: LockedFolder | None = None

    def add(self, owner: str, name: str, num_bytes: int) -> StoredDocument:
        """Add a document, whose time begins now. Raises Overloaded if a limit is reached."""
        self._sweep()
        self._check_room(num_bytes)
        if len(self._files) >= self._limits.max_files:
            first = min(file.expires_at for file in self._files.values())
            raise Overloaded(
                f"{self._limits.max_files} files are in progress or stored already",
                retry_after_s=max(1.0, min(first - time.monotonic(), self._limits.ttl_s)),
            )
        file = StoredDocument(
            file_id=secrets.token_hex(24),
            key=secrets.token_hex(24),
            owner=owner,
            name=name,
            num_bytes=num_bytes,
            ends_at=time.monotonic() + self._limits.timeout_s,
        )
        self._files[file.file_id] = file
        return file

    async def keep(self, file: StoredDocument, content: bytes) -> None:
        """Store the translation. Raises Overloaded if all documents would then exceed max_kept_bytes."""
        self._sweep()
        self._check_room(len(content) - file.num_bytes)
        file.num_bytes = len(content)
        path = self._path(file)

        def write() -> None:
            path.write_bytes(content)
            if file.file_id not in self._files:  # the request was cancelled and `remove` ran during the write
                path.unlink(missing_ok=True)

        await asyncio.to_thread(write)
        self._finish(file, DocumentStatus.DONE)

    def fail(self, file: StoredDocument, message: str) -> None:
        """Set the status ERROR. The document and its message are kept for `ttl_s`."""
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
        """The owner's document with this id. key: the document's key; None to skip its check. Raises NoSuchDocument."""
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
        """Remove a document and its file."""
        self._files.pop(file.file_id, None)
        if self._folder is not None:
            self._path(file).unlink(missing_ok=True)

    def close(self) -> None:
        """Remove all documents and the folder."""
        self._files.clear()
        if self._folder is not None:
            self._folder.remove()
            self._folder = None

    def _path(self, file: StoredDocument) -> Path:
        if self._folder is None:
            self._folder = LockedFolder(FOLDER_PREFIX)
        return Path(self._folder.path, file.file_id)

    def _sweep(self) -> None:
        """Remove the expired documents."""
        now = time.monotonic()
        for file in [file for file in self._files.values() if file.expires_at <= now]:
            self.remove(file)
