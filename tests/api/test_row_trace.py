"""The trace of rows over time: recorded on a real server, and drawn from given spans."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest

from app.api.row_trace import trace_events
from app.decoding.options import DecodingOptions
from app.decoding.search import new_search
from app.engine.row_recorder import RowRecorder, RowSpan
from app.engine.sequence import Sequence, SequenceResult
from app.errors import EngineFailure
from tests.api.echo import GOLDEN
from tests.api.server_process import HANG_TIMEOUT_S, ServerProcess

TOKEN = "an-administrators-token"
BEARER = {"authorization": f"Bearer {TOKEN}"}
NUM_ROWS = 64


@pytest.fixture(scope="module")
def server(echo_command: list[str]) -> Iterator[ServerProcess]:
    settings: dict[str, object] = {"admin_token": TOKEN, "sentence_cache_bytes": 0}
    with ServerProcess([*echo_command, "step_s=0.002"], settings) as process:
        yield process.ready()


def record(client: httpx.Client, seconds: str) -> httpx.Response:
    return client.post("/admin/trace", params={"seconds": seconds}, headers=BEARER)


def test_the_trace_has_the_rows_of_what_was_served(server: ServerProcess) -> None:
    sent: dict[str, dict[str, Any]] = {}  # in order
    with server.client() as admin, server.client() as client, ThreadPoolExecutor(1) as pool:
        recording = pool.submit(record, admin, "2")
        while not recording.done():
            request_id, beam_size = f"request-{len(sent)}", 1 + 2 * (len(sent) % 2)
            answer = client.post(
                "/v1/translate",
                json={"text": GOLDEN, "source": "en", "target": "de", "beam_size": beam_size},
                headers={"x-request-id": request_id},
            )
            sent[request_id] = {"rows": beam_size, "usage": answer.json()["usage"]}
    answer = recording.result(HANG_TIMEOUT_S)
    assert answer.status_code == 200, answer.text
    trace = json.loads(answer.text)
    assert trace["otherData"]["is_complete"]
    rows = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    found = list(
        dict.fromkeys(event["args"]["request_id"] for event in sorted(rows, key=lambda row: row["ts"]))
    )
    assert found
    first = list(sent).index(found[0])
    assert found == list(sent)[first : first + len(found)], "no request is missing or occurs twice"
    assert trace["otherData"]["sentences"] == len(found)
    assert Counter(event["args"]["request_id"] for event in rows) == {
        request_id: sent[request_id]["rows"] for request_id in found
    }
    for event in rows:
        served = sent[event["args"]["request_id"]]
        assert event["args"]["source_tokens"] == served["usage"]["source_tokens"]
        if served["rows"] == 1:
            assert event["args"]["steps"] == served["usage"]["target_tokens"]
        assert 0 <= event["ts"] <= event["ts"] + event["dur"] <= 1e6 * HANG_TIMEOUT_S
    check_rows(trace["traceEvents"])
    (process,) = [event for event in trace["traceEvents"] if event["name"] == "process_name"]
    assert process["args"]["name"] == "worker 0, echo"


def check_rows(events: list[dict[str, Any]]) -> None:
    """Check that no row has two sentences at once, and that the counter is the number of rows with a sentence."""
    rows = [event for event in events if event["ph"] == "X"]
    for one in rows:
        assert one["tid"] < NUM_ROWS
        overlapping = [
            other
            for other in rows
            if (other["pid"], other["tid"]) == (one["pid"], one["tid"])
            and other["ts"] < one["ts"] + one["dur"]
            and one["ts"] < other["ts"] + other["dur"]
        ]
        assert overlapping == [one]
    for counter in (event for event in events if event["ph"] == "C"):
        held = [
            row
            for row in rows
            if row["pid"] == counter["pid"] and row["ts"] <= counter["ts"] < row["ts"] + row["dur"]
        ]
        assert counter["args"]["rows"] == len(held)


@pytest.mark.parametrize("seconds", ["0.01", "301", "nan", "soon"])
def test_an_invalid_duration_is_refused(server: ServerProcess, seconds: str) -> None:
    with server.client() as client:
        answer = record(client, seconds)
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == "seconds"


def test_the_route_needs_the_token(server: ServerProcess) -> None:
    with server.client() as client:
        assert client.post("/admin/trace").status_code == 401


def span(began_at: float, ended_at: float, num_rows: int, worker: int = 0) -> RowSpan:
    return RowSpan(worker, "a", began_at, ended_at, num_rows, 5, 6, 0.001, 0.002)


def test_a_sentence_is_on_the_lowest_free_rows_of_its_worker() -> None:
    spans = [span(10.0, 12.0, 2), span(10.5, 11.0, 1), span(11.5, 13.0, 2), span(9.0, 10.5, 1, worker=1)]
    events = trace_events(spans, {0: "a"}, began_at=10.0)["traceEvents"]
    drawn = [
        (event["pid"], event["tid"], event["ts"], event["dur"]) for event in events if event["ph"] == "X"
    ]
    assert drawn == [
        (0, 0, 0, 2_000_000),
        (0, 1, 0, 2_000_000),
        (0, 2, 500_000, 500_000),
        (0, 2, 1_500_000, 1_500_000),
        (0, 3, 1_500_000, 1_500_000),
        (1, 0, 0, 500_000),
    ]
    check_rows(events)
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert names == ["worker 0, a", "worker 1, replaced"]


def test_a_row_is_free_for_the_sentence_that_begins_when_another_one_ends() -> None:
    spans = [span(10.0, 11.0, 1), span(11.0, 12.0, 1)]
    events = trace_events(spans, {}, began_at=10.0)["traceEvents"]
    assert [event["tid"] for event in events if event["ph"] == "X"] == [0, 0]
    check_rows(events)


def test_a_recorder_is_on_while_anyone_records() -> None:
    recorder, states = RowRecorder(), []
    with recorder.recording():
        with recorder.recording():
            states.append(recorder.is_on)
        states.append(recorder.is_on)
    states.append(recorder.is_on)
    assert states == [True, True, False]


def test_a_recording_has_the_first_sentences_up_to_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.engine.row_recorder.MAX_SPANS", 3)
    monkeypatch.setattr("app.api.row_trace.MAX_SPANS", 3)
    recorder = RowRecorder()
    ended = [ended_sequence(f"request-{number}") for number in range(5)]
    with recorder.recording() as spans:
        recorder.add(0, ended[:2])
        assert trace_events(spans, {}, began_at=0.0)["otherData"] == {"sentences": 2, "is_complete": True}
        recorder.add(0, ended[2:])
    recorder.add(0, ended)
    assert [span.request_id for span in spans] == ["request-0", "request-1", "request-2"]
    assert trace_events(spans, {}, began_at=0.0)["otherData"] == {"sentences": 3, "is_complete": False}


def ended_sequence(request_id: str) -> Sequence:
    """A sentence of two subwords whose beam of 2 held its rows from 7.25 s to 9 s."""
    options = DecodingOptions(beam_size=2, max_target_length=4)
    search = new_search(options, bos_id=1, eos_id=2, source_ids=[5, 2])
    ids = np.array([5, 2], dtype=np.int32)
    result = SequenceResult([], queue_time_s=0.25, encode_time_s=0.5, decode_time_s=1.25, num_steps=3)
    return Sequence(ids, options, request_id, "", 99.0, 7.0, search, outcome=result)


def test_the_times_of_rows_are_those_of_the_result() -> None:
    recorder = RowRecorder()
    failed = ended_sequence("failed")
    failed.outcome = EngineFailure("the forward failed")
    with recorder.recording() as spans:
        recorder.add(4, [ended_sequence("a"), failed])
    assert spans == [RowSpan(4, "a", 7.25, 9.0, 2, 3, 2, 0.25, 0.5)]
