"""The client against misbehaving servers over real sockets: retries, errors, streams."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

import transduce
from tests.house_rules.project import ROOT
from tests.text.growth import check_near_linear
from tests.transduce.bad_server import (
    DELTA,
    ERROR,
    SEGMENT,
    START,
    TIMEOUT_S,
    TRANSLATED,
    Act,
    BadServer,
    answer,
    bad_server,
    cut,
    silent,
    stream,
)
from transduce.client.events import EventReader
from transduce.client.options import TranslateOptions, request_fields

LATER = "Retry-After: 0.01\r\n"


def translated(server: BadServer, **options: float) -> str:
    with transduce.Client(server.url, timeout_s=TIMEOUT_S, **options) as client:  # type: ignore[arg-type]
        return client.translate("yes", source="en", target="de").text


@pytest.mark.parametrize("status", [429, 503])
def test_a_request_is_retried_after_429_and_503(status: int) -> None:
    with bad_server(
        answer(status, ERROR, LATER), answer(status, ERROR, LATER), answer(200, TRANSLATED)
    ) as server:
        assert translated(server) == "ja"
        assert server.num_connections == 3


@pytest.mark.parametrize("act", [cut(), cut(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{")])
def test_a_request_is_retried_after_a_broken_connection(act: Act) -> None:
    with bad_server(act, answer(200, TRANSLATED)) as server:
        assert translated(server) == "ja"
        assert server.num_connections == 2


def test_a_connection_that_always_breaks_is_tried_three_times() -> None:
    with bad_server(cut()) as server:
        with pytest.raises(transduce.ConnectionFailed):
            translated(server)
        assert server.num_connections == 3


@pytest.mark.parametrize(
    ("options", "num_requests"), [({"max_retries": 2}, 3), ({"max_retries": 0}, 1), ({"max_wait_s": 0.05}, 1)]
)
def test_the_number_and_the_time_of_retries_are_limited(options: dict[str, float], num_requests: int) -> None:
    with bad_server(answer(429, ERROR, LATER)) as server:
        with pytest.raises(transduce.Overloaded) as raised:
            translated(server, **options)
        assert server.num_connections == num_requests
    assert (raised.value.status, raised.value.retry_after_s, raised.value.request_id) == (429, 0.01, "r1")
    assert str(raised.value) == "the server answered 429: the queue is full"


def test_a_wait_beyond_max_wait_s_raises_at_once() -> None:
    with bad_server(answer(503, ERROR, "Retry-After: 3600\r\n")) as server:
        with pytest.raises(transduce.NotReady) as raised:
            translated(server, max_wait_s=3599)
        assert server.num_connections == 1
        assert raised.value.retry_after_s == 3600


@pytest.mark.parametrize("status", [400, 404, 413, 422, 500, 504])
def test_other_errors_are_not_retried(status: int) -> None:
    error_body = {
        "error": {"code": "bad", "message": "text[3] is\n blank", "request_id": "r", "field": "text[3]"}
    }
    with bad_server(answer(status, error_body)) as server:
        with pytest.raises(transduce.TransduceError) as raised:
            translated(server)
        assert server.num_connections == 1
    error = raised.value
    assert error.status == status
    assert error.message == "text[3] is blank"
    kinds = {500: transduce.ServerFailed, 504: transduce.TimedOut}
    assert type(error) is kinds.get(status, transduce.RequestRefused)
    if isinstance(error, transduce.RequestRefused):
        assert (error.code, error.field) == ("bad", "text[3]")


@pytest.mark.parametrize("status", [500, 502])
def test_an_answer_that_a_proxy_has_lost_is_asked_for_once_more(status: int) -> None:
    page = b"<html>\nInternal Server Error"
    lost = cut(
        b"HTTP/1.1 %d X\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (status, len(page), page)
    )
    with bad_server(lost, answer(200, TRANSLATED)) as server:
        assert translated(server) == "ja"
        assert server.num_connections == 2
    with bad_server(lost) as server:
        with pytest.raises(transduce.AnswerLost, match="<html> Internal Server Error") as raised:
            translated(server)
        assert server.num_connections == 2
        assert raised.value.status == status
    with bad_server(answer(status, {"message": "of a gateway"}), answer(200, TRANSLATED)) as server:
        assert translated(server) == "ja"


def test_a_timeout_is_not_retried() -> None:
    with bad_server(silent) as server:
        with (
            transduce.Client(server.url, timeout_s=0.3) as client,
            pytest.raises(transduce.TimedOut) as raised,
        ):
            client.translate("yes", source="en", target="de")
        assert server.num_connections == 1
        assert raised.value.status is None


def test_no_server_at_the_address_is_a_failed_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    with (
        transduce.Client(url) as client,
        pytest.raises(transduce.ConnectionFailed, match="no server answers"),
    ):
        client.models()


def test_a_connection_that_is_not_made_in_time_has_failed() -> None:
    """A listener whose queue is full answers no further connection."""
    with socket.socket() as listener, socket.socket() as waiting:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting.connect(listener.getsockname())
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with (
            transduce.Client(url, timeout_s=0.1) as client,
            pytest.raises(transduce.ConnectionFailed, match=r"no server answers at .* within 0\.1 s"),
        ):
            client.models()


@pytest.mark.parametrize(
    "body",
    [[], "ja", {}, {"translations": 5}, {"translations": [{"text": None}]}, {"translations": [{"text": "a"}] * 2},
     {"translations": [{"text": "a", "segments": [{"source": 1}]}]}],
)  # fmt: skip
def test_an_invalid_response_raises_invalid_answer(body: object) -> None:
    with bad_server(answer(200, body)) as server, pytest.raises(transduce.InvalidAnswer):
        translated(server)


def test_an_unknown_option_is_a_type_error() -> None:
    with transduce.Client("http://127.0.0.1:9") as client, pytest.raises(TypeError, match="beamsize"):
        client.translate("yes", source="en", target="de", beamsize=4)  # type: ignore[call-arg]


def events_of(server: BadServer) -> list[transduce.Event]:
    with transduce.Client(server.url) as client, client.stream("yes", source="en", target="de") as events:
        return list(events)


WHOLE = stream(("start", START), ("delta", DELTA), ("new kind", {}), ("replace", DELTA), ("segment", SEGMENT))
DONE = stream(("done", TRANSLATED)).partition(b"\r\n\r\n")[2]


def test_a_stream_of_typed_events() -> None:
    """Events arrive byte by byte, so they are also split within a character."""

    def slowly(connection: socket.socket) -> None:
        for place in range(len(WHOLE + DONE)):
            connection.sendall((WHOLE + DONE)[place : place + 1])

    with bad_server(slowly) as server:
        found = events_of(server)
    assert found[0] == transduce.Started(transduce.ModelName("m", "1"), 1, ((transduce.Span(0, 3),),))
    assert found[1:3] == [transduce.Delta(0, 0, DELTA["text"]), transduce.Replaced(0, 0, DELTA["text"])]  # type: ignore[arg-type]
    assert found[3] == transduce.SegmentDone(0, 0, "ja", "stop", 1, 1)
    assert isinstance(found[4], transduce.Done)
    assert found[4].result.text == "ja"
    assert len(found) == 5


def test_a_stream_is_retried_only_before_its_first_event() -> None:
    nothing = stream()
    with bad_server(answer(429, ERROR, LATER), cut(), cut(nothing), cut(WHOLE + DONE)) as server:
        assert len(events_of(server)) == 5
        assert server.num_connections == 4
    with bad_server(cut(stream(("start", START))), cut(WHOLE + DONE)) as server:
        with transduce.Client(server.url) as client, client.stream("yes", source="en", target="de") as events:
            assert isinstance(next(events), transduce.Started)
            with pytest.raises(transduce.ConnectionFailed, match="ended before"):
                next(events)
        assert server.num_connections == 1


@pytest.mark.parametrize(
    ("code", "expected", "status"),
    [
        ("deadline_exceeded", transduce.TimedOut, 504),
        ("quota_exceeded", transduce.Overloaded, 429),
        ("usage_unavailable", transduce.NotReady, 503),
        ("payload_too_large", transduce.RequestRefused, 413),
        ("source_too_long", transduce.RequestRefused, 422),
    ],
)
def test_an_error_within_a_stream_is_raised_with_its_status(
    code: str, expected: type[transduce.TransduceError], status: int
) -> None:
    """The error has the status that it has in a response without a stream."""
    refused = {"error": {"code": code, "message": "too late", "request_id": "r"}}
    with bad_server(cut(stream(("start", START), ("error", refused)))) as server:
        with pytest.raises(expected, match="too late") as caught:
            events_of(server)
        assert caught.value.status == status
        assert server.num_connections == 1


def test_closing_a_stream_closes_its_connection() -> None:
    servers: list[BadServer] = []

    def begins(connection: socket.socket) -> None:
        connection.sendall(stream(("start", START)))
        servers[0].wait_until_closed(connection)

    with bad_server(begins) as server, transduce.Client(server.url) as client:
        servers.append(server)
        with client.stream("yes", source="en", target="de") as events:
            next(events)
            assert not server.has_seen_end.is_set()
        assert server.has_seen_end.wait(TIMEOUT_S)


def test_cancelling_a_call_closes_its_connection() -> None:
    servers: list[BadServer] = []

    async def cancelled(server: BadServer, *, is_stream: bool) -> None:
        async with transduce.AsyncClient(server.url) as client:

            async def call() -> None:
                if is_stream:
                    async with client.stream("yes", source="en", target="de") as events:
                        async for _ in events:
                            pass
                else:
                    await client.translate("yes", source="en", target="de")

            task = asyncio.create_task(call())
            assert await asyncio.to_thread(server.has_begun.wait, TIMEOUT_S)
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(server.has_seen_end.wait, TIMEOUT_S)

    for is_stream in (False, True):
        begun = stream(("start", START)) if is_stream else b"HTTP/1.1 200 OK\r\n"

        def begins(connection: socket.socket, begun: bytes = begun) -> None:
            connection.sendall(begun)
            servers[-1].wait_until_closed(connection)

        with bad_server(begins) as server:
            servers.append(server)
            asyncio.run(cancelled(server, is_stream=is_stream))
            assert server.num_connections == 1


def test_the_async_client_behaves_like_the_sync_client() -> None:
    async def run(url: str) -> None:
        async with transduce.AsyncClient(url) as client:
            result = await client.translate("yes", source="en", target="de")
            assert result.text == "ja"
            async with client.stream("yes", source="en", target="de") as events:
                found = [event async for event in events]
            assert isinstance(found[-1], transduce.Done)
            with pytest.raises(transduce.RequestRefused):
                await client.detect("yes")

    acts = [
        answer(429, ERROR, LATER),
        cut(),
        answer(200, TRANSLATED),
        cut(),
        cut(WHOLE + DONE),
        answer(422, ERROR),
    ]
    with bad_server(*acts) as server:
        asyncio.run(run(server.url))
        assert server.num_connections == 6


@pytest.mark.seconds
@given(st.lists(st.tuples(st.sampled_from("ab"), st.text(max_size=9)), max_size=5), st.data())
def test_events_are_parsed_wherever_the_chunks_are_split(
    events: list[tuple[str, str]], data: st.DataObject
) -> None:
    end = data.draw(st.sampled_from(["\n", "\r\n", "\r"]))
    raw = "".join(
        f"event: {name}{end}data: {json.dumps({'t': text}, ensure_ascii=False)}{end}{end}"
        for name, text in events
    ).encode()
    reader = EventReader()
    found = []
    while raw:
        size = data.draw(st.integers(1, len(raw)))
        found += list(reader.feed(raw[:size]))
        raw = raw[size:]
    found += list(reader.feed(b"x: \n"))
    expected = [(name, {"t": text}) for name, text in events]
    assert [(name, dict(value)) for name, value in found] == expected


def test_a_long_event_is_parsed_in_near_linear_time() -> None:
    def read(num_chunks: int) -> None:
        reader = EventReader()
        chunks = [b'data: {"t": "', *[b"x" * 1024] * num_chunks, b'"}\n\n']
        ((_, event),) = [each for chunk in chunks for each in reader.feed(chunk)]
        assert len(event["t"]) == 1024 * num_chunks

    check_near_linear(read, 4000)


@pytest.mark.parametrize("module", ["transduce", "transduce.client", "transduce.translate"])
def test_the_client_imports_nothing_of_the_server(module: str) -> None:
    program = (
        f"import {module}, transduce, json, sys; transduce.Client; print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=True, timeout=60
    )
    modules = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert "httpx" in modules
    assert (
        modules & {"app", "model", "export", "numpy", "fastapi", "starlette", "onnxruntime", "pydantic"}
        == set()
    )


def test_importing_the_package_imports_no_http_library() -> None:
    program = "import transduce, sys; assert 'httpx' not in sys.modules; from transduce import *"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=60)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        # mypy reports an ignore that is not needed, so it also tests that the package has no such name.
        _ = transduce.nothing  # type: ignore[attr-defined]


@pytest.mark.seconds
def test_the_package_has_the_names_of_the_client() -> None:
    """Each program runs in a new process, because the first use of a name imports it."""
    programs = (
        "import transduce; assert transduce.client.Client is transduce.Client",
        "import transduce; assert {'Client', 'TranslateOptions'} <= {*dir(transduce)} & {*transduce.__all__}",
        "from transduce import *; assert Client and TranslateOptions",
    )
    for program in programs:
        subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=60)


def test_an_option_that_is_none_is_not_sent() -> None:
    assert request_fields({"beam_size": None, "loop_guard": False}, TranslateOptions) == {"loop_guard": False}


def test_mappings_inside_options_become_json() -> None:
    terms = MappingProxyType({"river": "Strom"})
    fields = request_fields({"glossary": {"terms": terms}, "suppress": ("a", "b")}, TranslateOptions)
    assert json.dumps(fields) == '{"glossary": {"terms": {"river": "Strom"}}, "suppress": ["a", "b"]}'
