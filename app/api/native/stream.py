"""POST /v1/translate/stream: the translation while it is made, as server-sent events.

The answer's status is held back until there is a translation to show, so that what goes wrong before has an ordinary
error's status; where nothing can be shown for long, it begins all the same, so that no proxy gives up.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import Any

import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.api.http.error_table import error_response
from app.api.http.json_body import read_json
from app.api.http.middleware import requester_of
from app.api.http.protocol import READER
from app.api.native.answers import translate_answer
from app.api.native.routes import build_answer, model_summary, parser_of, record_usage, server_timing
from app.api.native.schema import Requester, RequestLimits
from app.api.native.stream_events import KEEP_ALIVE, EventBuffer
from app.api.openapi import TRANSLATE
from app.api.service import Service
from app.errors import RequestCancelled, ServiceError
from app.translator import TranslationRequest, Translator

EVENT_STREAM = "text/event-stream"
HEADERS = [(b"content-type", EVENT_STREAM.encode()), (b"x-accel-buffering", b"no")]
# The server waits for its reader before it takes the next ones.
CHUNK_BYTES = 65_536
# In the scope's extensions: whether the connection was cut because its reader took nothing.


@dataclass(frozen=True)
class StreamLimits:
    """keep_alive_s: without an event, until a comment is sent."""

    keep_alive_s: float


def add_stream_route(
    router: APIRouter, service: Service, limits: RequestLimits, stream_limits: StreamLimits
) -> None:
    """Add the route, which answers through `service`, within the limits."""

    @router.post("/v1/translate/stream", openapi_extra=_DESCRIPTION, summary="Translate, and watch it done")
    async def stream(request: Request) -> Response:
        service.check_open()
        body = await read_json(request, max_bytes=limits.max_body_bytes)
        translator = service.check_open()
        asked = parser_of(translator, limits).translate(body, Requester(*requester_of(request)))
        return EventStream(service, asked, stream_limits)


class EventStream(Response):
    """The answer to one request: it translates while it is sent."""

    def __init__(self, service: Service, asked: TranslationRequest, limits: StreamLimits) -> None:
        super().__init__()
        self._service = service
        self._asked = asked
        self._limits = limits
        self._feed = EventBuffer()
        self._is_started = False
        self._began = time.monotonic()
        self._timing = ""  # what the header says where there is no stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises what the translation raises; told as an event first, where the stream has begun."""
        with self._service.work() as translator:
            work = asyncio.ensure_future(self._body(translator, scope))
            watcher = asyncio.ensure_future(_disconnected(receive))
            for task in (work, watcher):
                task.add_done_callback(lambda _: self._feed.news.set())
            line = _EventWriter(scope, send)
            try:
                await self._follow(line, translator, work, watcher)
            finally:
                work.cancel()
                watcher.cancel()
                await asyncio.gather(work, watcher, return_exceptions=True)
                for name, number in self._feed.num_sent.items():
                    self._service.metrics.stream_events.labels(name).inc(number)

    async def _body(self, translator: Translator, scope: Scope) -> bytes:
        """Translate. The body is that of a request without a stream."""
        asked = self._asked
        result = await translator.translate(asked, self._feed)
        model = model_summary(translator)
        answer = await build_answer(translator, asked, lambda: translate_answer(result, asked, model))
        scope["state"]["num_sentences"] = result.num_sentences
        record_usage(self._service, result)
        self._timing = server_timing(result.timings)
        return orjson.dumps(answer)

    async def _follow(
        self,
        line: _EventWriter,
        translator: Translator,
        work: asyncio.Task[bytes],
        watcher: asyncio.Task[None],
    ) -> None:
        """Send what happens until the last event."""
        feed = self._feed
        while not work.done():
            is_quiet = not await _set_within(feed.news, self._limits.keep_alive_s)
            feed.news.clear()
            if watcher.done():
                raise RequestCancelled("the caller left before the answer")
            if work.done():
                break
            if feed.has_unsent or (is_quiet and feed.is_planned):
                await self._begin(line, translator)
                await line.send(feed.take() if feed.has_unsent else KEEP_ALIVE)
        await self._end(line, translator, work)

    async def _begin(self, line: _EventWriter, translator: Translator) -> None:
        if not self._is_started:
            self._is_started = True
            self._service.metrics.stream_first_seconds.observe(time.monotonic() - self._began)
            await line.start()
            await line.send(self._feed.start(model_summary(translator)))

    async def _end(self, line: _EventWriter, translator: Translator, work: asyncio.Task[bytes]) -> None:
        """The last event; raises what the translation raised."""
        try:
            body = work.result()
        except ServiceError as error:
            if self._is_started:
                told = bytes(error_response(error, self._asked.request_id).body)
                await line.send(self._feed.take() + self._feed.error(told), is_last=True)
            raise
        await self._begin(line, translator)
        timing = f": server-timing {self._timing}\n".encode()
        await line.send(self._feed.take() + timing + self._feed.done(body), is_last=True)


class _EventWriter:
    """The way to the reader."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._send = send
        self._has_stalled = scope["extensions"][READER]["has_stalled"]

    async def start(self) -> None:
        """Status and headers."""
        await self._send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})

    async def send(self, body: bytes, *, is_last: bool = False) -> None:
        """Returns once all is on its way but CHUNK_BYTES and what the server lets wait for the system, as much again.

        Raises RequestCancelled where the reader took nothing for too long, and was cut off.
        """
        chunks = [body[start : start + CHUNK_BYTES] for start in range(0, len(body), CHUNK_BYTES)]
        for chunk in (*chunks, *([b""] if is_last else [])):
            ends = is_last and not chunk
            await self._send({"type": "http.response.body", "body": chunk, "more_body": not ends})
            if self._has_stalled():
                raise RequestCancelled("the caller takes nothing of its answer")


async def _set_within(news: asyncio.Event, seconds: float) -> bool:
    """Whether an event is set in so much time."""
    if news.is_set():
        return True
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(news.wait(), seconds)
    return news.is_set()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


_DESCRIPTION: dict[str, Any] = {
    **TRANSLATE,
    "responses": {
        **TRANSLATE["responses"],
        "200": {
            "description": "events `start`, `delta`, `replace`, `segment`, and at the end `done` or `error`; the data "
            "of `done` is the answer of /v1/translate",
            "content": {EVENT_STREAM: {"schema": {"type": "string"}}},
        },
    },
}
