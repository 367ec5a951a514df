"""Clients send valid and invalid requests, and disconnect. Afterwards the server is in its initial state."""

from __future__ import annotations

import json
import random
import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil

from tests.api.server_process import HANG_TIMEOUT_S, HEADERS, ServerProcess
from tests.e2e.conftest import SERVE_BY_FORK

NUM_CALLERS, NUM_CALLS = 6, 40
TEXT = "The old house is near the station. The new letter is behind the window."
HEAD = (
    b"POST /v1/translate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
)


def body(rng: random.Random, **options: int) -> bytes:
    text = [TEXT] * rng.randint(1, 4)
    request = {"text": text, "source": "en", "target": "de", "beam_size": rng.randint(1, 6), **options}
    return json.dumps(request).encode()


def disconnect(server: ServerProcess, rng: random.Random) -> None:
    """Send a request or a part of one, wait for at most 50 ms, and disconnect, half of the time with a reset."""
    content = body(rng, max_target_length=30)
    with server.connect() as connection:
        whole = HEAD % len(content) + content
        connection.sendall(whole[: rng.choice([len(whole), len(whole), len(whole) // 2, 10])])
        time.sleep(rng.choice([0.0, 0.01, 0.05]))
        if rng.random() < 0.5:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")


def call(server: ServerProcess, seed: int) -> Counter[int]:
    """One client. Counts the status codes of its responses."""
    rng = random.Random(seed)
    codes: Counter[int] = Counter()
    with server.client() as client:
        for _ in range(NUM_CALLS):
            kind = rng.random()
            if kind < 0.3:
                disconnect(server, rng)
                continue
            content = body(rng, max_target_length=8)  # awaited translations are short
            if kind > 0.9:
                content = content.replace(b"}", b', "timeout_ms": 1}')
            elif kind > 0.7:
                content = content[: rng.randint(0, 60)]
            codes[client.post("/v1/translate", content=content, headers=HEADERS).status_code] += 1
    return codes


def post(client: httpx.Client, **options: int) -> httpx.Response:
    return client.post("/v1/translate", json={"text": TEXT, "source": "en", "target": "de", **options})


def translation(client: httpx.Client) -> str:
    answer = post(client)
    assert answer.status_code == 200
    return str(answer.json()["translations"][0]["text"])


def test_disconnects_and_invalid_requests_leave_the_server_in_its_initial_state(tiny_bundle: Path) -> None:
    settings: dict[str, object] = {"bundle": tiny_bundle, "num_threads": 1, "max_pending_sentences": 16}
    settings |= {"max_request_sentences": 16, "max_items": 16, "num_rows": 32}
    settings |= {"sentence_cache_bytes": 0, "coalesce": "false"}  # so each request is decoded
    with ServerProcess(SERVE_BY_FORK, settings) as server, server.ready().client() as client:
        expected = translation(client)
        process = psutil.Process(server.pid)
        num_files, num_threads = process.num_fds(), process.num_threads()
        with ThreadPoolExecutor(NUM_CALLERS) as pool:
            codes = sum(pool.map(lambda seed: call(server, seed), range(NUM_CALLERS)), Counter[int]())
        assert set(codes) <= {200, 400, 422, 429, 504}
        assert codes[200] > 10
        assert codes[400] > 10
        for gauge in ("transduce_inflight_requests", "transduce_queue_depth", "transduce_queue_tokens"):
            server.wait_until(gauge, 0)
        assert translation(client) == expected
        assert server.metric('transduce_worker_rows{model="tiny-en-de",worker="0"}') == 0
        codes[post(client, timeout_ms=1).status_code] += 1  # a busy server may refuse it
        assert codes[504] > 0
        for code, count in codes.items():
            name = f'transduce_http_requests_total{{code="{code}",method="POST",route="/v1/translate"}}'
            ours = 2 if code == 200 else 0
            # The server may respond before it notices a disconnect.
            assert count + ours <= server.metric(name) <= count + ours + NUM_CALLERS * NUM_CALLS
        assert server.metric('transduce_rejected_total{reason="engine"}') == 0
        until = time.monotonic() + HANG_TIMEOUT_S
        while process.num_fds() > num_files + 1:
            assert time.monotonic() < until, "connections are left open"
            time.sleep(0.05)
        assert process.num_threads() <= num_threads + 1
        assert client.get("/livez").status_code == 200
        assert not [line for line in server.log if '"level": "error"' in line]
        server.signal()
        assert server.ended() == 0
