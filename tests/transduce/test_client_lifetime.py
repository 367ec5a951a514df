"""Cancelled calls of the client, many calls at once, calls after a fork, and calls whose client is closed."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

import transduce
from tests.house_rules.project import ROOT
from tests.transduce.bad_server import TIMEOUT_S, BadServer, answer, bad_server, silent
from tests.transduce.echo_server import echo_server
from transduce.client.connections import own_task

LANGUAGES: dict[str, Any] = {"source": "en", "target": "de"}
NUM_STREAMS = 120


def connections_in_use(client: transduce.AsyncClient) -> list[object]:
    pool = client._connections.http._transport._pool  # type: ignore[attr-defined]
    return [each for each in pool.connections if not each.is_idle()]


@pytest.mark.seconds
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_cancelled_call_leaves_no_connection_in_use(
    is_stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever a call waits: each round cancels its calls one step of the event loop later than the round before it."""
    monkeypatch.setattr("transduce.client.connections.MAX_CALLS", 2)

    async def run(url: str) -> None:
        async with transduce.AsyncClient(url, timeout_s=TIMEOUT_S) as client:

            async def call() -> None:
                if is_stream:
                    async with client.stream("yes", **LANGUAGES) as events:
                        async for _ in events:
                            pass
                else:
                    await client.translate("yes", **LANGUAGES)

            for num_steps in range(60):
                tasks = [asyncio.create_task(call()) for _ in range(4)]
                for _ in range(num_steps):
                    await asyncio.sleep(0)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                assert connections_in_use(client) == [], num_steps
            result = await asyncio.wait_for(client.translate("yes", **LANGUAGES), TIMEOUT_S)
            assert result.text == "yes"

    with echo_server() as server:
        asyncio.run(run(server.url))


def test_a_call_that_is_cancelled_twice_leaves_no_connection_in_use() -> None:
    async def run(url: str) -> None:
        async with transduce.AsyncClient(url, timeout_s=TIMEOUT_S) as client:
            events = client.stream("yes", **LANGUAGES)
            assert isinstance(await anext(events), transduce.Started)
            task = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            for _ in range(100):
                await asyncio.sleep(0)
            assert connections_in_use(client) == []

    with echo_server() as server:
        asyncio.run(run(server.url))


def test_an_error_in_own_task_is_not_logged_if_nobody_reads_it() -> None:
    logged: list[object] = []

    async def fail() -> None:
        raise ValueError

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: logged.append(context))
        async with own_task(fail):
            await asyncio.sleep(0.01)
        gc.collect()

    asyncio.run(run())
    assert logged == []


def test_a_call_may_wait_for_earlier_calls_longer_than_timeout_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transduce.client.connections.MAX_CALLS", 2)
    texts = [str(number) for number in range(8)]

    async def run(url: str) -> None:
        async with transduce.AsyncClient(url, timeout_s=2.0, max_retries=0) as client:
            start = time.monotonic()
            results = await asyncio.gather(*(client.translate(text, **LANGUAGES) for text in texts))
            assert [result.text for result in results] == texts
            assert time.monotonic() - start > 2.0

    with echo_server() as server:
        server.pause_s = 0.1
        asyncio.run(run(server.url))
        assert server.max_at_once == 2


@pytest.mark.seconds
def test_open_streams_keep_no_call_waiting() -> None:
    async def run(url: str) -> None:
        async with transduce.AsyncClient(url, timeout_s=TIMEOUT_S) as client:
            streams = [client.stream("yes", **LANGUAGES) for _ in range(NUM_STREAMS)]
            for events in streams:
                assert isinstance(await anext(events), transduce.Started)
            assert (await client.translate("yes", **LANGUAGES)).text == "yes"
            for events in streams:
                await events.close()

    with echo_server() as server:
        with transduce.Client(server.url, timeout_s=TIMEOUT_S) as client:
            streams = [client.stream("yes", **LANGUAGES) for _ in range(NUM_STREAMS)]
            for events in streams:
                assert isinstance(next(events), transduce.Started)
            assert client.translate("yes", **LANGUAGES).text == "yes"
            for events in streams:
                events.close()
        asyncio.run(run(server.url))


