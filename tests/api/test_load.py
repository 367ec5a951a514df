"""Overload, deadlines, disconnecting callers, and a hanging engine."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.api.echo import GOLDEN, POISON, release_steps
from tests.api.server_process import HANG_TIMEOUT_S, ServerProcess

BODY = {"text": GOLDEN, "source": "en", "target": "de", "beam_size": 4}


@pytest.fixture
def server(echo_command: list[str], hang_file: Path) -> Iterator[ServerProcess]:
    """A server with a short queue, whose steps hang while `hang_file` exists."""
    settings: dict[str, object] = {"max_pending_sentences": 4, "max_request_sentences": 4, "max_items": 4}
    settings |= {"stall_limit_s": 1, "num_rows": 16, "log_level": "debug"}
    settings |= {"sentence_cache_bytes": 0, "coalesce": "false"}  # so each request is decoded
    with ServerProcess([*echo_command, f"hang_file={hang_file}"], settings) as process:
        yield process.ready()


def post(server: ServerProcess, **changes: object) -> httpx.Response:
    with server.client() as client:
        return client.post("/v1/translate", json={**BODY, **changes})


def test_a_full_queue_refuses_at_once_and_recovers(server: ServerProcess, hang_file: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        hang_file.touch()
        held = [pool.submit(post, server) for _ in range(4)]
        server.wait_until("transduce_queue_depth", 4)
        for _ in range(10):
            refused = post(server)
            assert refused.status_code == 429
            assert not any(each.done() for each in held), "the rejection must not wait for other requests"
            assert refused.json()["error"]["code"] == "overloaded"
            assert int(refused.headers["retry-after"]) >= 1
        hang_file.unlink()
        assert [each.result().status_code for each in held] == [200] * 4
    assert post(server).status_code == 200
    assert server.metric('transduce_rejected_total{reason="queue_full"}') == 10
    assert (
        server.metric('transduce_http_requests_total{code="429",method="POST",route="/v1/translate"}') == 10
    )
    assert server.metric("transduce_queue_depth") == 0


def test_the_queue_counts_sentences_and_subwords(server: ServerProcess, hang_file: Path) -> None:
    text = "Anna draws. Nobody sees 42 cats!\nThe baker forgets."
    num_tokens = post(server, text=text).json()["usage"]["source_tokens"]
    with ThreadPoolExecutor(1) as pool:
        hang_file.touch()
        held = pool.submit(post, server, text=text)
        server.wait_until("transduce_queue_depth", 3)
        assert server.metric("transduce_queue_tokens") == num_tokens
        hang_file.unlink()
        assert held.result().status_code == 200
    assert server.metric("transduce_queue_tokens") == 0


def test_a_deadline_ends_a_request_even_while_a_step_hangs(server: ServerProcess, hang_file: Path) -> None:
    hang_file.touch()
    started = time.monotonic()
    late = post(server, timeout_ms=200)
    assert time.monotonic() - started >= 0.19, "the deadline is rounded to milliseconds"
    assert late.status_code == 504
    assert late.json()["error"]["code"] == "deadline_exceeded"
    server.wait_until("transduce_queue_depth", 0)
    hang_file.unlink()
    assert post(server).status_code == 200


def test_a_disconnect_frees_the_queue(server: ServerProcess, hang_file: Path) -> None:
    hang_file.touch()
    content = json.dumps(BODY).encode()
    head = b"POST /v1/translate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    connections = [server.connect() for _ in range(4)]
    for connection in connections:
        connection.sendall(head % len(content) + content)
    server.wait_until("transduce_queue_depth", 4)
    for connection in connections:
        connection.close()
    server.wait_until("transduce_queue_depth", 0)
    hang_file.unlink()
    server.wait_until('transduce_rejected_total{reason="cancelled"}', 4)
    answer = post(server)
    assert answer.status_code == 200
    rows = server.metric('transduce_rows_total{use="decoded"}')
    assert answer.json()["usage"]["target_tokens"] > 0
    assert post(server).status_code == 200
    assert server.metric('transduce_rows_total{use="decoded"}') > rows
    assert server.metric('transduce_http_requests_total{code="499",method="POST",route="/v1/translate"}') == 4
    assert server.metric("transduce_inflight_requests") == 0


def test_a_failed_sentence_frees_the_others_of_its_request(server: ServerProcess, hang_file: Path) -> None:
    """Every beam takes all rows. So the last request waits for the rows of the other sentence."""
    other = "Anna sees the river and nobody draws the old tree in the garden."

    def num_steps(expected_status: int, **changes: object) -> float:
        before = server.metric("transduce_decode_steps_total")
        assert post(server, beam_size=16, **changes).status_code == expected_status
        return server.metric("transduce_decode_steps_total") - before

    num_steps_alone = num_steps(200)
    assert num_steps(200, text=other) > 10
    hang_file.touch()
    release_steps(hang_file, 1)
    num_steps_failed = num_steps(500, text=[POISON, other])
    hang_file.unlink()
    assert num_steps_failed + num_steps(200) <= num_steps_alone + 2, (
        "the failed step and one of the other sentence"
    )


def test_an_engine_that_only_fails_ends_the_process(echo_command: list[str]) -> None:
    with ServerProcess(echo_command, {"max_consecutive_failures": 3}) as server:
        server.ready()
        for _ in range(3):
            assert post(server, text=POISON).status_code in {500, 503}
        assert server.ended() == 70
        assert server.errors == ["transduce serve: the engine has died; see the log for the cause\n"]


def test_a_stalled_engine_is_not_live_and_an_idle_engine_is(server: ServerProcess, hang_file: Path) -> None:
    with server.client() as client:
        time.sleep(1.3)  # longer than the stall limit, without work
        assert client.get("/livez").status_code == 200
        hang_file.touch()
        caller = threading.Thread(target=post, args=(server,))
        caller.start()
        deadline = time.monotonic() + HANG_TIMEOUT_S
        while client.get("/livez").status_code == 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert "stalled" in client.get("/readyz").json()["status"]
        hang_file.unlink()
        caller.join()
        assert client.get("/livez").status_code == 200
        assert client.get("/readyz").status_code == 200


def test_metrics_add_up(server: ServerProcess) -> None:
    before = server.metric("transduce_sentences_total")
    for _ in range(3):
        post(server)
    post(server, beam_size=99)
    name = "transduce_http_requests_total"
    assert server.metric(f'{name}{{code="200",method="POST",route="/v1/translate"}}') == 3
    assert server.metric(f'{name}{{code="422",method="POST",route="/v1/translate"}}') == 1
    assert server.metric("transduce_sentences_total") == before + 3
    assert server.metric('transduce_phase_duration_seconds_count{phase="decode"}') == 3
    assert server.metric("transduce_decode_steps_total") > 0
    assert server.metric("transduce_ready") == 1
    assert server.metric('transduce_model_info{model="echo",precision="fp32",version="1"}') == 1
