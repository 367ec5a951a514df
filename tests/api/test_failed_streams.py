"""Streams that end early: the translation fails in an unexpected way, or the client disconnects."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from app.api.http.closing import CONNECTION
from app.api.http.dialect import Dialects
from app.api.http.middleware import RequestScope
from app.api.native.stream import EventStream, StreamLimits, _EventWriter
from app.api.native.stream_events import EventBuffer
from app.api.service import Service
from app.engine.stats import Health
from app.errors import RequestCancelled
from app.observability.metrics import Metrics
from app.stores.glossaries import GlossaryStore
from app.stores.usage import Spending, Usage
from app.translator import ModelVersion, TranslationRequest
from tests.api.test_protocol import LAST_GET, answer


def test_nothing_is_sent_after_a_disconnect() -> None:
    async def send(_message: dict[str, Any]) -> None:
        raise AssertionError

    scope = {"extensions": {CONNECTION: {"is_disconnected": lambda: True}}}
    writer = _EventWriter(scope, send, Spending(Usage(), "", 0, []))  # type: ignore[arg-type]
    with pytest.raises(RequestCancelled):
        asyncio.run(writer.send(b"x"))


class FailingTranslator:
    """Translates one word, then fails with an error that is no ServiceError."""

    version = ModelVersion("broken", "1")
    versions = ()

    async def translate(self, _request: object, observer: EventBuffer) -> None:
        observer.on_delta(0, 0, "Anna")
        await asyncio.sleep(0.2)  # meanwhile the stream begins
        raise ZeroDivisionError

    async def only_translator(self, request: object) -> tuple[FailingTranslator, object]:
        return self, request

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        yield

    def health(self) -> Health:
        return Health.joint(())


def test_an_unexpected_error_ends_the_stream_with_an_event_and_one_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics = Metrics()
    service = Service(metrics, GlossaryStore(None))
    service.become_ready(FailingTranslator())  # type: ignore[arg-type]
    request = TranslationRequest(("a",), "en", "de", request_id="r", caller="", deadline=0.0)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"]["caller"] = ""
        await EventStream(service, request, StreamLimits(10.0), 0.0)(scope, receive, send)

    received = answer(RequestScope(app, metrics=metrics, dialects=Dialects()), LAST_GET)
    content = received.partition(b"\r\n\r\n")[2]
    assert content.endswith(b"\r\n0\r\n\r\n")
    data = content.rpartition(b"event: error\ndata: ")[2].partition(b"\n")[0]
    error = {
        "code": "internal_error",
        "message": "the server failed to answer this request",
        "request_id": "r",
    }
    assert json.loads(data) == {"error": error}
    failures = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [record.name for record in failures] == ["app.http"]
    assert b'transduce_rejected_total{reason="engine"} 1.0' in metrics.render()


def test_an_error_whose_event_cannot_be_sent_is_still_the_cause() -> None:
    service = Service(Metrics(), GlossaryStore(None))
    service.become_ready(FailingTranslator())  # type: ignore[arg-type]
    request = TranslationRequest(("a",), "en", "de", request_id="r", caller="", deadline=0.0)
    sent = b""

    async def send(message: Any) -> None:
        nonlocal sent
        sent += message.get("body", b"")

    async def receive() -> Any:
        await asyncio.Event().wait()

    connection = {"is_disconnected": lambda: b"event: delta" in sent}  # once the first words are sent
    scope = {"state": {"caller": ""}, "extensions": {CONNECTION: connection}}
    with pytest.raises(ZeroDivisionError):
        asyncio.run(EventStream(service, request, StreamLimits(10.0), 0.0)(scope, receive, send))
    assert b"event: error" not in sent
