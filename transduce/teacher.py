"""Translates many sentences through a server, in order, with several requests at a time.

The server batches the sentences of all requests that it has. The client only sends enough requests to keep it busy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import islice
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any

from transduce.client import Client, ModelName, RequestRefused, TimedOut, TransduceError
from transduce.errors import CommandError
from transduce.translate_batch import error_line
from transduce.translate_lines import MAX_ITEM_CHARACTERS, requests

# Seconds in which running requests may end after an error or an interruption. If larger, the command ends later.
END_LIMIT_S = 1.0


@dataclass(frozen=True)
class RequestParams:
    """Languages and options of every request.

    source, target: languages of the translation. options: as `Client.translate` takes them. seed: the seed of sampling,
    or None without sampling. All sentences of a request draw the same random numbers. Each batch has another seed:
    `seed` + the number of its first sentence.
    """

    source: str
    target: str
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None

    def options_from(self, first: int) -> dict[str, Any]:
        """The options of the batch that begins with sentence number `first`."""
        if self.seed is None:
            return dict(self.options)
        return {**self.options, "sampling": {**self.options.get("sampling", {}), "seed": self.seed + first}}


@dataclass(frozen=True)
class _Task:
    """A batch, the number of its first text, and its translations once they are known."""

    batch: list[str]
    first: int
    future: Future[list[str | None]] = field(default_factory=Future)


class Teacher:
    """Translates many sentences through a server."""

    def __init__(
        self,
        client: Client,
        params: RequestParams,
        *,
        model: ModelName,
        batch_size: int,
        concurrency: int,
        has_succeeded: bool = False,
    ) -> None:
        """model: the model of all translations. batch_size: sentences of a request. concurrency: requests at a time.

        has_succeeded: whether the same command has translated a text before, so that a refused text is left out.
        """
        self._client, self._params, self._model = client, params, model
        self._batch_size, self._concurrency = batch_size, concurrency
        self._has_succeeded = has_succeeded

    def translations(
        self, texts: Iterable[str], *, first: int = 0
    ) -> Generator[list[tuple[str, str | None]], None, None]:
        """Yield batches of texts with their translations, in order.

        first: the number of the first text, a multiple of the batch size. A text has None if it is blank or longer than
        MAX_ITEM_CHARACTERS, or if the server refuses it as too long or invalid. At most 2 * concurrency batches are in
        memory. If the generator is closed or fails, it begins no further batch, and waits at most END_LIMIT_S until
        running requests have ended. The caller then closes the client, which ends the requests that still run.

        Raises:
            CommandError: the server cannot be reached, fails, takes too long for one text, translates with another
                model, refuses a request for a reason other than its texts, or refuses a text before it has translated
                any.
        """
        remaining = iter(texts)
        waiting: deque[_Task] = deque()
        tasks: SimpleQueue[_Task | None] = SimpleQueue()
        # At its end the process does not wait for daemon threads. It would wait for threads of a ThreadPoolExecutor.
        threads = [
            Thread(target=self._work, args=(tasks,), name="teacher", daemon=True)
            for _ in range(self._concurrency)
        ]
        for thread in threads:
            thread.start()
        try:
            number = first
            while True:
                while len(waiting) < 2 * self._concurrency and (
                    batch := list(islice(remaining, self._batch_size))
                ):
                    waiting.append(_Task(batch, number))
                    tasks.put(waiting[-1])
                    number += len(batch)
                if not waiting:
                    return
                found = waiting[0].future.result()
                yield list(zip(waiting.popleft().batch, found, strict=True))
        finally:
            for task in waiting:
                task.future.cancel()
            for _ in threads:
                tasks.put(None)
            until = monotonic() + END_LIMIT_S
            for thread in threads:
                thread.join(max(0.0, until - monotonic()))

    def _work(self, tasks: SimpleQueue[_Task | None]) -> None:
        """Translate batches until the queue yields None."""
        while (task := tasks.get()) is not None:
            if task.future.set_running_or_notify_cancel():
                try:
                    task.future.set_result(self._batch(task.batch, task.first))
                except BaseException as error:  # noqa: BLE001 - `translations` raises it
                    task.future.set_exception(error)

    def _batch(self, batch: Sequence[str], first: int) -> list[str | None]:
        """The translations of a batch."""
        options = self._params.options_from(first)
        is_sent = [not text.isspace() and 0 < len(text) <= MAX_ITEM_CHARACTERS for text in batch]
        sent = [text for text, sends in zip(batch, is_sent, strict=True) if sends]
        found = iter([each for part in requests(sent) for each in self._request(part, options)])
        return [next(found) if sends else None for sends in is_sent]

    def _request(self, texts: Sequence[str], options: Mapping[str, Any]) -> list[str | None]:
        """The translations of one request. If its texts are refused or its deadline passes, it is halved.

        Raises CommandError.
        """
        try:
            result = self._client.translate(
                texts, source=self._params.source, target=self._params.target, **options
            )
        except TransduceError as error:
            is_refused = _is_caused_by_texts(error)
            is_late = isinstance(error, TimedOut) and error.status is not None
            if len(texts) > 1 and (is_refused or is_late):
                half = len(texts) // 2
                return [*self._request(texts[:half], options), *self._request(texts[half:], options)]
            if is_refused and self._has_succeeded:
                return [None]
            raise CommandError(error_line(error)) from error
        if result.model != self._model:
            raise CommandError(
                f"the server now translates with {_label(result.model)} instead of {_label(self._model)}"
            )
        self._has_succeeded = True
        return [each.text for each in result.translations]


def _is_caused_by_texts(error: TransduceError) -> bool:
    """Whether the server refuses a request because its texts are too many, too long or invalid."""
    if not isinstance(error, RequestRefused):
        return False
    if error.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or error.code == "source_too_long":
        return True
    return error.code == "invalid_request" and (error.field or "").startswith("text")


def _label(model: ModelName) -> str:
    return f"{model.name} {model.version}"
