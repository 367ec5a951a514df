"""POST /v1/translate/stream. The events add up to the answer, and a slow reader delays no other client."""

from __future__ import annotations

import asyncio
import json
import queue
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.http.closing import CONNECTION
from app.api.native.stream import CHUNK_BYTES, _EventWriter
from app.errors import RequestCancelled
from app.stores.usage import Spending, Usage
from tests.api.echo import GOLDEN, POISON, release_steps
from tests.api.server_process import HANG_TIMEOUT_S, ServerProcess
from tests.api.test_connections import receive_until

ROUTE = "/v1/translate/stream"
ROWS = 'transduce_rows_total{use="decoded"}'
STALL_S = 0.5
BODY: dict[str, Any] = {"text": GOLDEN, "source": "en", "target": "de", "beam_size": 1}
LONG = "Anna sees the river and nobody draws the old tree in the garden."
Events = list[tuple[str, Any]]


def events_of(content: str) -> Events:
    """The name and data of each event. A comment is ("", None)."""
    found: Events = []
    for block in content.split("\n\n")[:-1]:
        lines = [line for line in block.split("\n") if not line.startswith(":")]
        if not lines:
            found.append(("", None))
            continue
        name, data = lines
        assert name.startswith("event: ")
        assert data.startswith("data: ")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    assert content.endswith("\n\n")
    return found


def streamed(client: httpx.Client, **changes: Any) -> Events:
    answer = client.post(ROUTE, json={**BODY, **changes})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-store, no-transform"
    assert answer.headers["x-accel-buffering"] == "no"
    assert "content-length" not in answer.headers
    return events_of(answer.text)


def displayed_text(events: Events) -> dict[tuple[int, int], str]:
    """The text of a client that applies only `delta` and `replace`."""
    shown: dict[tuple[int, int], str] = {}
    for name, data in events:
        if name in {"delta", "replace"}:
            place = (data["text_index"], data["segment"])
            shown[place] = data["text"] if name == "replace" else shown.get(place, "") + data["text"]
    return shown


def request(**changes: Any) -> bytes:
    """The bytes of a request."""
    content = json.dumps({**BODY, **changes}).encode()
    head = b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % (ROUTE.encode(), len(content)) + content


def send_until_delta(connection: socket.socket, **changes: Any) -> None:
    """Send a request, and wait for its first event `delta`."""
    connection.sendall(request(**changes))
    receive_until(connection, lambda received: b"event: delta" in received)


def raw_done(client: httpx.Client, body: dict[str, Any]) -> bytes:
    """The data of the event `done`."""
    content = client.post(ROUTE, json=body, timeout=60.0).content
    return content.rpartition(b"event: done\ndata: ")[2].removesuffix(b"\n\n")


def check_order(events: Events) -> None:
    """Check that `start` comes first and `done` last, and that every planned segment ends with its event `segment`."""
    names = [name for name, _ in events]
    assert names[0] == "start"
    assert names[-1] == "done"
    assert names.count("start") == names.count("done") == 1
    num_segments = events[0][1]["num_segments"]
    finished = [data for name, data in events if name == "segment"]
    assert [data["num_done"] for data in finished] == list(range(1, num_segments + 1))
    assert {data["num_segments"] for data in finished} <= {num_segments}
    ended: set[tuple[int, int]] = set()
    for name, data in events:
        if name in {"delta", "replace", "segment"}:
            place = (data["text_index"], data["segment"])
            assert place not in ended, "no event may follow the end of a segment"
            if name == "segment":
                ended.add(place)
    planned = events[0][1]["texts"]
    assert ended == {(t, s) for t, text in enumerate(planned) for s in range(len(text["segments"]))}


