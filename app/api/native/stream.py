"""POST /v1/translate/stream: sends a translation as server-sent events while it is decoded.

The server sends the status with the first piece of the translation. An error before that is an ordinary error response.
If no piece is ready for `keep_alive_s` and the server has split the text into segments, the stream begins without a
piece, so that no proxy times out.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.api.http.closing import CONNECTION
from app.api.http.error_table import error_response, unexpected_body
from app.api.http.json_body import read_json
from app.api.http.middleware import requester_of
from app.api.limits import RequestLimits
from app.api.native.models import TranslateBody
from app.api.native.results import model_name, translate_answer
from app.api.native.routes import (
    ERRORS,
    TAG,
    build_answer,
    parser_of,
    record_usage,
    server_timing,
)
from app.api.native.stream_events import KEEP_ALIVE, EventBuffer
from app.api.openapi import operation
from app.api.service import Service
from app.api.spending import begin_spending
from app.errors import RequestCancelled, ServiceError
from app.stores.usage import Spending
from app.translator import Models, PairTranslator, TranslationRequest

EVENT_STREAM = "text/event-stream"
# The last two tell proxies to send each event at once, and not to compress the stream.
HEADERS = [
    (b"content-type", EVENT_STREAM.encode()),
    (b"x-accel-buffering", b"no"),
    (b"cache-control", b"no-store, no-transform"),
]
# The maximum bytes of one write. The next write waits until the client has read enough. If larger, each slow client
# takes more memory.
CHUNK_BYTES = 65_536
DISCONNECTED = "the client disconnected before the end of the response"
STREAM = operation(
    TAG,
    "Translate, and send the translation while it is decoded",
    EVENT_STREAM,
    body=TranslateBody,
    errors=ERRORS,
    meaning="events `start`, `delta`, `replace`, `segment`, and at the end `done` or `error`; the data of `done` is "
    "the answer of /v1/translate",
    example={"text": "Where is the station? It is late.", "source": "en", "target": "de", "beam_size": 1},
)


@dataclass(frozen=True)
class StreamLimits:
    """keep_alive_s: seconds without an event after which the stream begins, or a comment is sent."""

    keep_alive_s: float


def add_stream_route(
    router: APIRouter, service: Service, limits: RequestLimits, stream_limits: StreamLimits
) -> None:
    """Add the route. limits: those of each request. stream_limits: those of each stream."""

    @router.post("/v1/translate/stream", **STREAM)
    async def stream(request: Request) -> Response:
        service.check_open()
        body = await read_json(request, max_bytes=limits.max_body_bytes)
        requester = requester_of(request)
        parsed = parser_of(service.check_open(), body, limits).translate(body, requester)
        return EventStream(service, parsed, stream_limits, requester.received_at)


class EventStream(Response):
    """The response of one request. The translation runs while the response is sent.

    received_at: when the request arrived, in seconds of time.monotonic.
    """

    def __init__(
        self, service: Service, request: TranslationRequest, limits: StreamLimits, received_at: float
    ) -> None:
        super().__init__()
        self._service = service
        self._request = request
        self._limits = limits
        self._events = EventBuffer()
        self._is_started = False
        self._received_at = received_at
        self._timing = ""  # the value of Server-Timing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream. Raises the errors of `Service.work`, of `begin_spending` and of the translation.

        If the stream has begun, an error event is sent before an error of the translation is raised. Raises
        RequestCancelled, without an event, if the client disconnects or does not read.
        """
        with (
            self._service.work() as models,
            await begin_spending(scope, self._service.usage, self._request.num_characters) as spending,
        ):
            translator, request = await models.only_translator(self._request)
            work = asyncio.ensure_future(self._body(models, translator, request, scope))
            watcher = asyncio.ensure_future(_wait_for_disconnect(receive))
            for task in (work, watcher):
                task.add_done_callback(lambda _: self._events.changed.set())
            writer = _EventWriter(scope, send, spending)
            try:
                await self._send_events(writer, translator, work, watcher)
            finally:
                work.cancel()
                watcher.cancel()
                await asyncio.gather(work, watcher, return_exceptions=True)
                for name, number in self._events.num_sent.items():
                    self._service.metrics.stream_events.labels(name).inc(number)

    async def _body(
        self, models: Models, translator: PairTranslator, request: TranslationRequest, scope: Scope
    ) -> bytes:
        """Translate. Returns the body that /v1/translate would send."""
        result = await translator.translate(request, self._events)
        model = model_name(result.model)
        answer = await build_answer(models, request, lambda: translate_answer(result, request, model))
        record_usage(self._service, result, scope)
        self._timing = server_timing(result.timings)
        return orjson.dumps(answer)

    async def _send_events(
        self,
        writer: _EventWriter,
        translator: PairTranslator,
        work: asyncio.Task[bytes],
        watcher: asyncio.Task[None],
    ) -> None:
        """Send the events as they occur, up to the last one."""
        events = self._events
        while not work.done():
            is_quiet = not await _is_set_within(events.changed, self._limits.keep_alive_s)
            events.changed.clear()
            if watcher.done():
                raise RequestCancelled(DISCONNECTED)
            if work.done():
                break
            if events.has_unsent or (is_quiet and events.has_segments):
                await self._begin(writer, translator)
                await writer.send(events.take() if events.has_unsent else KEEP_ALIVE)
        await self._end(writer, translator, work)

    async def _begin(self, writer: _EventWriter, translator: PairTranslator) -> None:
        """Send the status, the headers and the first event, unless they are sent already."""
        if not self._is_started:
            self._is_started = True
            self._service.metrics.stream_first_seconds.observe(time.monotonic() - self._received_at)
            await writer.start()
            models = [model_name(each) for each in translator.versions]
            await writer.send(self._events.start(model_name(translator.version), models))

    async def _end(self, writer: _EventWriter, translator: PairTranslator, work: asyncio.Task[bytes]) -> None:
        """Send the last event. Raises the errors of the translation."""
        try:
            body = work.result()
        except Exception as error:
            if self._is_started:
                body = _error_body(error, self._request.request_id)
                with contextlib.suppress(RequestCancelled):  # `error` is the cause
                    await writer.send(self._events.take() + self._events.error(body), is_last=True)
            raise
        await self._begin(writer, translator)
        timing = f": server-timing {self._timing}\n".encode()
        await writer.send(self._events.take() + timing + self._events.done(body), is_last=True)


