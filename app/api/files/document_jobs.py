"""Uploaded files to translated ones, a batch of texts at a time, beside the requests of everyone else."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.api.files.document_store import (
    FOLDER_PREFIX,
    DocumentLimits,
    DocumentStatus,
    DocumentStore,
    StoredDocument,
)
from app.api.files.locked_folder import remove_left_folders
from app.api.native.routes import record_usage
from app.api.plain_translation import NoSuchPair, PlainTranslator
from app.errors import DeadlineExceeded, Overloaded, PayloadTooLarge, ServiceError
from app.file_worker.messages import TextUnit
from app.file_worker.workers import FileWorkers
from app.files import FileFormat, UnitFormat
from app.observability.logging import log_event
from app.runtime.memory import return_memory
from app.stores.usage import QuotaExceeded, UsageCounter
from app.text.glossary import Glossary
from app.text.parsed_text import Splitting, TextFormat
from app.text.xml_reader import XmlRules
from app.translator import TranslationRequest

logger = logging.getLogger("app.files")
# What a unit in XML consists of (app.files.unit.Unit).
UNIT_RULES = XmlRules(splitting=frozenset({"br"}), not_splitting=frozenset({"g", "x"}))
# As many characters of a file tell its language.
SAMPLE_CHARACTERS = 5_000
# The memory of a larger file is given back to the system behind it.
LARGE_BYTES = 500_000
SETTLE_S = 1.0


@dataclass(frozen=True)
class DocumentJob:
    """A file to translate.

    texts: what a worker says is to be translated. source None: detected, of the file as a whole. request_id, share: of
    the upload.
    """

    content: bytes
    format: FileFormat
    texts: Sequence[TextUnit]
    source: str | None
    target: str
    request_id: str
    glossary: Glossary | None = None
    share: str = ""


class DocumentJobs:
    """Takes files in and gives them out. What is in a file only its workers see."""

    def __init__(self, plain: PlainTranslator, limits: DocumentLimits, usage: UsageCounter) -> None:
        """Nothing is started here."""
        self.plain = plain
        self.limits = limits
        self.store = DocumentStore(limits)
        self._usage = usage
        self._turns = asyncio.Semaphore(limits.num_workers)
        self._workers = FileWorkers(limits.worker, num_workers=limits.num_workers)
        self._tasks: set[asyncio.Task[None]] = set()

    async def read(self, document: StoredDocument, content: bytes, file_format: FileFormat) -> list[TextUnit]:
        """What is to be translated. Where that fails the file is forgotten. Raises as `FileWorkers.read` does."""
        try:
            return await self._workers.read(content, file_format, timeout_s=self.limits.timeout_s)
        except BaseException:
            self.store.remove(document)
            self._settle(content)
            raise

    def start(self, document: StoredDocument, job: DocumentJob) -> None:
        """Translate in the background; what becomes of it stands in `document`."""
        task = asyncio.create_task(self._run(document, job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def translate(self, document: StoredDocument, job: DocumentJob) -> None:
        """Translate and keep. Where that fails the file is forgotten.

        Raises NoSuchPair, QuotaExceeded, and what `Translator.translate` does.
        """
        try:
            async with self._turns:
                await self._translate(document, job)
        except BaseException:
            self.store.remove(document)
            raise
        finally:
            self._settle(job.content)

    async def open(self) -> None:
        """Remove what a server that was killed has left behind."""
        num_removed = await asyncio.to_thread(remove_left_folders, FOLDER_PREFIX)
        if num_removed:
            log_event(logger, logging.INFO, "left_files_removed", fields={"folders": num_removed})

    async def close(self) -> None:
        """End all work and remove all files."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._workers.close()
        self.store.close()

    async def _run(self, document: StoredDocument, job: DocumentJob) -> None:
        try:
            async with self._turns:
                await self._translate(document, job)
        except NoSuchPair as error:
            self.store.fail(document, f"{error} is not translated here")
        except (ServiceError, QuotaExceeded) as error:
            self.store.fail(document, str(error))
        except Exception as error:  # noqa: BLE001 - nobody waits for it: the log and the status have it
            log_event(
                logger, logging.ERROR, "file_failed", error=error, fields={"request_id": job.request_id}
            )
            self.store.fail(document, "something went wrong on our side")
        finally:
            self._settle(job.content)

    def _settle(self, content: bytes) -> None:
        """Give the memory of a large file back to the system, once nothing holds it."""
        if len(content) > LARGE_BYTES:
            loop = asyncio.get_running_loop()
            loop.call_later(SETTLE_S, lambda: loop.run_in_executor(None, return_memory))

    async def _translate(self, document: StoredDocument, job: DocumentJob) -> None:
        texts = job.texts
        document.status, document.started_at = DocumentStatus.TRANSLATING, time.monotonic()
        document.num_characters = sum(len(text.text) for text in texts)
        with self._usage.spending(document.owner, document.num_characters):
            source = job.source or await self._language(texts, job.target)
            if source != job.target and (source, job.target) not in self.plain.pairs():
                raise NoSuchPair(source, job.target)
            translations = [text.text for text in texts]
            if source != job.target:
                for batch in self._batches(texts):
                    found = await self._batch(document, job, source, [texts[number] for number in batch])
                    for number, text in zip(batch, found, strict=True):
                        translations[number] = text
                        document.num_done += len(texts[number].text)
            left_s = document.started_at + self.limits.timeout_s - time.monotonic()
            content = await self._workers.write(job.content, job.format, translations, timeout_s=left_s)
            await self.store.keep(document, content)

    async def _language(self, texts: Sequence[TextUnit], target: str) -> str:
        """The language of most of the file; the target where it stays as it is. Raises NoSuchPair."""
        sample = ""
        for text in texts:
            sample += text.text + "\n"
            if len(sample) >= SAMPLE_CHARACTERS:
                break
        return await self.plain.source_of(sample, target)

    def _batches(self, texts: Sequence[TextUnit]) -> Iterator[list[int]]:
        """Numbers of texts of one kind, within the limits of one request, or one that is above them."""
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

    async def _batch(
        self, document: StoredDocument, job: DocumentJob, source: str, texts: Sequence[TextUnit]
    ) -> list[str]:
        """The translations of texts of one kind; in halves where they are too much at once."""
        ends_at = document.started_at + self.limits.timeout_s
        while True:
            now = time.monotonic()
            if now >= ends_at:
                raise DeadlineExceeded(f"the file was not translated in {self.limits.timeout_s:g} s")
            request = TranslationRequest(
                texts=tuple(text.text for text in texts),
                source=source,
                target=job.target,
                request_id=job.request_id,
                caller=document.owner,
                share=job.share,
                deadline=min(ends_at, now + self.plain.limits.max_timeout_s),
                text_format=TextFormat(texts[0].format),
                splitting=Splitting.NO_NEWLINES if texts[0].is_wrapped else Splitting.SENTENCES,
                xml=UNIT_RULES if texts[0].format is UnitFormat.XML else XmlRules(),
                glossary=job.glossary,
            )
            try:
                with self.plain.service.work() as translator:
                    result = await translator.translate(request)
            except Overloaded as error:
                await asyncio.sleep(min(max(error.retry_after_s, 0.1), ends_at - now))
            except (DeadlineExceeded, PayloadTooLarge):
                if len(texts) == 1:
                    raise
                half = len(texts) // 2
                first = await self._batch(document, job, source, texts[:half])
                return first + await self._batch(document, job, source, texts[half:])
            else:
                record_usage(self.plain.service, result)
                return [translation.text for translation in result.translations]


def seconds_remaining(file: StoredDocument) -> int:
    """A guess from what is done so far, at least 1."""
    spent_s = time.monotonic() - file.started_at
    rest = file.num_characters - file.num_done
    return max(1, round(spent_s * rest / file.num_done)) if file.num_done else 10
