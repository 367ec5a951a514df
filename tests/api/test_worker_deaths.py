"""A server whose worker processes are killed answers as if nothing had happened, within the budget of restarts."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psutil
import pytest

from tests.api.processes import have_ended, wait_until
from tests.api.server_process import ServerProcess
from tests.api.test_stream import displayed_text, events_of
from tests.api.test_workers_of_the_model import (
    OPTIONS,
    SETTINGS,
    TEXTS,
    post,
    translations,
    workers_of,
)

# No answer comes from the cache or from another request's decoding, so several slow requests keep both workers busy.
MANY_RESTARTS: dict[str, object] = {
    **SETTINGS,
    "max_worker_restarts": 1000,
    "sentence_cache_bytes": 0,
    "coalesce": False,
}
RESTARTS = "transduce_worker_restarts_total"
# One worker decodes both texts for a while, since every hypothesis has at least 160 subwords.
SLOW: dict[str, Any] = {
    "text": TEXTS[:2],
    "beam_size": 16,
    "min_target_length": 160,
    "max_target_length": 161,
    "timeout_ms": 60_000,
}
# Seconds of CPU time after which a worker certainly decodes.
BUSY_S = 0.1


@pytest.fixture(scope="module")
def shared() -> Iterator[ServerProcess]:
    """A server that the tests of this module share. Each test leaves it with two workers."""
    with ServerProcess(["transduce", "serve"], MANY_RESTARTS) as server:
        yield server.ready()


@pytest.fixture
def server(shared: ServerProcess) -> Iterator[ServerProcess]:
    before = shared.metric(RESTARTS), descriptors_of(shared)
    yield shared
    wait_until(lambda: len(workers_now(shared)) == 2)
    assert shared.metric(RESTARTS) > before[0]
    wait_until(lambda: descriptors_of(shared) <= before[1])
    with shared.client() as client:
        assert client.get("/readyz").status_code == 200


def descriptors_of(server: ServerProcess) -> int:
    """Descriptors of the server, without connections to clients."""
    process = psutil.Process(server.pid)
    return process.num_fds() - len(process.net_connections("tcp"))


def workers_now(server: ServerProcess) -> list[psutil.Process]:
    """The worker processes and fork servers that run now."""
    return [one for one in psutil.Process(server.pid).children() if not have_ended([one])]


def cpu_s(process: psutil.Process) -> float:
    """CPU time of a process in seconds; infinite once it has ended."""
    with contextlib.suppress(psutil.Error):
        return float(sum(process.cpu_times()[:2]))
    return float("inf")


def kill_busy(workers: list[psutil.Process]) -> psutil.Process:
    """Wait until one of these workers decodes, and kill it."""
    before = {worker: cpu_s(worker) for worker in workers}
    wait_until(lambda: any(cpu_s(worker) > before[worker] + BUSY_S for worker in workers))
    busiest = max(workers, key=lambda worker: cpu_s(worker) - before[worker])
    busiest.kill()
    return busiest


def test_killed_workers_cost_no_answer(server: ServerProcess, bundled: httpx.Client) -> None:
    # The slow requests keep both workers busy until one worker is killed, even if a busy machine delays the kill.
    all_options = [*[SLOW] * 4, *OPTIONS * 4]
    answers = {str(options): translations(post(bundled, **options)) for options in (SLOW, *OPTIONS)}
    workers = workers_of(server)
    with server.client() as client, ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(post, client, **options) for options in all_options]
        kill_busy(workers)
        died = server.wait_for("engine_process_died")
        assert (died["level"], died["exit"], died["failed"]) == ("error", "signal 9", 0)
        assert died["decoded_again"] > 0
        assert client.get("/livez").status_code == client.get("/readyz").status_code == 200
        server.wait_for("engine_process_restarted")
        assert [translations(future.result()) for future in futures] == [
            answers[str(each)] for each in all_options
        ]
        with pytest.raises(psutil.NoSuchProcess):
            psutil.Process(next(one.pid for one in workers if have_ended([one]))).status()


def test_a_stream_continues_after_the_part_that_was_sent(
    server: ServerProcess, bundled: httpx.Client
) -> None:
    body = {
        "text": [" ".join(TEXTS)],
        "source": "en",
        "target": "de",
        "beam_size": 1,
        "min_target_length": 40,
    }
    expected = events_of(bundled.post("/v1/translate/stream", json=body).text)
    workers = workers_of(server)
    before = {worker: cpu_s(worker) for worker in workers}
    content = ""
    with server.client() as client, client.stream("POST", "/v1/translate/stream", json=body) as answer:
        for part in answer.iter_text():
            content += part
            if "event: delta" in content and not any(have_ended([worker]) for worker in workers):
                max(workers, key=lambda worker: cpu_s(worker) - before[worker]).kill()
    events = events_of(content)
    assert events[-1][0] == "done"
    assert events[-1][1]["translations"] == expected[-1][1]["translations"]
    assert displayed_text(events) == displayed_text(expected)
    num_replaced = [name for name, _ in events].count("replace")
    assert num_replaced == [name for name, _ in expected].count("replace")
    assert server.wait_for("engine_process_died")["decoded_again"] > 0
    server.wait_for("engine_process_restarted")


def test_without_any_worker_requests_wait(server: ServerProcess, bundled: httpx.Client) -> None:
    expected = translations(post(bundled))
    with server.client() as client, ThreadPoolExecutor(1) as pool:
        for worker in workers_of(server):
            worker.kill()
        wait_until(lambda: client.get("/readyz").status_code == 503)
        waiting = pool.submit(post, client)
        assert client.get("/livez").status_code == 200
        assert translations(waiting.result()) == expected
        wait_until(lambda: client.get("/readyz").status_code == 200)
        for _ in range(2):
            server.wait_for("engine_process_restarted")


def test_a_sentence_fails_after_two_of_its_workers_died(server: ServerProcess, bundled: httpx.Client) -> None:
    workers = workers_of(server)
    with server.client() as client, ThreadPoolExecutor(1) as pool:
        poison = pool.submit(post, client, **SLOW)
        first = kill_busy(workers)
        kill_busy([worker for worker in workers if worker is not first])
        answer = poison.result()
        assert answer.status_code == 500
        assert answer.json()["error"]["code"] == "engine_failure"
        assert [server.wait_for("engine_process_died")["failed"] for _ in range(2)] == [0, 2]
        assert client.get("/livez").status_code == 200
        assert translations(post(client)) == translations(post(bundled))


def test_a_swap_and_a_drain_while_a_worker_is_started(bundled: httpx.Client) -> None:
    with ServerProcess(["transduce", "serve"], MANY_RESTARTS) as server, ThreadPoolExecutor(1) as pool:
        with server.ready().client() as client:
            workers_of(server)[0].kill()
            server.wait_for("engine_process_died")
            server.signal(signal.SIGHUP)
            server.wait_for("reloaded")
            assert translations(post(client)) == translations(post(bundled))
            wait_until(lambda: len(workers_now(server)) == 2)
            running = pool.submit(post, client, **SLOW)
            kill_busy(workers_of(server))
            server.signal(signal.SIGTERM)
            assert len(translations(running.result())) == len(SLOW["text"])
        workers = workers_now(server)
        assert server.ended() == 0
        wait_until(lambda: have_ended(workers))
        assert server.errors == []


def test_after_too_many_deaths_the_server_ends() -> None:
    settings = {**MANY_RESTARTS, "max_worker_restarts": 1}
    with ServerProcess(["transduce", "serve"], settings) as server:
        server.ready()
        for _ in range(2):
            workers_now(server)[0].kill()
            died = server.wait_for("engine_process_died")
            if died["level"] == "error":
                server.wait_for("engine_process_restarted")
        assert (died["level"], died.get("failed")) == ("critical", None)
        assert server.ended() == 70
        assert server.errors == ["transduce serve: the engine has died; see the log for the cause\n"]