class _EventWriter:
    """Writes the stream to the client."""

    def __init__(self, scope: Scope, send: Send, spending: Spending) -> None:
        self._send = send
        self._spending = spending
        # Only `BoundedProtocol` adds this extension. Another ASGI server has its own rules for stalled clients.
        connection = scope.get("extensions", {}).get(CONNECTION, {})
        self._has_stalled: Callable[[], bool] = connection.get("has_stalled", lambda: False)
        self._is_disconnected: Callable[[], bool] = connection.get("is_disconnected", lambda: False)

    async def start(self) -> None:
        """Mark the request as delivered (`Spending.is_delivered`), and send the status and the headers."""
        self._spending.is_delivered = True
        await self._send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})

    async def send(self, body: bytes, *, is_last: bool = False) -> None:
        """Send a part of the stream. On return at most 2 x CHUNK_BYTES of the stream are buffered.

        Raises RequestCancelled if the client has disconnected, or if it does not read and the connection is closed.
        """
        chunks = [body[start : start + CHUNK_BYTES] for start in range(0, len(body), CHUNK_BYTES)]
        for chunk in (*chunks, *([b""] if is_last else [])):
            is_end = is_last and not chunk
            if self._is_disconnected():
                raise RequestCancelled(DISCONNECTED)
            await self._send({"type": "http.response.body", "body": chunk, "more_body": not is_end})
            if self._has_stalled():
                raise RequestCancelled("the client stopped reading the response")


def _error_body(error: Exception, request_id: str) -> bytes:
    if isinstance(error, ServiceError):
        return bytes(error_response(error, request_id).body)
    return unexpected_body(request_id)


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event. Returns whether it was set in time."""
    if event.is_set():
        return True
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
