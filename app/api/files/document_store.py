"""Stores translated documents on disk until they expire, within limits on their number and bytes.

A new document that would exceed a limit takes the place of finished documents: the oldest ones of the callers that
hold more than the new document's caller would then hold. If that makes too little room, no document is dropped and the
new one is refused. The folder of the documents is temporary, and no other user may read it. The server removes it when
it ends. If the server is killed, the next server removes the folder. Every method is called on the event loop; threads
read and write the bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import math
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from app.api.files.full_disk import storage_failure
from app.api.files.locked_folder import LockedFolder
from app.errors import Overloaded, PayloadTooLarge
from app.file_worker.messages import WorkerLimits

FOLDER_PREFIX = "transduce-files-"
# The maximum Retry-After, in seconds, of a caller while another caller holds more. A document of the other caller makes
# room for the first caller as soon as it is finished, at a time that is not known.
BEHIND_RETRY_S = 10.0


class DocumentStatus(StrEnum):
    """The state of a document; the last two are final."""

    QUEUED = "queued"
    TRANSLATING = "translating"
    DONE = "done"
    ERROR = "error"


@dataclass(frozen=True)
class DocumentLimits:
    """Limits of the file routes; each but num_workers comes from the settings.

    max_file_bytes: the maximum size of an upload.
    max_files: the maximum number of documents in progress or stored.
    max_kept_bytes: the maximum size of all documents together.
    ttl_s: seconds for which a document is stored.
    timeout_s: the time limit of one document, in seconds from its upload. If no request waits for the result, there are
        two limits of `timeout_s`: the reading's begins at the upload, the translation's at the document's turn.
    worker: the limits of the processes that parse files.
    num_workers: the maximum number of file workers, and of documents that are translated at once.
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

    file_id, key: 24 random bytes each, in hexadecimal. owner: the caller that uploaded it. share: see `Requester`.
    name: of the uploaded file.
    message: the reason for the status ERROR.
    num_characters: code points to translate. num_done: how many of them are translated.
    started_at: when its translation began. ends_at: when its translation fails because it took too long.
    started_at, ends_at, expires_at: seconds of time.monotonic.
    num_bytes: bytes of the upload in memory, later of the translation on disk; 0 with the status ERROR.
    """

    file_id: str
    key: str
    owner: str
    share: str
    name: str
    num_bytes: int
    expires_at: float = math.inf
    status: DocumentStatus = DocumentStatus.QUEUED
    message: str = ""
    num_characters: int = 0
    num_done: int = 0
    started_at: float = field(default_factory=time.monotonic)
    ends_at: float = math.inf

    @property
    def is_finished(self) -> bool:
        """Whether the status is final."""
        return self.status in {DocumentStatus.DONE, DocumentStatus.ERROR}


class NoSuchDocument(Exception):
    """No document has this id, owner and key, or the document has expired, was dropped or has no translation."""


class DocumentStore:
    """The documents that are in progress or stored."""

    def __init__(self, limits: DocumentLimits) -> None:
        self._limits = limits
        self._documents: dict[str, StoredDocument] = {}
        self._folder: LockedFolder | None = None

    def add(self, owner: str, share: str, name: str, num_bytes: int) -> StoredDocument:
        """Add a document. Its time limit begins now. Raises Overloaded if there is no room and none can be made."""
        self._remove_expired()
        self._make_room(share, num_documents=1, num_bytes=num_bytes)
        document = StoredDocument(
            file_id=secrets.token_hex(24),
            key=secrets.token_hex(24),
            owner=owner,
            share=share,
            name=name,
            num_bytes=num_bytes,
            ends_at=time.monotonic() + self._limits.timeout_s,
        )
        self._documents[document.file_id] = document
        return document

    async def keep(self, document: StoredDocument, content: bytes) -> None:
        """Store the translation. Raises Overloaded if there is no room for it and none can be made.

        Raises PayloadTooLarge if it exceeds `max_kept_bytes`, and NotReady if the disk is full or cannot be written.
        """
        self._remove_expired()
        if len(content) > self._limits.max_kept_bytes:
            raise PayloadTooLarge(
                f"the translated file has {len(content)} bytes, and the server keeps at most "
                f"{self._limits.max_kept_bytes} bytes of files"
            )
        self._make_room(document.share, num_documents=0, num_bytes=len(content) - document.num_bytes)
        document.num_bytes = len(content)
        try:
            await asyncio.to_thread(self._write, document, self._path(document), content)
        except OSError as error:
            raise storage_failure(error) from error
        self._finish(document, DocumentStatus.DONE)

    def fail(self, document: StoredDocument, message: str) -> None:
        """Set the status ERROR. The document and its message are kept for `ttl_s`."""
        document.message = message
        document.num_bytes = 0
        self._finish(document, DocumentStatus.ERROR)

    def _write(self, document: StoredDocument, path: Path, content: bytes) -> None:
        """Write the file. If this raises OSError, no part of the file remains."""
        try:
            path.write_bytes(content)
        except OSError:
            _delete(path)
            raise
        if document.file_id not in self._documents:  # the request was cancelled, and `remove` ran meanwhile
            _delete(path)

    def _finish(self, document: StoredDocument, status: DocumentStatus) -> None:
        document.status = status
        document.expires_at = time.monotonic() + self._limits.ttl_s
        asyncio.get_running_loop().call_later(self._limits.ttl_s + 0.1, self._remove_expired)

    def _make_room(self, share: str, *, num_documents: int, num_bytes: int) -> None:
        """Drop documents of others until this caller may have `num_documents` and `num_bytes` more.

        If that is impossible, drop none and raise Overloaded.
        """
        limits, left = self._limits, dict(self._documents)
        if not _drop(left, share, num_bytes, limits.max_kept_bytes, lambda each: each.num_bytes):
            retry_after_s = self._retry_after_s(share, num_bytes, lambda each: each.num_bytes)
            raise Overloaded("no room is left for files", retry_after_s=retry_after_s)
        if not _drop(left, share, num_documents, limits.max_files, lambda _: 1):
            raise Overloaded(
                f"{limits.max_files} files are in progress or stored already",
                retry_after_s=self._retry_after_s(share, num_documents, lambda _: 1),
            )
        for document in [each for each in self._documents.values() if each.file_id not in left]:
            self.remove(document)

    def _retry_after_s(self, share: str, wanted: int, size_of: Callable[[StoredDocument], int]) -> float:
        """Seconds until the first document with a `size_of` above 0 expires, at least 1.

        The result is at most BEHIND_RETRY_S if another caller holds more than this caller would hold. wanted: how much
        more this caller wants, in the unit of `size_of`.
        """
        held = _held(self._documents, size_of)
        ends = (each.expires_at for each in self._documents.values() if size_of(each))
        first = min(ends, default=math.inf)
        is_behind = max(held.values(), default=0) > held[share] + wanted
        longest_s = BEHIND_RETRY_S if is_behind else self._limits.ttl_s
        return max(1.0, min(first - time.monotonic(), longest_s))

    def find(self, file_id: str, owner: str, key: str | None = None) -> StoredDocument:
        """The owner's document with this id. key: the document's key; None to skip its check. Raises NoSuchDocument."""
        self._remove_expired()
        document = self._documents.get(file_id)
        if document is None or document.owner != owner:
            raise NoSuchDocument("there is no such file here")
        if key is not None and not hmac.compare_digest(document.key.encode(), key.encode()):
            raise NoSuchDocument("there is no such file here")
        return document

    async def content(self, document: StoredDocument) -> bytes:
        """The translation. Raises NoSuchDocument."""
        try:
            return await asyncio.to_thread(self._path(document).read_bytes)
        except FileNotFoundError as error:
            raise NoSuchDocument("there is no such file here") from error

    def remove(self, document: StoredDocument) -> None:
        """Remove a document and its file."""
        self._documents.pop(document.file_id, None)
        if self._folder is not None:
            _delete(self._path(document))

    def close(self) -> None:
        """Remove all documents and the folder."""
        self._documents.clear()
        if self._folder is not None:
            self._folder.remove()
            self._folder = None

    def _path(self, document: StoredDocument) -> Path:
        if self._folder is None:
            self._folder = LockedFolder(FOLDER_PREFIX)
        return Path(self._folder.path, document.file_id)

    def _remove_expired(self) -> None:
        """Remove the expired documents."""
        now = time.monotonic()
        for document in [each for each in self._documents.values() if each.expires_at <= now]:
            self.remove(document)


def _delete(path: Path) -> None:
    """Delete a file, if there is one and the disk can be written."""
    with contextlib.suppress(OSError):
        path.unlink()


def _held(documents: Mapping[str, StoredDocument], size_of: Callable[[StoredDocument], int]) -> Counter[str]:
    """The sum of the sizes of each caller's documents, by the caller's `share`."""
    held: Counter[str] = Counter()
    for document in documents.values():
        held[document.share] += size_of(document)
    return held


def _drop(
    documents: dict[str, StoredDocument],
    share: str,
    amount: int,
    limit: int,
    size_of: Callable[[StoredDocument], int],
) -> bool:
    """Remove finished documents from `documents` until there is room for `amount` more; False if that is impossible.

    share: the caller that wants to add `amount`. limit: the maximum sum of the sizes of all documents. A caller can
    lose a document only if it has a finished one and holds more than `share` would hold with `amount` more. Each time,
    the one of these callers that holds the most loses its oldest finished document.
    """
    held = _held(documents, size_of)
    finished: dict[str, deque[StoredDocument]] = {}
    for document in sorted(documents.values(), key=lambda each: each.expires_at):
        if document.is_finished and size_of(document):
            finished.setdefault(document.share, deque()).append(document)
    while held.total() + amount > limit:
        callers = [each for each in finished if held[each] > held[share] + amount]
        if not callers:
            return False
        caller = max(callers, key=held.__getitem__)
        document = finished[caller].popleft()
        if not finished[caller]:
            del finished[caller]
        held[caller] -= size_of(document)
        del documents[document.file_id]
    return True