REQUESTS: dict[str, dict[str, Any]] = {
    "one sentence": {"text": "Where is the station?"},
    "two texts": {"text": ["Where is the station?\n\n It is late. ", "Good night!"]},
    "a beam": {"text": "The train to Vienna leaves at noon. Please wait here.", "beam_size": 4},
    "capitals": {"text": "PLEASE CLOSE THE WINDOW BEFORE YOU LEAVE. Thank you."},
    "verbatim spans": {"text": "She sent 🎉 from 東京 to her friends, and {name} answered."},
    "numbers": {"text": "On 14 May 1998 the 3 ships carried 1,250 tons of grain for $ 7.50 a sack."},
    "no words": {"text": ["...", "1234"]},
    "tokens": {"text": "The water is cold.", "token_scores": True, "num_alternatives": 2, "alignment": True},
    "hypotheses": {"text": "The water is cold.", "beam_size": 4, "num_hypotheses": 3},
    "a prefix": {"text": "Could you help me, please?", "target_prefix": "Kannst du"},
    "sampled": {"text": "The water is cold. It is late.", "sampling": {"seed": 5, "top_k": 4}},
    "guarded": {"text": "no no no no no no no no no no no no no no", "loop_guard": True},
    "html": {"text": "<p>The <b>water</b> is cold &amp; clear.</p><p>It is late.</p>", "format": "html"},
    "xml": {"text": "<a>The <b>water</b> is cold.<c/></a>", "format": "xml"},
    "lines": {"text": "The water\nis cold.", "splitting": "lines"},
    "detected": {"text": "Where is the nearest railway station?", "source": "auto"},
}


@pytest.mark.parametrize("kind", REQUESTS)
def test_the_events_add_up_to_the_answer_in_the_last_event(bundled: httpx.Client, kind: str) -> None:
    body = {**BODY, **REQUESTS[kind]}
    events = streamed(bundled, **REQUESTS[kind])
    check_order(events)
    plain = bundled.post("/v1/translate", json=body)
    assert raw_done(bundled, body) == plain.content, (
        "the last event must equal the plain answer byte for byte"
    )
    answer = events[-1][1]
    assert answer == plain.json()
    finished = {(data["text_index"], data["segment"]): data for name, data in events if name == "segment"}
    shown = displayed_text(events)
    for index, translation in enumerate(answer["translations"]):
        planned = events[0][1]["texts"][index]["segments"]
        assert planned == [segment["source"] for segment in translation["segments"]]
        for place, segment in enumerate(translation["segments"]):
            span = segment["target"]
            text = translation["text"][span["start"] : span["end"]]
            assert finished[index, place]["text"] == text
            assert finished[index, place]["finish_reason"] == segment["finish_reason"]
            if body["beam_size"] == 1:
                assert shown[index, place] == text
    if body["beam_size"] > 1:
        assert not shown, "a beam's best hypothesis is known only at its end"


REPLACED: dict[str, tuple[str, str]] = {
    "numbers_carried": ("0360 5251134 or 041 651212 or 0313 4883366", "4883366"),
    "placeholder_aligned": (
        "Copy {a} into {b}, {c} into {d}, {e} into {f} and {g} into {h}.",
        "{h}",
    ),
    "length_split": ("ha" + " ha" * 59, "ha ha ha"),
}


@pytest.mark.parametrize("reason", REPLACED)
def test_what_the_model_gets_wrong_is_replaced(bundled: httpx.Client, reason: str) -> None:
    """The stream shows the first attempt, and replaces it after a retry. The client ends with the final text."""
    text, kept = REPLACED[reason]
    events = streamed(bundled, text=text)
    check_order(events)
    names = [name for name, _ in events]
    assert names.count("replace") == 1
    (replacement,) = [data for name, data in events if name == "replace"]
    answer = events[-1][1]["translations"][0]
    assert reason in answer["segments"][0]["fallbacks"]
    before = displayed_text(events[: names.index("replace")])[0, 0]
    assert before != replacement["text"], "the deltas before the replacement must differ"
    assert displayed_text(events)[0, 0] == answer["text"]
    assert kept in answer["text"]


def test_tokens_are_shown_one_after_another(echo_command: list[str], hang_file: Path) -> None:
    """Events are sent as they occur: the next step starts after the client has read the previous event."""
    with (
        ServerProcess([*echo_command, f"hang_file={hang_file}"]) as server,
        server.ready().client() as client,
    ):
        hang_file.touch()
        release_steps(hang_file, 2)  # a word is shown when the next subword cannot continue it
        num_deltas = 0
        with client.stream("POST", ROUTE, json=BODY) as answer:
            for line in answer.iter_lines():
                if line == "event: delta":
                    num_deltas += 1
                    release_steps(hang_file, 1)
                if line == "event: segment":
                    break
    assert num_deltas > 5


