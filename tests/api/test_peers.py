"""What the tests of comparable servers check, against this server. The name of each test contains the original's.

- `test_ray_*`: Ray Serve, python/ray/serve/tests/test_backpressure.py and test_cancellation.py
- `test_triton_*`: NVIDIA Triton, qa/L0_model_queue, L0_lifecycle, L0_http, L0_long_running_stress
- `test_vllm_*`: vLLM, test_shutdown.py and test_basic.py

Other files have the counterparts of further tests: shutdown while loading (test_lifecycle), reloads that fail
(e2e/test_reload), priorities (test_fair_shares), fuzzed requests (fuzz), long stress (faults/test_chaos), forged log
lines (observability/test_logging), a dead engine (test_load), and no child process at the end
(test_workers_of_the_model).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import httpx
import psutil
import pytest

from tests.api.echo import GOLDEN, release_steps
from tests.api.server_process import HANG_TIMEOUT_S, ServerProcess

BODY = {"text": GOLDEN, "source": "en", "target": "de"}
HEAD = b"POST /v1/translate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
DEPTH = "transduce_queue_depth"
CANCELLED = 'transduce_rejected_total{reason="cancelled"}'
ANSWERED = 'transduce_http_requests_total{code="200",method="POST",route="/v1/translate"}'
ROWS = 'transduce_rows_total{use="decoded"}'
ROWS_IN_USE = 'transduce_worker_rows{model="echo",worker="0"}'
NO_CACHE: dict[str, object] = {"sentence_cache_bytes": 0, "coalesce": "false"}
MAX_BODY_BYTES = 100_000
# All rows belong to one sentence, whose beam has four.
ONE_AT_A_TIME: dict[str, object] = {"num_rows": 4, "max_beam_size": 4, "max_num_hypotheses": 4}
# Bytes by which the memory may grow while requests are refused. The bound is from the test of Triton.
MAX_GROWTH_BYTES = 1 << 20

Start = Callable[..., ServerProcess]


@pytest.fixture
def gate(hang_file: Path) -> Iterator[Path]:
    """The file that lets no step return while it exists. It does not exist at first or at the end."""
    yield hang_file
    hang_file.unlink(missing_ok=True)


@pytest.fixture
def start(echo_command: list[str], gate: Path) -> Iterator[Start]:
    """Starts servers behind the gate, with these settings."""
    started: list[ServerProcess] = []

    def start(**settings: object) -> ServerProcess:
        server = ServerProcess([*echo_command, f"hang_file={gate}"], {**NO_CACHE, **settings})
        server.__enter__()
        started.append(server)
        return server.ready()

    yield start
    for server in started:
        server.__exit__(None, None, None)


def post(server: ServerProcess, **changes: object) -> httpx.Response:
    with server.client() as client:
        return client.post("/v1/translate", json={**BODY, **changes})


def send_to_gate(
    server: ServerProcess, pool: ThreadPoolExecutor, number: int
) -> list[Future[httpx.Response]]:
    """Send requests that wait at the gate, and wait until they are accepted."""
    futures = [pool.submit(post, server) for _ in range(number)]
    server.wait_until(DEPTH, number)
    return futures


def request(**changes: object) -> bytes:
    """The bytes of a request."""
    content = json.dumps({**BODY, **changes}).encode()
    return HEAD + b"content-length: %d\r\n\r\n" % len(content) + content


def run_together(server: ServerProcess, gate: Path, *, num_rows: int) -> None:
    """Let steps return until all requests that wait have rows, `num_rows` in all.

    A short request is sent last. When it is answered, the others have rows, and the metric counts the rows.
    """
    depth = server.metric(DEPTH)
    with ThreadPoolExecutor(1) as pool:
        short = pool.submit(post, server, text="Anna.", beam_size=1)
        server.wait_until(DEPTH, depth + 1)
        while not short.done():
            release_steps(gate, 1)
            time.sleep(0.05)
    assert short.result().status_code == 200
    assert server.metric(ROWS_IN_USE) == num_rows


def send_and_leave(server: ServerProcess, **changes: object) -> None:
    """Send a request, wait until it is accepted, and close the connection."""
    depth = server.metric(DEPTH)
    with server.connect() as connection:
        connection.sendall(request(**changes))
        server.wait_until(DEPTH, depth + 1)


def test_ray_http_backpressure(start: Start, gate: Path) -> None:
    """Two requests fill the queue. The next ten are refused at once, with Retry-After."""
    server = start(max_pending_sentences=2, max_request_sentences=2, max_items=2)
    gate.touch()
    with ThreadPoolExecutor(2) as pool:
        accepted = send_to_gate(server, pool, 2)
        for _ in range(10):
            refused = post(server)
            assert refused.status_code == 429
            assert int(refused.headers["retry-after"]) >= 1
        assert not any(future.done() for future in accepted)
        gate.unlink()
        assert [future.result().status_code for future in accepted] == [200, 200]


def test_triton_max_queue_size(start: Start, gate: Path) -> None:
    """One request runs, and the queue takes eight: of ten more that come together, exactly two are refused."""
    server = start(max_pending_sentences=9, max_request_sentences=2, max_items=2)
    gate.touch()
    with ThreadPoolExecutor(11) as pool:
        futures = send_to_gate(server, pool, 1) + [pool.submit(post, server) for _ in range(10)]
        server.wait_until('transduce_rejected_total{reason="queue_full"}', 2)
        server.wait_until(DEPTH, 9)
        gate.unlink()
        statuses = sorted(future.result().status_code for future in futures)
    assert statuses == [200] * 9 + [429] * 2


def test_triton_policy_reject(start: Start, gate: Path) -> None:
    """A request whose default time runs out in the queue is dropped. The requests before and behind it are answered."""
    server = start(**ONE_AT_A_TIME, default_timeout_s=0.3)
    rows_before = server.metric(ROWS)
    assert post(server, timeout_ms=60_000).status_code == 200
    rows_each = server.metric(ROWS) - rows_before
    gate.touch()
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(post, server, timeout_ms=60_000)
        server.wait_until(DEPTH, 1)
        late = post(server)
        assert late.status_code == 504
        assert late.json()["error"]["code"] == "deadline_exceeded"
        behind = pool.submit(post, server, timeout_ms=60_000)
        server.wait_until(DEPTH, 2)
        gate.unlink()
        assert running.result().status_code == behind.result().status_code == 200
    assert server.metric(ROWS) - rows_before == 3 * rows_each, "the late request must use no row"


def test_triton_timeout_override(start: Start, gate: Path) -> None:
    """A request's own time replaces the default, up or down."""
    server = start(default_timeout_s=0.5)
    gate.touch()
    with ThreadPoolExecutor(1) as pool:
        longer = pool.submit(post, server, timeout_ms=60_000)
        server.wait_until(DEPTH, 1)
        began = time.monotonic()
        assert post(server, timeout_ms=50).status_code == 504
        shorter_s = time.monotonic() - began
        assert post(server).status_code == 504
        assert shorter_s < time.monotonic() - began - shorter_s, "50 ms are less than the default of 500"
        gate.unlink()
        assert longer.result().status_code == 200


