"""Translates uploaded documents in batches of texts. Each batch is within the limits of a request."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.types import Scope

from app.api.files.document_store import (
    FOLDER_PREFIX,
    DocumentLimits,
    DocumentStatus,
    DocumentStore,
    StoredDocument,
)
from app.api.files.locked_folder import remove_abandoned_folders
from app.api.http.failures import count_error
from app.api.native.routes import record_usage
from app.api.plain_translation import NoSuchPair, PlainTranslator
from app.api.spending import spend_characters
from app.errors import DeadlineExceeded, Overloaded, PayloadTooLarge, ServiceError, UnsupportedLanguages
from app.fair_turns import FairTurns
from app.file_worker.messages import ReadRequest, TextUnit, WriteRequest
from app.file_worker.workers import FileWorkers
from app.files import FileFormat, UnitFormat
from app.observability.logging import log_event
from app.runtime.memory import return_memory
from app.stores.usage import Spending
from app.text.detection import MAX_CHARACTERS
from app.text.glossary import Glossary
from app.text.language_codes import separator
from app.text.parsed_text import Splitting, TextFormat
from app.text.xml_reader import XmlRules
from app.translator import TranslationRequest

logger = logging.getLogger("app.files")
# The names of the elements in a unit's XML (app.files.unit.Unit).
UNIT_RULES = XmlRules(splitting=frozenset({"br"}), not_splitting=frozenset({"g", "x"}))
# After a job with a file of more than LARGE_BYTES, unused memory is returned to the operating system. That happens
# RETURN_DELAY_S seconds after the job, when no object holds the memory. If LARGE_BYTES is smaller, that takes CPU time
# more often. If larger, the server keeps more memory that it does not use.
LARGE_BYTES = 500_000
RETURN_DELAY_S = 1.0


@dataclass(frozen=True)
class DocumentJob:
    """A file to translate.

    texts: the file's texts; empty until a file worker has read them. source: None to detect one language for the whole
    file. request_id, share: the upload's id, and its caller as the engine's fair queueing knows it.
    """

    content: bytes
    format: FileFormat
    source: str | None
    target: str
    request_id: str
    texts: Sequence[TextUnit] = ()
    glossary: Glossary | None = None
    share: str = ""


class DocumentJobs:
    """Translates files and stores the results. Callers take turns. Only the file workers parse a file."""

    def __init__(self, plain: PlainTranslator, limits: DocumentLimits) -> None:
        """plain: the translator. The file workers are started with the first file."""
        self.plain = plain
        self.limits = limits
        self.store = DocumentStore(limits)
        self._turns = FairTurns(limits.num_workers)
        self._workers = FileWorkers(limits.worker, num_workers=limits.num_workers)
        self._tasks: set[asyncio.Task[Any]] = set()

    async def read(
        self, document: StoredDocument, request: ReadRequest, *, timeout_s: float
    ) -> list[TextUnit]:
        """The file's texts. Removes the document if the reading fails.

        timeout_s: maximum seconds of the reading, including the wait for a file worker. Raises the errors of
        `FileWorkers.read`.
        """
        try:
            return await self._workers.read(request, share=document.share, timeout_s=timeout_s)
        except BaseException:
            self.store.remove(document)
            self._return_memory(request.content)
            raise

    async def spend_characters(
        self, scope: Scope, document: StoredDocument, job: DocumentJob, spending: Spending
    ) -> None:
        """Count the file's code points towards the limits of the caller's key. Removes the document if this raises.

        Raises the errors of the function `app.api.spending.spend_characters`.
        """
        try:
            await self._count(scope, document, job.texts, spending)
        except BaseException:
            self.store.remove(document)
            self._return_memory(job.content)
            raise

    async def start(
        self, scope: Scope, document: StoredDocument, job: DocumentJob, spending: Spending, *, wait_s: float
    ) -> None:
        """Read, count and translate a document in the background, and end `spending`.

        The state is set in `document`, and the result is stored. No request waits for the translation. So its time
        limit begins when it is the document's turn.

        Returns when the texts are read, at the latest after `wait_s` seconds. If the reading fails before that, this
        raises its error. A later error becomes the document's state. If this raises or is cancelled, nothing continues
        in the background, the document is removed, and `spending` does not end.
        Raises the errors of the methods `read` and `spend_characters`.
        """
        reading = asyncio.create_task(self._read_texts(scope, document, job, spending))
        self._tasks.add(reading)
        reading.add_done_callback(self._tasks.discard)
        try:
            await asyncio.wait({reading}, timeout=wait_s)
            if reading.done():
                reading.result()
        except BaseException:
            reading.cancel()
            self.store.remove(document)
            self._return_memory(job.content)
            await asyncio.gather(reading, return_exceptions=True)
            raise
        task = asyncio.create_task(self._run(document, job, reading, spending))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def translate(self, document: StoredDocument, job: DocumentJob) -> None:
        """Translate and store the document. Removes it if this raises. The time limit includes the wait for a turn.

        Raises NoSuchPair, and the errors of `Models.translate`, `FileWorkers.write` and `DocumentStore.keep`.
        """
        try:
            async with (
                asyncio.timeout(document.ends_at - time.monotonic()) as waiting,
                self._turns.turn(job.share),
            ):
                waiting.reschedule(None)
                await self._translate(document, job)
        except TimeoutError as error:
            self.store.remove(document)
            raise self._late() from error
        except BaseException:
            self.store.remove(document)
            raise
        finally:
            self._return_memory(job.content)

    async def open(self) -> None:
        """Remove the folders of servers that have been killed."""
        num_removed = await asyncio.to_thread(remove_abandoned_folders, FOLDER_PREFIX)
        if num_removed:
            log_event(logger, logging.INFO, "left_files_removed", fields={"folders": num_removed})

    async def close(self) -> None:
        """End all work and remove all files."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._workers.close()
        self.store.close()

    async def _read_texts(
        self, scope: Scope, document: StoredDocument, job: DocumentJob, spending: Spending
    ) -> list[TextUnit]:
        request = ReadRequest(job.content, job.format, job.target)
        texts = await self._workers.read(request, share=job.share, timeout_s=self.limits.timeout_s)
        await self._count(scope, document, texts, spending)
        return texts

    async def _count(
        self, scope: Scope, document: StoredDocument, texts: Sequence[TextUnit], spending: Spending
    ) -> None:
        document.num_characters = sum(len(text.text) for text in texts)
        await spend_characters(scope, self.plain.service.usage, spending, document.num_characters)

    async def _run(
        self,
        document: StoredDocument,
        job: DocumentJob,
        reading: asyncio.Task[list[TextUnit]],
        spending: Spending,
    ) -> None:
        try:
            with spending:
                job = replace(job, texts=await reading)
                async with self._turns.turn(job.share):
                    document.ends_at = time.monotonic() + self.limits.timeout_s
                    await self._translate(document, job)
        except NoSuchPair as error:
            self._fail(document, job, UnsupportedLanguages(f"{error} is not translated here"))
        except Exception as error:  # noqa: BLE001 - no caller waits: the log and the status have it
            self._fail(document, job, error)
        finally:
            self._return_memory(job.content)

    def _fail(self, document: StoredDocument, job: DocumentJob, error: Exception) -> None:
        """Count and log the error like the error of a request, and set the state in `document`."""
        count_error(self.plain.service.metrics, error, job.request_id)
        is_expected = isinstance(error, ServiceError)
        self.store.fail(document, str(error) if is_expected else "the server failed to translate this file")

    def _return_memory(self, content: bytes) -> None:
        """Return the memory of a large file to the operating system after RETURN_DELAY_S."""
        if len(content) > LARGE_BYTES:
            loop = asyncio.get_running_loop()
            loop.call_later(RETURN_DELAY_S, lambda: loop.run_in_executor(None, return_memory))

    async def _translate(self, document: StoredDocument, job: DocumentJob) -> None:
        texts = job.texts
        document.status, document.started_at = DocumentStatus.TRANSLATING, time.monotonic()
        source = job.source or await self._language(job, texts)
        if source != job.target and (source, job.target) not in self.plain.pairs():
            raise NoSuchPair(source, job.target)
        translations = [text.text for text in texts]
        if source != job.target:
            for batch in self._batches(texts):
                originals = [texts[number] for number in batch]
                translated = await self._translate_batch(document, job, source, originals)
                for number, text in zip(batch, translated, strict=True):
                    translations[number] = text
                    document.num_done += len(texts[number].text)
        left_s = document.ends_at - time.monotonic()
        try:
            gap = separator(source, job.target)
            request = WriteRequest(job.content, job.format, translations, job.target, gap)
            content = await self._workers.write(request, share=job.share, timeout_s=left_s)
        except DeadlineExceeded as error:  # its message names left_s, which the caller does not know
            raise self._late() from error
        await self.store.keep(document, content)

    def _late(self) -> DeadlineExceeded:
        return DeadlineExceeded(f"the file was not translated in {self.limits.timeout_s:g} s")

    async def _language(self, job: DocumentJob, texts: Sequence[TextUnit]) -> str:
        """The source language of the file; `job.target` if it needs no translation. Raises NoSuchPair, NotReady."""
        sample = ""
        for text in texts:
            sample += text.text + "\n"
            if len(sample) >= MAX_CHARACTERS:
                break
        return await self.plain.source_of(sample, job.target, share=job.share)

    def _batches(self, texts: Sequence[TextUnit]) -> Iterator[list[int]]:
        """Yield batches of texts, as indices. All texts of a batch have the same format and the same `is_wrapped`.

        A batch is within a request's limits, or is a single text.
        """
        limits = self.plain.limits
        waiting: dict[tuple[UnitFormat, bool], list[int]] = {}
        sizes: dict[tuple[UnitFormat, bool], int] = {}
        for number, text in enumerate(texts):
            kind = (text.format, text.is_wrapped)
            group = waiting.setdefault(kind, [])
            size = sizes.get(kind, 0) + len(text.text)
            if group and (len(group) == limits.max_items or size > limits.max_request_characters):
                yield group
                group, size = [], len(text.text)
            waiting[kind] = [*group, number]
            sizes[kind] = size
        yield from (group for group in waiting.values() if group)

    async def _translate_batch(
        self, document: StoredDocument, job: DocumentJob, source: str, texts: Sequence[TextUnit]
    ) -> list[str]:
        """The translations of one batch. A batch that is too large or late is translated in halves.

        Waits and tries again while the server is overloaded. Raises the errors of `Models.translate` except Overloaded.
        """
        while True:
            now = time.monotonic()
            if now >= document.ends_at:
                raise self._late()
            request = TranslationRequest(
                texts=tuple(text.text for text in texts),
                source=source,
                target=job.target,
                request_id=job.request_id,
                caller=document.owner,
                share=job.share,
                deadline=min(document.ends_at, now + self.plain.limits.max_timeout_s),
                text_format=TextFormat(texts[0].format),
                splitting=Splitting.NO_NEWLINES if texts[0].is_wrapped else Splitting.SENTENCES,
                xml=UNIT_RULES if texts[0].format is UnitFormat.XML else XmlRules(),
                glossary=job.glossary,
            )
            try:
                with self.plain.service.work() as models:
                    result = await models.translate(request)
            except Overloaded as error:
                await asyncio.sleep(min(max(error.retry_after_s, 0.1), document.ends_at - now))
            except (DeadlineExceeded, PayloadTooLarge) as error:
                if isinstance(error, DeadlineExceeded) and request.deadline == document.ends_at:
                    raise self._late() from error
                if len(texts) == 1:
                    raise
                half = len(texts) // 2
                first = await self._translate_batch(document, job, source, texts[:half])
                return first + await self._translate_batch(document, job, source, texts[half:])
            else:
                record_usage(self.plain.service, result, None)
                return [translation.text for translation in result.translations]


def seconds_remaining(document: StoredDocument) -> int:
    """An estimate of the seconds until the translation is done, at least 1; 10 before the first batch is translated."""
    spent_s = time.monotonic() - document.started_at
    rest = document.num_characters - document.num_done
    return max(1, round(spent_s * rest / document.num_done)) if document.num_done else 10
