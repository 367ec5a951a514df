"""When the client's retries end, by a clock that the test sets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

import transduce
from tests.transduce.bad_server import ERROR, TIMEOUT_S, Act, BadServer, answer, bad_server, cut
from transduce.cli import main


@dataclass
class Clock:
    """A time that only `pass_by` moves. waits: the seconds of each sleep."""

    waits: list[float]
    now: float = 1_000.0

    def pass_by(self, seconds: float) -> None:
        self.now += seconds

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.pass_by(seconds)

    async def async_sleep(self, seconds: float) -> None:
        self.sleep(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock([])
    monkeypatch.setattr("transduce.client.retries.monotonic", lambda: clock.now)
    # Replace `sleep` for the clients only: other threads of the process must really sleep.
    monkeypatch.setattr("transduce.client.sync_client.time", SimpleNamespace(sleep=clock.sleep))
    monkeypatch.setattr("transduce.client.async_client.asyncio", SimpleNamespace(sleep=clock.async_sleep))
    return clock


def call(server: BadServer, **options: float) -> None:
    with transduce.Client(server.url, timeout_s=TIMEOUT_S, **options) as client:  # type: ignore[arg-type]
        client.translate("yes", source="en", target="de")


def call_async(server: BadServer, **options: float) -> None:
    async def translate() -> None:
        async with transduce.AsyncClient(server.url, timeout_s=TIMEOUT_S, **options) as client:  # type: ignore[arg-type]
            await client.translate("yes", source="en", target="de")

    asyncio.run(translate())


def stream(server: BadServer, **options: float) -> None:
    with (
        transduce.Client(server.url, timeout_s=TIMEOUT_S, **options) as client,  # type: ignore[arg-type]
        client.stream("yes", source="en", target="de") as events,
    ):
        list(events)


CALLS = [call, call_async, stream]


def slow_answer(clock: Clock, seconds: float, retry_after: str) -> Act:
    """Respond with 503 after this number of seconds of the clock. retry_after: the header Retry-After."""
    respond = answer(503, ERROR, f"Retry-After: {retry_after}\r\n")

    def act(connection: socket.socket) -> None:
        clock.pass_by(seconds)
        respond(connection)

    return act


@pytest.mark.parametrize("send", CALLS)
def test_the_time_of_requests_counts_towards_max_wait(clock: Clock, send: Callable[..., None]) -> None:
    with bad_server(slow_answer(clock, 5, "1")) as server:
        with pytest.raises(transduce.NotReady):
            send(server, max_wait_s=5, max_retries=50)
        assert server.num_connections == 2


@pytest.mark.parametrize("send", CALLS)
def test_the_time_before_the_first_failure_does_not_count_towards_max_wait(
    clock: Clock, send: Callable[..., None]
) -> None:
    with bad_server(slow_answer(clock, 50, "1"), slow_answer(clock, 0, "9")) as server:
        with pytest.raises(transduce.NotReady):
            send(server, max_wait_s=5, max_retries=50)
        assert server.num_connections == 2


@pytest.mark.parametrize("send", CALLS)
def test_the_client_pauses_even_if_retry_after_is_0(clock: Clock, send: Callable[..., None]) -> None:
    with bad_server(answer(429, ERROR, "Retry-After: 0\r\n")) as server:
        with pytest.raises(transduce.Overloaded):
            send(server, max_wait_s=1, max_retries=50)
        assert 8 <= len(clock.waits) <= 10
        assert all(0.1 <= wait <= 0.125 for wait in clock.waits)
        assert server.num_connections == len(clock.waits) + 1


@pytest.mark.parametrize("retry_after", ["inf", "nan", "-1", "Wed, 21 Oct 2026 07:28:00 GMT", "soon"])
def test_the_client_pauses_a_second_if_retry_after_is_no_number_of_seconds(
    clock: Clock, retry_after: str
) -> None:
    with bad_server(answer(503, ERROR, f"Retry-After: {retry_after}\r\n")) as server:
        with pytest.raises(transduce.NotReady) as raised:
            call(server, max_retries=1)
        assert server.num_connections == 2
    assert raised.value.retry_after_s is None
    assert len(clock.waits) == 1
    assert 1 <= clock.waits[0] <= 1.25


@pytest.mark.parametrize("send", CALLS)
def test_the_pause_after_a_second_broken_connection_is_twice_as_long(
    clock: Clock, send: Callable[..., None]
) -> None:
    with bad_server(cut()) as server, pytest.raises(transduce.ConnectionFailed):
        send(server)
    first, second = clock.waits
    assert 0.2 <= first <= 0.25
    assert 0.4 <= second <= 0.5


@pytest.mark.parametrize("send", CALLS)
def test_a_max_wait_of_0_sends_one_request(clock: Clock, send: Callable[..., None]) -> None:
    with bad_server(answer(429, ERROR, "Retry-After: 0\r\n")) as server:
        with pytest.raises(transduce.Overloaded):
            send(server, max_wait_s=0, max_retries=50)
        assert server.num_connections == 1
    assert clock.waits == []


def test_the_command_stops_after_max_wait(
    clock: Clock, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "source.txt"
    file.write_text("one\n")
    arguments = ["--source", "en", "--target", "de", "--max-wait", "10", str(file)]
    with bad_server(answer(429, ERROR, "Retry-After: 4\r\n")) as server:
        assert main(["translate", "--url", server.url, *arguments]) == 1
    assert len(clock.waits) == 2
    assert all(4 <= wait <= 5 for wait in clock.waits)
    assert capsys.readouterr().err.startswith("transduce translate: the server answered 429")
