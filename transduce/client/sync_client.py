"""The synchronous client: every method blocks until its result arrives."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from types import TracebackType
from typing import Any, Self, Unpack

import httpx

from transduce.client import wire
from transduce.client.connections import Connections
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


class Client:
    """A client of one server. It keeps connections open between calls, and threads may share it.

    A forked process may use it too, and has connections of its own. It cannot be used after it is closed.
    It is a context manager. A method that sends a request raises TransduceError, and TypeError for an unknown option.
    A call is retried after 429, 503, a failed connection or a lost answer, at most `max_retries` times, and only within
    `max_wait_s` seconds of its first failure (`RetryState`).
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
        self._connections = Connections(httpx.Client, wire.Endpoint.of(url, api_key, timeout_s))

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the client."""
        self.close()

    def close(self) -> None:
        """Close all connections. Calls, and reading an open stream, then raise ConnectionFailed.

        A thread that already waits for a response, or for the next piece of a stream, notices when data arrives, or
        after `timeout_s`. A thread that waits before a retry notices when that wait ends.
        """
        self._connections.http.close()

    def translate(
        self, text: wire.Texts, *, source: str, target: str, **options: Unpack[TranslateOptions]
    ) -> TranslationResult:
        """Translate a text, or several in order. source: a language code, or `auto`."""
        body = wire.translate_body(text, source, target, options)
        return wire.translations_of(self._request("POST", wire.TRANSLATE, body), wire.num_texts(text))

    def stream(
        self, text: wire.Texts, *, source: str, target: str, **options: Unpack[TranslateOptions]
    ) -> TranslationStream:
        """Stream the translation as it is produced. The request is sent when the first event is read."""
        body = wire.translate_body(text, source, target, options)
        return TranslationStream(self._events(body))

    def detect(self, text: wire.Texts) -> tuple[Detection, ...]:
        """Detect the language of each text."""
        answer = self._request("POST", wire.DETECT, {"text": wire.json_texts(text)})
        return parsed(read_detections, answer, "a detection")

    def score(
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
        return parsed(read_scores, self._request("POST", wire.SCORE, body), "a score")

    def models(self) -> tuple[Model, ...]:
        """List the served models."""
        return parsed(read_models, self._request("GET", wire.MODELS, None), "a list of models")

    def _request(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        content = wire.request_content(body)
        attempts = RetryState(self._limits)
        while True:
            try:
                with self._connections.request() as http:
                    response = http.request(method, path, **content)
                if response.status_code == httpx.codes.OK:
                    return wire.json_of(response)
                raise wire.error_of(response)
            except TransduceError as error:
                if self._connections.is_closed:
                    raise
                time.sleep(attempts.wait_after(error))

    def _events(self, body: dict[str, Any]) -> Generator[Event, None, None]:
        """The events of a stream.

        A request is not retried after its first event, because the caller has part of the result.
        """
        attempts = RetryState(self._limits)
        has_begun = False
        while True:
            try:
                with closing(self._one_stream(body)) as events:
                    for event in events:
                        has_begun = True
                        yield event
            except TransduceError as error:
                if has_begun or self._connections.is_closed:
                    raise
                time.sleep(attempts.wait_after(error))
            else:
                return

    def _one_stream(self, body: dict[str, Any]) -> Generator[Event, None, None]:
        content = wire.request_content(body)
        reader = EventReader()
        with (
            self._connections.request() as http,
            http.stream("POST", wire.STREAM, **content) as response,
        ):
            if response.status_code != httpx.codes.OK:
                response.read()
                raise wire.error_of(response)
            chunks = response.iter_bytes()
            for chunk in chunks:
                for name, data in reader.feed(chunk):
                    if name == "error":
                        raise wire.stream_error(data)
                    event = read_event(name, data)
                    if event is not None:
                        yield event
                    if isinstance(event, Done):
                        _read_to_end(chunks)
                        return
        raise ConnectionFailed("the stream ended before the translation was done")


def _read_to_end(chunks: Iterator[bytes]) -> None:
    """Read the rest of a response, so that httpx can reuse the connection. The result is complete: ignore errors."""
    with contextlib.suppress(httpx.HTTPError, httpx.StreamError):
        for _ in chunks:
            pass


class TranslationStream:
    """The events of one translation, for one iteration. Closing it, or leaving its scope, cancels the work."""

    def __init__(self, events: Generator[Event, None, None]) -> None:
        self._events = events

    def __iter__(self) -> Self:
        """Return the stream itself."""
        return self

    def __next__(self) -> Event:
        """The next event. Raises TransduceError."""
        return next(self._events)

    def __enter__(self) -> Self:
        """Return the stream itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the stream."""
        self.close()

    def close(self) -> None:
        """Close the connection; the server stops after its current decoder steps. May be called more than once.

        Only the thread that iterates may call it.
        """
        self._events.close()