def test_a_refusal_before_the_stream_begins_is_an_ordinary_error(client: httpx.Client) -> None:
    for changes, status, code in (
        ({"beam_size": 99}, 422, "invalid_request"),
        ({"target": "xx"}, 422, "unsupported_languages"),
        ({"text": POISON}, 500, "engine_failure"),
        ({"stream": True}, 422, "invalid_request"),
    ):
        answer = client.post(ROUTE, json={**BODY, **changes})
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        assert answer.headers["content-type"] == "application/json"
    assert client.post(ROUTE, content=b"{", headers={"content-type": "application/json"}).status_code == 400
    assert client.post(ROUTE, json=BODY, headers={"content-type": "text/plain"}).status_code == 415
    assert client.get(ROUTE).status_code == 405


@pytest.fixture
def hanging(echo_command: list[str], hang_file: Path) -> Iterator[ServerProcess]:
    """A server whose steps hang while `hang_file` exists, with a queue of two sentences and a comment each 0.2 s."""
    settings: dict[str, object] = {"max_pending_sentences": 2, "max_request_sentences": 2, "max_items": 2}
    settings |= {"stream_keep_alive_s": 0.2, "sentence_cache_bytes": 0, "num_rows": 16}
    with ServerProcess([*echo_command, f"hang_file={hang_file}"], settings) as process:
        yield process.ready()


def test_a_deadline_before_the_stream_begins_is_an_ordinary_error(
    hanging: ServerProcess, hang_file: Path
) -> None:
    hang_file.touch()
    with hanging.client() as client:
        answer = client.post(ROUTE, json={**BODY, "timeout_ms": 20})
        hang_file.unlink()
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "deadline_exceeded")
    assert answer.headers["content-type"] == "application/json"


def test_a_full_queue_is_429_and_silence_is_filled_with_comments(
    hanging: ServerProcess, hang_file: Path
) -> None:
    comments: queue.Queue[str] = queue.Queue()

    def listen(client: httpx.Client) -> Events:
        content = ""
        with client.stream("POST", ROUTE, json={**BODY, "text": [GOLDEN, LONG]}) as answer:
            for line in answer.iter_lines():
                content += f"{line}\n"
                if line.startswith(":"):
                    comments.put(line)
        return events_of(content)

    hang_file.touch()
    with ThreadPoolExecutor(1) as pool, hanging.client() as client:
        held = pool.submit(listen, client)
        hanging.wait_until("transduce_queue_depth", 2)
        with hanging.client() as other:
            refused = other.post(ROUTE, json=BODY)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        for _ in range(2):
            comments.get(timeout=HANG_TIMEOUT_S)
        hang_file.unlink()
        events = held.result()
    assert events[0][0] == "start"
    assert [name for name, _ in events].count("") >= 2
    check_order([each for each in events if each[0]])
    hanging.wait_until("transduce_inflight_requests", 0)


def test_an_error_after_the_start_of_a_stream_is_an_event(echo_command: list[str], hang_file: Path) -> None:
    command = [*echo_command, f"hang_file={hang_file}"]
    with ServerProcess(command) as slow, slow.ready().client() as client:
        for timeout_ms in (400, 4000, 40_000):  # until the time is enough for three steps on this machine
            release_steps(hang_file, 3)
            answer = client.post(ROUTE, json={**BODY, "text": LONG, "timeout_ms": timeout_ms})
            if "event: delta" in answer.text:
                break
        hang_file.unlink()
        events = events_of(answer.text)
        name, data = events[-1]
        assert name == "error"
        assert data["error"]["code"] == "deadline_exceeded"
        assert "request_id" in data["error"]
        assert "delta" in {name for name, _ in events}
        assert not {"done", "segment"} & {name for name, _ in events}
        slow.wait_until('transduce_stream_events_total{event="error"}', 1)
        slow.wait_until("transduce_inflight_requests", 0)
        assert not any("without completing" in line for line in slow.log)
        # The connection and the server still work.
        check_order(streamed(client, text=GOLDEN))
        assert slow.metric('transduce_rejected_total{reason="deadline"}') >= 1


