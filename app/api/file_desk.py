"""Uploaded files to translated ones, a batch of texts at a time, beside the requests of everyone else."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.api.file_shelf import FileLimits, FileShelf, FileStatus, ShelvedFile
from app.api.native import count
from app.api.plain_translation import NoSuchPair, PlainTranslator
from app.errors import DeadlineExceeded, InvalidRequest, Overloaded, PayloadTooLarge, ServiceError
from app.files import FileError, FileFormat, TranslatableFile, Unit, UnitFormat, read_file
from app.observability.logging import log_event
from app.stores.usage import QuotaExceeded, UsageCounter
from app.text.glossary import Glossary
from app.text.passage import Splitting, TextFormat
from app.text.xml_reader import XmlRules
from app.translator import TranslationRequest

logger = logging.getLogger("app.files")
# What a unit in XML consists of (app.files.unit.Unit).
UNIT_RULES = XmlRules(splitting=frozenset({"br"}), not_splitting=frozenset({"g", "x"}))
# As many characters of a file tell its language.
SAMPLE_CHARACTERS = 5_000


@dataclass(frozen=True)
class FileJob:
    """A file to translate. source None: detected, of the file as a whole. request_id, share: of the upload."""

    file: TranslatableFile
    source: str | None
    target: str
    request_id: str
    glossary: Glossary | None = None
    share: str = ""


class FileDesk:
    """Takes files in and gives them out."""

    def __init__(self, plain: PlainTranslator, limits: FileLimits, usage: UsageCounter) -> None:
        self.plain = plain
        self.limits = limits
        self.shelf = FileShelf(limits)
        self._usage = usage
        self._turns = asyncio.Semaphore(limits.num_workers)
        self._readers = asyncio.Semaphore(limits.num_workers)
        self._tasks: set[asyncio.Task[None]] = set()

    async def read(self, content: bytes, file_format: FileFormat) -> TranslatableFile:
        """Raises InvalidRequest with the line or part of what is malformed."""
        async with self._readers:
            try:
                return await asyncio.to_thread(read_file, content, file_format)
            except FileError as error:
                raise InvalidRequest(f"file: {error}", field="file") from error

    def start(self, shelved: ShelvedFile, job: FileJob) -> None:
        """Translate in the background; what becomes of it stands in `shelved`."""
        task = asyncio.create_task(self._run(shelved, job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def translate(self, shelved: ShelvedFile, job: FileJob) -> None:
        """Translate and keep. Where that fails the file is forgotten.

        Raises NoSuchPair, QuotaExceeded, and what `Translator.translate` does.
        """
        try:
            async with self._turns:
                await self._translate(shelved, job)
        except BaseException:
            self.shelf.remove(shelved)
            raise

    async def close(self) -> None:
        """End all work and remove all files."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.shelf.close()

    async def _run(self, shelved: ShelvedFile, job: FileJob) -> None:
        try:
            async with self._turns:
                await self._translate(shelved, job)
        except NoSuchPair as error:
            self.shelf.fail(shelved, f"{error.source} to {error.target} is not translated here")
        except (ServiceError, QuotaExceeded) as error:
            self.shelf.fail(shelved, str(error))
        except Exception as error:  # noqa: BLE001 - nobody waits for it: the log and the status have it
            log_event(
                logger, logging.ERROR, "file_failed", error=error, fields={"request_id": job.request_id}
            )
            self.shelf.fail(shelved, "something went wrong on our side")

    async def _translate(self, shelved: ShelvedFile, job: FileJob) -> None:
        units = job.file.units
        shelved.status, shelved.started_at = FileStatus.TRANSLATING, time.monotonic()
        shelved.num_characters = sum(len(unit.text) for unit in units)
        with self._usage.spending(shelved.owner, shelved.num_characters):
            source = job.source or await self._language(units, job.target)
            if source != job.target and (source, job.target) not in self.plain.pairs():
                raise NoSuchPair(source, job.target)
            translations = [unit.text for unit in units]
            if source != job.target:
                for batch in self._batches(units):
                    found = await self._batch(shelved, job, source, [units[number] for number in batch])
                    for number, text in zip(batch, found, strict=True):
                        translations[number] = text
                        shelved.num_done += len(units[number].text)
            try:
                content = await asyncio.to_thread(job.file.write, translations)
            except ValueError as error:
                raise InvalidRequest(f"file: {error}", field="file") from error
            await self.shelf.keep(shelved, content)

    async def _language(self, units: Sequence[Unit], target: str) -> str:
        """The language of most of the file. Raises NoSuchPair."""
        sample = ""
        for unit in units:
            sample += unit.text + "\n"
            if len(sample) >= SAMPLE_CHARACTERS:
                break
        ranked = (await self.plain.detect([sample]))[0]
        served = [language for language, _ in ranked if (language, target) in self.plain.pairs()]
        if ranked and ranked[0][0] == target:
            return target
        if not served and ranked:
            raise NoSuchPair(ranked[0][0], target)
        return served[0] if served else target

    def _batches(self, units: Sequence[Unit]) -> Iterator[list[int]]:
        """Numbers of units of one kind, within the limits of one request, or one that is above them."""
        limits = self.plain.limits
        waiting: dict[tuple[UnitFormat, bool], list[int]] = {}
        sizes: dict[tuple[UnitFormat, bool], int] = {}
        for number, unit in enumerate(units):
            kind = (unit.format, unit.flows)
            group = waiting.setdefault(kind, [])
            size = sizes.get(kind, 0) + len(unit.text)
            if group and (len(group) == limits.max_items or size > limits.max_request_characters):
                yield group
                group, size = [], len(unit.text)
            waiting[kind] = [*group, number]
            sizes[kind] = size
        yield from (group for group in waiting.values() if group)

    async def _batch(
        self, shelved: ShelvedFile, job: FileJob, source: str, units: Sequence[Unit]
    ) -> list[str]:
        """The translations of units of one kind; in halves where they are too much at once."""
        ends_at = shelved.started_at + self.limits.timeout_s
        while True:
            now = time.monotonic()
            if now >= ends_at:
                raise DeadlineExceeded(f"the file was not translated in {self.limits.timeout_s:g} s")
            request = TranslationRequest(
                texts=tuple(unit.text for unit in units),
                source=source,
                target=job.target,
                request_id=job.request_id,
                caller=shelved.owner,
                share=job.share,
                deadline=min(ends_at, now + self.plain.limits.max_timeout_s),
                text_format=TextFormat(units[0].format),
                splitting=Splitting.NO_NEWLINES if units[0].flows else Splitting.SENTENCES,
                xml=UNIT_RULES if units[0].format is UnitFormat.XML else XmlRules(),
                glossary=job.glossary,
            )
            try:
                with self.plain.service.work() as translator:
                    result = await translator.translate(request)
            except Overloaded as error:
                await asyncio.sleep(min(max(error.retry_after_s, 0.1), ends_at - now))
            except (DeadlineExceeded, PayloadTooLarge):
                if len(units) == 1:
                    raise
                half = len(units) // 2
                first = await self._batch(shelved, job, source, units[:half])
                return first + await self._batch(shelved, job, source, units[half:])
            else:
                count(self.plain.service, result)
                return [translation.text for translation in result.translations]


def seconds_remaining(file: ShelvedFile) -> int:
    """A guess from what is done so far, at least 1."""
    spent_s = time.monotonic() - file.started_at
    rest = file.num_characters - file.num_done
    return max(1, round(spent_s * rest / file.num_done)) if file.num_done else 10