def test_ray_cancel_on_http_client_disconnect_during_execution(start: Start, gate: Path) -> None:
    server = start()
    gate.touch()
    with server.connect() as connection:
        connection.sendall(request())
        server.wait_until(DEPTH, 1)
        run_together(server, gate, num_rows=4)
    server.wait_until(DEPTH, 0)
    gate.unlink()
    server.wait_until(CANCELLED, 1)
    assert post(server).status_code == 200
    assert server.metric(ROWS_IN_USE) == 0


def test_ray_cancel_on_http_client_disconnect_during_assignment(start: Start, gate: Path) -> None:
    """A request whose client leaves while it waits for rows never gets any."""
    server = start(**ONE_AT_A_TIME)
    rows_before = server.metric(ROWS)
    assert post(server, timeout_ms=60_000).status_code == 200
    rows_each = server.metric(ROWS) - rows_before
    gate.touch()
    with ThreadPoolExecutor(1) as pool:
        running = send_to_gate(server, pool, 1)
        send_and_leave(server)
        server.wait_until(DEPTH, 1)
        gate.unlink()
        assert running[0].result().status_code == 200
    assert post(server).status_code == 200
    assert server.metric(ROWS) - rows_before == 3 * rows_each


def test_ray_only_relevant_task_is_cancelled(start: Start, gate: Path) -> None:
    """Two requests share a batch, and one client leaves. The other gets the same translations as it does alone."""
    server = start()
    alone = post(server, beam_size=4).json()["translations"]
    gate.touch()
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(post, server, beam_size=4)
        server.wait_until(DEPTH, 1)
        with server.connect() as connection:
            connection.sendall(request(text="Nobody sees the cats.", beam_size=4))
            server.wait_until(DEPTH, 2)
            run_together(server, gate, num_rows=2 * 4)
        server.wait_until(DEPTH, 1)
        gate.unlink()
        assert other.result().json()["translations"] == alone


def test_triton_close_connection_during_streaming(start: Start, gate: Path) -> None:
    server = start()
    gate.touch()
    release_steps(gate, 2)
    with (
        server.client() as client,
        client.stream("POST", "/v1/translate/stream", json={**BODY, "beam_size": 1}) as answer,
    ):
        assert "event: delta" in answer.iter_lines()
    server.wait_until(DEPTH, 0)
    gate.unlink()
    server.wait_until("transduce_inflight_requests", 0)
    assert post(server).status_code == 200