def test_a_disconnect_frees_the_rows_within_two_steps(echo_command: list[str], hang_file: Path) -> None:
    settings: dict[str, object] = {"sentence_cache_bytes": 0}
    with ServerProcess([*echo_command, f"hang_file={hang_file}"], settings) as server:
        server.ready()
        finished = 'transduce_engine_sentences_total{outcome="finished"}'
        num_finished = server.metric(finished)  # by the golden check and the warm-up
        with server.client() as client:
            rows = server.metric(ROWS)
            streamed(client)
            num_rows_of_golden = server.metric(ROWS) - rows
            rows = server.metric(ROWS)
        hang_file.touch()
        release_steps(hang_file, 3)
        with server.connect() as connection:
            send_until_delta(connection, text=LONG)
        server.wait_until("transduce_inflight_requests", 0)
        server.wait_until("transduce_queue_depth", 0)
        hang_file.unlink()
        with server.client() as client:
            streamed(client)  # if the cancelled request still ran, it would run steps meanwhile
        assert server.metric(ROWS) - rows - num_rows_of_golden <= 3 + 2  # 3 steps before the disconnect
        server.wait_until('transduce_rejected_total{reason="cancelled"}', 1)
        assert server.metric(finished) == num_finished + 2


def test_a_disconnect_does_not_cancel_an_equal_request(echo_command: list[str], hang_file: Path) -> None:
    command = [*echo_command, f"hang_file={hang_file}"]
    with ServerProcess(command) as server, ThreadPoolExecutor(1) as pool:
        server.ready()
        hang_file.touch()
        release_steps(hang_file, 3)
        with server.client() as client, server.connect() as connection:
            send_until_delta(connection, text=LONG)
            other = pool.submit(streamed, client, text=LONG)
            server.wait_until("transduce_coalesced_sentences_total", 1)
            connection.close()
            server.wait_until('transduce_rejected_total{reason="cancelled"}', 1)
            hang_file.unlink()
            events = other.result()
        check_order(events)
        answer = events[-1][1]["translations"][0]["text"]
        assert displayed_text(events)[0, 0] == answer, (
            "a late subscriber gets the text from its first token on"
        )


def is_cut_off(connection: socket.socket) -> bool:
    """Whether the stream ends before its last event."""
    received = b""
    try:
        while part := connection.recv(65_536):
            received += part
    except ConnectionError:
        pass
    return not received.endswith(b"0\r\n\r\n")


@pytest.mark.slow
def test_a_stopped_reader_delays_no_request_and_is_cut_off(echo_command: list[str]) -> None:
    """The server closes the connections of readers that have stopped for `reader_stall_s`."""
    settings: dict[str, object] = {"reader_stall_s": STALL_S, "max_item_characters": 50_000, "num_rows": 64}
    settings |= {"max_token_lists": 100_000, "max_timeout_s": 60}
    # 250 equal sentences. Only one is decoded, with 16 alternatives a token. The kernel cannot buffer the answer.
    text = " ".join([LONG] * 250)
    fields = {"text": text, "num_alternatives": 16, "timeout_ms": 60_000}
    with ServerProcess(echo_command, settings) as server, server.ready().client() as client:
        assert len(raw_done(client, {**BODY, **fields})) > 4_000_000
        connections = []
        for _ in range(2):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", server.port))
            connection.sendall(request(**fields))
            connections.append(connection)
        assert streamed(client)[-1][0] == "done", "other clients must be served meanwhile"
        server.wait_until("transduce_http_stalled_readers_total", 2, timeout_s=60)
        server.wait_until("transduce_inflight_requests", 0)
        server.wait_until("transduce_queue_depth", 0)
        for connection in connections:
            connection.settimeout(5)
            assert is_cut_off(connection)
            connection.close()
        server.wait_until('transduce_rejected_total{reason="cancelled"}', 2)


def test_a_stopped_reader_is_sent_one_chunk() -> None:
    """The server hands over one chunk of a long event. It does not copy the rest into its buffers."""
    chunk_sizes: list[int] = []

    async def record(message: dict[str, Any]) -> None:
        chunk_sizes.append(len(message["body"]))

    scope = {"extensions": {CONNECTION: {"has_stalled": lambda: bool(chunk_sizes)}}}
    spending = Spending(Usage(), "", 0, [])
    writer = _EventWriter(scope, record, spending)  # type: ignore[arg-type]
    with pytest.raises(RequestCancelled):
        asyncio.run(writer.send(b"x" * (20 * CHUNK_BYTES), is_last=True))
    assert chunk_sizes == [65_536]


def test_a_cached_sentence_is_shown_at_once(bundled: httpx.Client) -> None:
    body = {"text": "The second time this is known already."}
    first, second = (streamed(bundled, **body) for _ in range(2))
    assert first[-1] == second[-1]
    assert displayed_text(first) == displayed_text(second)
    assert [name for name, _ in second] == ["start", "delta", "segment", "done"]
