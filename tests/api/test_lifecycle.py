"""A real server process from start to end: loading, ready, drain, and failed starts."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest

from app.api.http.server import SAME_SIGNAL_S, SignalFilter, listen
from app.settings import Settings
from tests.api.echo import GOLDEN, POISON
from tests.api.server_process import ServerProcess

BODY = {"text": GOLDEN, "source": "en", "target": "de"}

# The default of drain_timeout_s. A server that ignores a shorter setting drains for at least this time.
DRAIN_TIMEOUT_S = Settings.model_fields["drain_timeout_s"].default


def post(server: ServerProcess) -> httpx.Response:
    with server.client() as client:
        return client.post("/v1/translate", json=BODY)


def wait_for_work(server: ServerProcess) -> None:
    server.wait_until("transduce_inflight_requests", 1)


def test_live_before_ready(echo_command: list[str], load_file: Path) -> None:
    command = [*echo_command, f"load_file={load_file}"]
    with ServerProcess(command) as server, server.listening().client() as client:
        assert client.get("/livez").status_code == 200
        not_ready = client.get("/readyz")
        assert (not_ready.status_code, not_ready.json()) == (503, {"status": "loading"})
        refused = client.post("/v1/translate", json=BODY)
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "not_ready"
        assert int(refused.headers["retry-after"]) >= 1
        load_file.unlink()
        server.wait_for("ready")
        assert client.get("/readyz").status_code == 200
        assert client.post("/v1/translate", json=BODY).status_code == 200


def test_a_signal_lets_running_work_end(echo_command: list[str], hang_file: Path) -> None:
    with ServerProcess([*echo_command, f"hang_file={hang_file}"]) as server, ThreadPoolExecutor(1) as pool:
        server.ready()
        hang_file.touch()
        running = pool.submit(post, server)
        wait_for_work(server)
        with server.client() as client:
            server.signal()
            server.wait_for("draining")
            assert client.get("/readyz").status_code == 503
            assert client.get("/livez").status_code == 200
            refused = client.post("/v1/translate", json=BODY)
            assert refused.status_code == 503
            assert "retry-after" in refused.headers
        hang_file.unlink()
        answer = running.result()
        assert answer.status_code == 200
        assert answer.json()["translations"][0]["text"] == GOLDEN
        assert server.ended() == 0
        assert not [line for line in server.log if '"level": "error"' in line]


def test_a_drain_is_bounded_and_unfinished_requests_get_503(echo_command: list[str], hang_file: Path) -> None:
    settings: dict[str, object] = {"drain_timeout_s": 0.5}
    with (
        ServerProcess([*echo_command, f"hang_file={hang_file}"], settings) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        server.ready()
        hang_file.touch()
        running = pool.submit(post, server)
        wait_for_work(server)
        started = time.monotonic()
        server.signal()
        assert running.result().status_code == 503
        assert server.ended() == 0
        assert time.monotonic() - started < DRAIN_TIMEOUT_S


def test_a_second_signal_ends_at_once(echo_command: list[str], hang_file: Path) -> None:
    """Only the second signal can end the server before the drain's limit of 1000 s."""
    settings: dict[str, object] = {"drain_timeout_s": 1000}
    with (
        ServerProcess([*echo_command, f"hang_file={hang_file}"], settings) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        server.ready()
        hang_file.touch()
        running = pool.submit(post, server)
        wait_for_work(server)
        server.signal()
        server.wait_for("draining")
        time.sleep(SAME_SIGNAL_S)
        server.signal()
        assert server.ended() == 128 + signal.SIGTERM
        assert running.result().status_code == 503


def test_a_signal_that_is_passed_on_is_the_same_signal(echo_command: list[str], hang_file: Path) -> None:
    """`make` sends its child the signal that the whole process group has already got. The drain continues.

    The test sends two different signals, because the kernel merges two equal pending ones. The second signal may end
    the server only if a busy machine delivers it after SAME_SIGNAL_S.
    """
    with ServerProcess([*echo_command, f"hang_file={hang_file}"]) as server, ThreadPoolExecutor(1) as pool:
        server.ready()
        hang_file.touch()
        running = pool.submit(post, server)
        wait_for_work(server)
        signalled_at = time.monotonic()
        server.signal(signal.SIGTERM)
        server.signal(signal.SIGINT)
        server.wait_for("draining")
        server.metric("transduce_inflight_requests")  # both signals have been handled
        hang_file.unlink()
        server.wait_for("drained")
        took_s = time.monotonic() - signalled_at
        ends = (running.result().status_code, server.ended())
    assert ends == (200, 0) or took_s >= SAME_SIGNAL_S, ends


def test_signals_count_by_the_time_since_the_first() -> None:
    """A signal within SAME_SIGNAL_S after the first is a copy of it. A copy does not prolong this time."""
    now_s = 1000.0
    signals = SignalFilter(lambda: now_s)
    assert signals.counts()
    for later_s, counts in ((0.0, False), (0.6, False), (0.99, False), (1.0, True), (1.1, True), (9.0, True)):
        now_s = 1000.0 + later_s * SAME_SIGNAL_S
        assert signals.counts() == counts, later_s


def test_connections_end_with_an_answer_in_the_drain_delay(echo_command: list[str]) -> None:
    """Clients then connect to another server before this one refuses work."""
    with ServerProcess(echo_command, {"drain_delay_s": 1000}) as server, server.ready().client() as client:
        assert "connection" not in client.post("/v1/translate", json=BODY).headers
        server.signal()
        server.wait_for("draining")
        answer = client.post("/v1/translate", json=BODY)
        assert (answer.status_code, answer.headers["connection"]) == (200, "close")
        assert client.post("/v1/translate", json=BODY).status_code == 200  # on a new connection


def test_requests_are_accepted_during_the_drain_delay(echo_command: list[str]) -> None:
    with ServerProcess(echo_command, {"drain_delay_s": 1000}) as server, server.ready().client() as client:
        server.signal()
        server.wait_for("draining")
        assert client.get("/readyz").status_code == 503
        assert client.post("/v1/translate", json=BODY).status_code == 200
    with ServerProcess(echo_command, {"drain_delay_s": 0.1}) as server:
        server.ready().signal()
        assert server.ended() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_server_ends_soon(echo_command: list[str], number: int) -> None:
    """It waits neither for idle clients nor for the long time limits. It has no child that could delay its end."""
    settings: dict[str, object] = {"read_timeout_s": 1000, "drain_timeout_s": 1000, "keep_alive_s": 1000}
    with ServerProcess(echo_command, settings) as server:
        server.ready()
        with server.connect(), server.connect() as half:  # an idle client, and one with half a body
            head = b"POST /v1/translate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            half.sendall(head + b"content-length: 100\r\n\r\n{")
            # The scrape itself is active, too.
            server.wait_until('transduce_http_connections{state="active"}', 2)
            assert psutil.Process(server.pid).children() == []
            server.signal(number)
            assert server.ended() == 0
            assert not [line for line in server.log if '"level": "error"' in line], "a request was cut off"


def test_a_signal_while_the_golden_sentences_are_decoded(echo_command: list[str], hang_file: Path) -> None:
    hang_file.touch()
    with ServerProcess([*echo_command, f"hang_file={hang_file}"]) as server:
        server.listening()
        # No log line shows when the check begins. A signal before it has the same result.
        time.sleep(1.0)
        server.signal(signal.SIGTERM)
        assert server.ended() == 0
        assert server.errors == []


def test_a_signal_while_loading(echo_command: list[str], load_file: Path) -> None:
    with ServerProcess([*echo_command, f"load_file={load_file}"]) as server:
        server.listening()
        server.signal()
        assert server.ended() == 0


def test_no_response_is_cut_off_when_the_server_ends(echo_command: list[str]) -> None:
    """Every response that a client got is complete."""
    settings: dict[str, object] = {"sentence_cache_bytes": 0, "coalesce": "false"}
    with ServerProcess([*echo_command, "step_s=0.005"], settings) as server:
        server.ready()
        codes: list[int] = []
        is_over = threading.Event()

        def call() -> None:
            with server.client() as client:
                while not is_over.is_set():
                    question = client.build_request("POST", "/v1/translate", json=BODY)
                    try:
                        answer = client.send(question, stream=True)
                    except httpx.TransportError:
                        return
                    content = json.loads(answer.read())  # fails if the body is cut off
                    codes.append(answer.status_code)
                    if answer.status_code == 200:
                        assert content["translations"][0]["text"] == GOLDEN

        with ThreadPoolExecutor(8) as pool:
            callers = [pool.submit(call) for _ in range(8)]
            while codes.count(200) < 16:
                time.sleep(0.01)
            before = codes.count(200)
            server.signal()
            assert server.wait_for("drained")["aborted_requests"] == 0
            assert server.ended() == 0
            is_over.set()
            for caller in callers:
                caller.result()
        assert set(codes) <= {200, 503}
        assert codes.count(200) > before


def test_a_port_in_use_is_a_one_line_error(echo_command: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with ServerProcess(echo_command, {"port": port}) as server:
            assert server.ended() == 1
            assert server.errors == [f"cannot listen on 127.0.0.1 port {port}: Address already in use\n"]


def test_an_invalid_host_is_named_in_the_error() -> None:
    with pytest.raises(OSError, match=r"cannot listen on a\.\.b port 0: not a host name"):
        listen("a..b", 0)


def test_a_server_may_start_on_the_port_of_one_that_has_just_ended() -> None:
    """The kernel keeps a connection that the server has closed first for a minute."""
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            accepted, _ = listener.accept()
            accepted.close()
            assert client.recv(1) == b""
    with listen("127.0.0.1", port) as again:
        assert again.getsockname()[1] == port


def test_a_model_that_differs_from_its_golden_lines_is_not_served(echo_command: list[str]) -> None:
    with ServerProcess([*echo_command, "golden_target=Nobody draws."]) as server:
        assert server.ended() == 78
        (line,) = server.errors
        assert line.startswith("transduce serve: bundle echo: 0 of 1 golden sentences")
        assert not [entry for entry in server.log if '"event": "ready"' in entry]


def test_a_model_that_fails_on_its_own_golden_sentence_is_a_wrong_bundle(echo_command: list[str]) -> None:
    with ServerProcess([*echo_command, f"golden_source={POISON}"]) as server:
        assert server.ended() == 78
        reason = "1 of 1 golden sentences cannot be decoded: the forward failed"
        assert server.errors == [f"transduce serve: bundle echo: {reason}\n"]


def test_a_model_too_large_for_the_settings_is_not_served(echo_command: list[str]) -> None:
    with ServerProcess(echo_command, {"max_encode_tokens": 8}) as server:
        assert server.ended() == 78
        assert "max_encode_tokens (8)" in server.errors[0]
        assert "max_source_length (64)" in server.errors[0]
