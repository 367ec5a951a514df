"""A request that ends without a response still has a status, in metrics and log."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging

import pytest
import uvloop
from starlette.types import Receive, Scope, Send

from app.api.http.dialect import Dialects
from app.api.http.middleware import RequestScope
from app.observability.logging import JsonFormatter
from app.observability.metrics import Metrics
from tests.api.server_process import ServerProcess
from tests.api.test_connections import HEAD
from tests.api.test_protocol import GET, HANG_TIMEOUT_S, connected


@pytest.mark.parametrize(("caller_leaves", "status"), [(True, 499), (False, 503)])
def test_a_cancelled_request_has_a_status(
    caller_leaves: bool, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Metrics()

    async def run() -> None:
        has_begun, has_ended = asyncio.Event(), asyncio.Event()

        async def work(_scope: Scope, receive: Receive, _send: Send) -> None:
            has_begun.set()
            if caller_leaves:
                while (await receive())["type"] != "http.disconnect":
                    pass
            raise asyncio.CancelledError

        request_scope = RequestScope(work, metrics=metrics, dialects=Dialects())

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            with contextlib.suppress(asyncio.CancelledError):
                await request_scope(scope, receive, send)
            has_ended.set()

        async with connected(app) as (_reader, writer):
            writer.write(GET)
            await asyncio.wait_for(has_begun.wait(), HANG_TIMEOUT_S)
            if caller_leaves:
                writer.close()
            await asyncio.wait_for(has_ended.wait(), HANG_TIMEOUT_S)

    with caplog.at_level(logging.INFO, "app.http"):
        uvloop.run(run())
    lines = [
        json.loads(JsonFormatter().format(record)) for record in caplog.records if record.name == "app.http"
    ]
    assert [line["status"] for line in lines] == [status]
    assert f'code="{status}"' in metrics.render().decode()


@pytest.mark.parametrize("path", [b"/v1/translate", b"/v1/translate/stream", b"/v2/translate", b"/translate"])
def test_a_disconnected_caller_is_a_499(server: ServerProcess, path: bytes) -> None:
    with server.connect() as connection:
        head = HEAD.replace(b"/v1/translate", path)
        connection.sendall(head + b'x-request-id: gone\r\ncontent-length: 100\r\n\r\n{"text":')
    assert server.wait_for_request("gone")["status"] == 499
