"""The client for asyncio: the methods of `sync_client`, awaited. Cancelling a call closes its connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self, Unpack

import anyio
import httpx
from anyio.streams.memory import MemoryObjectSendStream

from transduce.client import wire
from transduce.client.connections import AsyncHttp, Connections, own_task, result_of
from transduce.client.errors import ConnectionFailed, TransduceError
from transduce.client.events import Done, Event, EventReader, read_event
from transduce.client.options import ScoreOptions, TranslateOptions
from transduce.client.results import (
    Detection,
    Model,
    ScoreResult,
    TranslationResult,
    parsed,
    read_detections,
    read_models,
    read_scores,
)
from transduce.client.retries import RetryLimits, RetryState


class AsyncClient:
    """A client of one server. It keeps connections open between calls, and tasks of one event loop may share it.

    A forked process may use it too, and has connections of its own. It cannot be used after it is closed.
    It is an async context manager. A method that sends a request raises TransduceError, and TypeError for an unknown
    option. A call is retried after 429, 503, a failed connection or a lost answer, at most `max_retries` times, and
    only within `max_wait_s` seconds of its first failure (`RetryState`).
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout_s: float = 60.0,
        max_retries: int = 5,
        max_wait_s: float = 60.0,
    ) -> None:
        """Open no connection yet. timeout_s: seconds to wait for a response, or for the next piece of a stream.

        An infinite time means no limit.

        Raises:
            ValueError: the URL is not of the form http://host:port, `wire.is_api_key` refuses the API key, `timeout_s`
                is not a number above 0, `max_retries` or `max_wait_s` is not a number of at least 0, or the proxy or
                certificate variables of the environment cannot be used.
        """
        self._limits = RetryLimits(max_retries, max_wait_s)
        self._connections = Connections(AsyncHttp, wire.Endpoint.of(url, api_key, timeout_s))

    async def __aenter__(self) -> Self:
        """Return the client itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the client."""
        await self.close()

    async def close(self) -> None:
        """Close all connections. Later calls, and calls and streams in progress, then raise ConnectionFailed.

        A call in progress may raise another TransduceError, if it had already failed. A call that waits before a retry
        raises when that wait ends.
        """
        await self._connections.http.aclose()

    async def translate(
        self, text: wire.Texts, *, source: str, target: str, **options: Unpack[TranslateOptions]
    ) -> TranslationResult:
        """Translate a text, or several in order. source: a language code, or `auto`."""
        body = wire.translate_body(text, source, target, options)
        return wire.translations_of(await self._request("POST", wire.TRANSLATE, body), wire.num_texts(text))

    def stream(
        self, text: wire.Texts, *, source: str, target: str, **options: Unpack[TranslateOptions]
    ) -> AsyncTranslationStream:
        """Stream the translation as it is produced. The request is sent when the first event is read."""
        body = wire.translate_body(text, source, target, options)
        return AsyncTranslationStream(self._events(body))

    async def detect(self, text: wire.Texts) -> tuple[Detection, ...]:
        """Detect the language of each text."""
        answer = await self._request("POST", wire.DETECT, {"text": wire.json_texts(text)})
        return parsed(read_detections, answer, "a detection")

    async def score(
        self,
        text: wire.Texts,
        translation: wire.Texts,
        *,
        source: str,
        target: str,
        **options: Unpack[ScoreOptions],
    ) -> ScoreResult:
        """Score the k-th translation as a translation of the k-th text, by the model's probabilities."""
        body = wire.score_body(text, translation, (source, target), options)
        return parsed(read_scores, await self._request("POST", wire.SCORE, body), "a score")

    async def models(self) -> tuple[Model, ...]:
        """List the served models."""
        return parsed(read_models, await self._request("GET", wire.MODELS, None), "a list of models")

    async def _request(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        content = wire.request_content(body)
        attempts = RetryState(self._limits)
        while True:
            try:
                response = await self._response(method, path, content)
                if response.status_code == httpx.codes.OK:
                    return wire.json_of(response)
                raise wire.error_of(response)
            except TransduceError as error:
                if self._connections.is_closed:
                    raise
                await asyncio.sleep(attempts.wait_after(error))

    async def _response(self, method: str, path: str, content: dict[str, Any]) -> httpx.Response:
        with self._connections.request() as http:
            async with http.calls, own_task(lambda: http.request(method, path, **content)) as task:
                return await result_of(task)

    async def _events(self, body: dict[str, Any]) -> AsyncGenerator[Event, None]:
        """The events of a stream.

        A request is not retried after its first event, because the caller has part of the result.
        """
        attempts = RetryState(self._limits)
        has_begun = False
        while True:
            try:
                async with aclosing(self._one_stream(body)) as events:
                    async for event in events:
                        has_begun = True
                        yield event
            except TransduceError as error:
                if has_begun or self._connections.is_closed:
                    raise
                await asyncio.sleep(attempts.wait_after(error))
            else:
                return

    async def _one_stream(self, body: dict[str, Any]) -> AsyncGenerator[Event, None]:
        content = wire.request_content(body)
        sender, events = anyio.create_memory_object_stream[Event]()
        async with events, own_task(lambda: self._receive(content, sender)) as task:
            async for event in events:
                yield event
            await result_of(task)

    async def _receive(self, content: dict[str, Any], events: MemoryObjectSendStream[Event]) -> None:
        """Send the events of a stream to the task that iterates."""
        reader = EventReader()
        with events, self._connections.request() as http:
            async with http.stream("POST", wire.STREAM, **content) as response:
                if response.status_code != httpx.codes.OK:
                    await response.aread()
                    raise wire.error_of(response)
                chunks = response.aiter_bytes()
                async for chunk in chunks:
                    for name, data in reader.feed(chunk):
                        if name == "error":
                            raise wire.stream_error(data)
                        event = read_event(name, data)
                        if event is not None:
                            await events.send(event)
                        if isinstance(event, Done):
                            await _read_to_end(chunks)
                            return
        raise ConnectionFailed("the stream ended before the translation was done")


async def _read_to_end(chunks: AsyncIterator[bytes]) -> None:
    """Read the rest of a response, so that httpx can reuse the connection. The result is complete: ignore errors."""
    with contextlib.suppress(httpx.HTTPError, httpx.StreamError):
        async for _ in chunks:
            pass


class AsyncTranslationStream:
    """The events of one translation, for one iteration. Closing it, or leaving its scope, cancels the work."""

    def __init__(self, events: AsyncGenerator[Event, None]) -> None:
        self._events = events

    def __aiter__(self) -> Self:
        """Return the stream itself."""
        return self

    async def __anext__(self) -> Event:
        """The next event. Raises TransduceError."""
        return await anext(self._events)

    async def __aenter__(self) -> Self:
        """Return the stream itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the stream."""
        await self.close()

    async def close(self) -> None:
        """Close the connection; the server stops after its current decoder steps. May be called more than once.

        Only the task that iterates may call it. Cancelling that task also closes the connection.
        """
        await self._events.aclose()