FORK = """
import asyncio, os, sys
import transduce

NUM_CALLS = 100

def work(client, name):
    for number in range(NUM_CALLS):
        text = f"{name} {number}"
        assert client.translate(text, source="en", target="de").text == text

async def work_async(client, name):
    for number in range(NUM_CALLS):
        text = f"{name} {number}"
        assert (await client.translate(text, source="en", target="de")).text == text

def check_closed(client):
    try:
        client.models()
    except transduce.ConnectionFailed as error:
        assert str(error) == "the client is closed"
    else:
        raise AssertionError("a closed client has sent a request")

def fork(work):
    for name in "ab":
        if os.fork() == 0:
            try:
                work(name)
                os._exit(0)
            finally:
                os._exit(1)

def main(url):
    client = transduce.Client(url, timeout_s=20, max_retries=0)
    client.translate("first", source="en", target="de")
    fork(lambda name: work(client, name))
    work(client, "parent")
    client.close()
    fork(lambda _name: check_closed(client))

async def main_async(url):
    client = transduce.AsyncClient(url, timeout_s=20, max_retries=0)
    await client.translate("first", source="en", target="de")
    fork(lambda name: asyncio.run(work_async(client, name)))
    await work_async(client, "parent")

if sys.argv[1] == "async":
    asyncio.run(main_async(sys.argv[2]))
else:
    main(sys.argv[2])
sys.exit(max(os.wait()[1] for _ in range(2 if sys.argv[1] == "async" else 4)) > 0)
"""


@pytest.mark.seconds
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_forked_process_has_its_own_connections(kind: str) -> None:
    with echo_server() as server:
        done = subprocess.run(
            [sys.executable, "-c", FORK, kind, server.url],
            cwd=ROOT,
            check=False,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
    assert done.returncode == 0, done.stderr


def test_a_call_ends_if_its_client_is_closed_during_the_pause_before_a_retry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each call sends one request and pauses once: a closed client does not try again."""
    act = answer(503, {"error": {"message": "later"}}, "Retry-After: 1\r\n")
    num_pauses = 0

    def call(url: str, is_stream: bool) -> None:
        client = transduce.Client(url, timeout_s=TIMEOUT_S)

        def close(_seconds: float) -> None:
            nonlocal num_pauses
            num_pauses += 1
            client.close()

        monkeypatch.setattr("transduce.client.sync_client.time", SimpleNamespace(sleep=close))
        next(client.stream("yes", **LANGUAGES)) if is_stream else client.translate("yes", **LANGUAGES)

    async def call_async(url: str, is_stream: bool) -> None:
        client = transduce.AsyncClient(url, timeout_s=TIMEOUT_S)

        async def close(_seconds: float) -> None:
            nonlocal num_pauses
            num_pauses += 1
            await client.close()

        monkeypatch.setattr("transduce.client.async_client.asyncio", SimpleNamespace(sleep=close))
        await (
            anext(client.stream("yes", **LANGUAGES)) if is_stream else client.translate("yes", **LANGUAGES)
        )

    with bad_server(act) as server:
        for is_stream in (False, True):
            with pytest.raises(transduce.ConnectionFailed, match="the client is closed"):
                call(server.url, is_stream)
            with pytest.raises(transduce.ConnectionFailed, match="the client is closed"):
                asyncio.run(call_async(server.url, is_stream))
        assert server.num_connections == num_pauses == 4


def test_a_call_in_progress_ends_when_its_asyncio_client_is_closed() -> None:
    async def run(server: BadServer) -> None:
        client = transduce.AsyncClient(server.url, timeout_s=TIMEOUT_S)
        call = asyncio.create_task(client.translate("yes", **LANGUAGES))
        assert await asyncio.to_thread(server.has_begun.wait, TIMEOUT_S)
        await client.close()
        with pytest.raises(transduce.ConnectionFailed):
            await call

    with bad_server(silent) as server:
        asyncio.run(run(server))
        assert server.num_connections == 1


def test_a_closed_client_sends_nothing() -> None:
    async def run(url: str) -> None:
        client = transduce.AsyncClient(url)
        await client.close()
        for call in (client.models(), anext(client.stream("yes", **LANGUAGES))):
            with pytest.raises(transduce.ConnectionFailed, match="the client is closed"):
                await call

    with bad_server(answer(200, {})) as server:
        client = transduce.Client(server.url)
        client.close()
        with pytest.raises(transduce.ConnectionFailed, match="the client is closed"):
            client.models()
        with pytest.raises(transduce.ConnectionFailed, match="the client is closed"):
            next(client.stream("yes", **LANGUAGES))
        asyncio.run(run(server.url))
        assert server.num_connections == 0