def test_triton_http_request_many_chunks(start: Start) -> None:
    """A hundred bodies of small chunks, over the limit, are refused. The memory grows by at most MAX_GROWTH_BYTES."""
    server = start(max_body_bytes=MAX_BODY_BYTES)
    chunks = b"".join(b"10\r\n" + b" " * 16 + b"\r\n" for _ in range(MAX_BODY_BYTES // 16 + 64))

    def refused() -> None:
        with server.connect() as connection:
            connection.sendall(HEAD + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
            assert connection.recv(64).split(b" ")[1] == b"413"

    memory = psutil.Process(server.pid).memory_info
    for _ in range(20):
        refused()
    before = memory().rss
    for _ in range(100):
        refused()
    assert memory().rss - before <= MAX_GROWTH_BYTES


CRASHING_CLIENT = """
import http.client, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
connection.request("POST", "/v1/translate", sys.argv[2], {"content-type": "application/json"})
print("sent", flush=True)
connection.getresponse()
"""


def test_triton_crashing_client(start: Start, gate: Path) -> None:
    """Clients are killed while their requests run. The server frees their rows and stays live."""
    server = start()
    gate.touch()
    command = [sys.executable, "-S", "-c", CRASHING_CLIENT, str(server.port), json.dumps(BODY)]
    clients = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(4)]
    server.wait_until(DEPTH, 4)
    run_together(server, gate, num_rows=4 * 4)
    for client in clients:
        os.kill(client.pid, signal.SIGKILL)
        client.communicate()
    server.wait_until(DEPTH, 0)
    gate.unlink()
    server.wait_until(CANCELLED, 4)
    assert post(server).status_code == 200
    assert server.metric(ROWS_IN_USE) == 0


def test_vllm_request_cancellation(start: Start, gate: Path) -> None:
    """Two hundred long requests whose clients give up. A new request is then answered within five seconds."""
    server = start()
    gate.touch()
    content = request(text=[GOLDEN] * 10, beam_size=4, min_target_length=60)
    connections = [server.connect() for _ in range(200)]
    for connection in connections:
        connection.sendall(content)
    server.wait_until("transduce_inflight_requests", 200)
    for connection in connections:
        connection.close()
    server.wait_until(CANCELLED, 200)
    gate.unlink()
    server.wait_until("transduce_inflight_requests", 0)
    with server.client() as client:
        assert client.post("/v1/translate", json=BODY, timeout=5.0).status_code == 200
    assert server.metric(DEPTH) == 0


def test_triton_shutdown_dynamic(start: Start, gate: Path) -> None:
    """Accepted requests end with their answers after the signal; new ones are refused."""
    server = start()
    gate.touch()
    with ThreadPoolExecutor(4) as pool, server.client() as client:
        client.get("/livez")  # opens the connection
        accepted = send_to_gate(server, pool, 4)
        server.signal()
        server.wait_for("draining")
        assert client.post("/v1/translate", json=BODY).status_code == 503
        gate.unlink()
        assert [future.result().status_code for future in accepted] == [200] * 4
    assert server.ended() == 0


def test_triton_shutdown_with_live_connection(start: Start) -> None:
    """A connection without a request does not delay the end, and neither does a request whose body never arrives."""
    server = start(drain_timeout_s=1000, read_timeout_s=1000)
    with server.client() as client, server.connect() as silent, server.connect() as unfinished:
        client.get("/livez")
        unfinished.sendall(HEAD + b"content-length: 50\r\n\r\n{")
        server.wait_until("transduce_inflight_requests", 0)
        server.signal()
        assert server.ended() == 0
        assert silent.recv(1) == b""


def test_vllm_shutdown_wait_timeout_completes_requests(start: Start, gate: Path) -> None:
    """Ten callers repeat requests while the server ends. No body is cut off. Each gets a 503 or a closed connection."""
    server = start()

    def caller() -> list[int]:
        statuses: list[int] = []
        with server.client() as client:
            while not statuses or statuses[-1] == 200:
                question = client.build_request("POST", "/v1/translate", json=BODY)
                try:
                    answer = client.send(question, stream=True)
                except (httpx.ConnectError, httpx.RemoteProtocolError, httpx.ReadError):
                    break  # the connection was closed before the response began
                answer.read()  # raises RemoteProtocolError if the body is cut off
                answer.json()
                statuses.append(answer.status_code)
        return statuses

    with ThreadPoolExecutor(10) as pool:
        callers = [pool.submit(caller) for _ in range(10)]
        while server.metric(ANSWERED) < len(callers):
            time.sleep(0.02)
        server.signal()
        assert server.ended() == 0
        wait(callers, HANG_TIMEOUT_S)
    for future in callers:
        assert set(future.result()) <= {200, 503}
