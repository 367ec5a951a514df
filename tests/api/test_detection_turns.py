"""A detection that waits for a text thread is a request in progress until its client disconnects."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
import uvloop

from app.main import Application
from app.settings import Settings
from app.text.tokenizer import Tokenizer
from tests.api.echo import EchoLoader
from tests.api.processes import wait_until
from tests.api.server_process import HANG_TIMEOUT_S
from tests.api.test_protocol import connected

HEAD = "POST {} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n"


@pytest.mark.parametrize(("path", "field"), [("/v1/detect", "text"), ("/detect", "q")])
def test_a_waiting_detection_is_in_progress_until_its_client_disconnects(
    tokenizer: Tokenizer, path: str, field: str
) -> None:
    content = json.dumps({field: "Anna sees the river."})
    sent = HEAD.format(path, len(content)) + content

    async def run() -> None:
        application = Application(Settings(num_threads=1), loader=EchoLoader(tokenizer))
        service, may_end, ready = application.service, threading.Event(), asyncio.Event()
        application.on_ready = ready.set

        async with application.lifespan():
            await asyncio.wait_for(ready.wait(), HANG_TIMEOUT_S)
            holding = asyncio.create_task(application._text_threads.run(may_end.wait, caller="other"))
            try:
                async with connected(application.app) as (_reader, writer):
                    writer.write(sent.encode())
                    await asyncio.to_thread(wait_until, lambda: service.num_inflight == 1)
                    writer.close()
                    await asyncio.to_thread(wait_until, lambda: service.num_inflight == 0)
            finally:
                may_end.set()
                await holding

    uvloop.run(run())
