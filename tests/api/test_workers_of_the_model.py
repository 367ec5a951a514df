"""The bundled model gives the same answers in two workers as in one. No process is left at the end."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psutil
import pytest

from tests.api.processes import have_ended, wait_until
from tests.api.server_process import HANG_TIMEOUT_S, ROOT, ServerProcess

COMMAND = [sys.executable, "-W", "error", "-m", "transduce", "serve"]
SETTINGS: dict[str, object] = {
    "bundle": ROOT / "bundles" / "en-de",
    "num_threads": 2,
    "num_lanes": 2,
    "device": "cpu",
    "precision": "int8",
    "stall_limit_s": 1.0,
    "drain_timeout_s": HANG_TIMEOUT_S,
}
TEXTS = [
    f"The {size} house near the station was {done} in {year}, and nobody knows why."
    for size in ("old", "small", "red")
    for done, year in (("built", 1907), ("sold", 1998), ("burnt", 2011), ("painted", 2020))
]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"beam_size": 1},
    {"beam_size": 6, "num_hypotheses": 3},
    {"beam_size": 1, "sampling": {"temperature": 1.2, "top_k": 20, "seed": 7}},
]
# The variable with the current test's name. Pytest sets it, and every child process inherits it.
TEST = "PYTEST_CURRENT_TEST"
# The maximum private memory of a worker after a few answers. Its weights, libraries and Python are shared.
MAX_PRIVATE_MB = 40.0
# Seconds until the workers end after the server is killed, including the delay of a busy machine.
END_TIMEOUT_S = 2.0 + 28.0
TOKEN = "an-administrators-token"
STEPS = "transduce_decode_steps_total"
# The error message of a load whose process gets SIGKILL.
KILLED = "an engine process ended while it loaded, with signal 9; the usual cause is too little memory"


def post(client: httpx.Client, **options: Any) -> httpx.Response:
    return client.post("/v1/translate", json={"text": TEXTS, "source": "en", "target": "de"} | options)


def workers_of(server: ServerProcess) -> list[psutil.Process]:
    found = psutil.Process(server.pid).children()
    assert len(found) == 2
    return found


def send(signal_number: int, *processes: psutil.Process) -> None:
    for process in processes:
        process.send_signal(signal_number)


def wait_for_children(server: ServerProcess) -> list[psutil.Process]:
    """Wait until a child process runs `app.workers`. Returns the children.

    A test may stop the child only then, because the server blocks until the child has begun to run its command.
    """
    parent = psutil.Process(server.pid)

    def has_worker_command() -> bool:
        with contextlib.suppress(psutil.Error):
            return any("app.workers" in child.cmdline() for child in parent.children())
        return False

    wait_until(has_worker_command)
    return parent.children()


def wait_for_steps(server: ServerProcess, num_before: float) -> None:
    """Wait until the server has reported more decoder steps than num_before."""
    wait_until(lambda: server.metric(STEPS) > num_before)


def remaining_workers() -> list[psutil.Process]:
    """The live workers and fork servers of the servers that this test started."""
    found = []
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            is_worker = "app.workers" in one.cmdline()
            if is_worker and one.environ().get(TEST) == os.environ[TEST] and not have_ended([one]):
                found.append(one)
    return found


def private_mb(process: psutil.Process) -> float:
    """Private memory of a process, in 10^6 bytes."""
    found = process.memory_full_info().uss / 1e6
    assert isinstance(found, float)
    return found


def priorities(process: psutil.Process) -> set[int]:
    """The priorities of all threads of a process. A larger value is a lower priority."""
    return {os.getpriority(os.PRIO_PROCESS, thread.id) for thread in process.threads()}


def translations(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()["translations"]


def test_answers_are_those_of_one_worker_and_a_signal_drains(bundled: httpx.Client) -> None:
    """Both workers decode. Running work completes after the signal, in workers that also got the signal."""
    with ServerProcess(COMMAND, SETTINGS) as server, ThreadPoolExecutor(2) as pool:
        server.ready()
        workers = workers_of(server)
        with server.client() as client:
            for options in OPTIONS:
                assert translations(post(client, **options)) == translations(post(bundled, **options))
            for stopped, beam_size in zip(workers, (7, 8), strict=True):
                num_steps = server.metric(STEPS)
                send(signal.SIGSTOP, stopped)
                waiting = pool.submit(post, client, beam_size=beam_size)
                try:
                    wait_for_steps(server, num_steps)  # of the worker that is not stopped
                finally:
                    send(signal.SIGCONT, stopped)
                assert translations(waiting.result()) == translations(post(bundled, beam_size=beam_size))
            (of_server,) = priorities(psutil.Process(server.pid))
            assert min(set.union(*map(priorities, workers))) > of_server
            send(signal.SIGSTOP, *workers)
            running = pool.submit(post, client, beam_size=5)
            server.wait_until("transduce_inflight_requests", 1)
            send(signal.SIGTERM, *workers)
            server.signal(signal.SIGTERM)
            server.wait_for("draining")
            send(signal.SIGCONT, *workers)
            assert translations(running.result()) == translations(post(bundled, beam_size=5))
        assert server.ended() == 0
        assert have_ended(workers)
        assert (server.errors, [line for line in server.log if '"level": "error"' in line]) == ([], [])


def test_a_terminals_interrupt_drains() -> None:
    """The terminal sends the signal to every process of the group."""
    with ServerProcess(COMMAND, SETTINGS) as server, ThreadPoolExecutor(2) as pool:
        server.ready()
        workers = workers_of(server)
        send(signal.SIGSTOP, *workers)
        with server.client() as client:
            running = pool.submit(post, client)
            server.wait_until("transduce_inflight_requests", 1)
            send(signal.SIGINT, *workers, psutil.Process(server.pid))
            server.wait_for("draining")
            send(signal.SIGCONT, *workers)
            assert len(translations(running.result())) == len(TEXTS)
        assert server.ended() == 0
        assert have_ended(workers)
        assert server.errors == []


def test_a_stopped_worker_is_a_stall_and_without_restarts_a_killed_worker_ends_the_server() -> None:
    settings = {**SETTINGS, "max_worker_restarts": 0}
    with ServerProcess(COMMAND, settings) as server, ThreadPoolExecutor(2) as pool:
        server.ready()
        workers = workers_of(server)
        with server.client() as client:
            assert client.get("/livez").status_code == 200
            send(signal.SIGSTOP, *workers)
            running = pool.submit(post, client)
            with server.client() as probe:
                wait_until(lambda: probe.get("/livez").status_code == 503)
                send(signal.SIGCONT, *workers)
                translations(running.result())
                wait_until(lambda: probe.get("/livez").status_code == 200)
                send(signal.SIGSTOP, *workers)
                running = pool.submit(post, client, beam_size=3)  # other options, so the answer is not cached
                server.wait_until("transduce_inflight_requests", 1)
                send(signal.SIGKILL, workers[1])
            assert running.result().status_code == 503
        assert server.ended() == 70
        died = server.wait_for("engine_process_died")
        assert died["exit"] == "signal 9"
        assert have_ended(workers)
        assert server.errors == ["transduce serve: the engine has died; see the log for the cause\n"]


def test_a_killed_server_leaves_no_worker() -> None:
    """One worker is at work, and the other worker is idle."""
    with ServerProcess(COMMAND, SETTINGS) as server, ThreadPoolExecutor(2) as pool:
        server.ready()
        workers = workers_of(server)
        with server.client() as client:
            send(signal.SIGSTOP, *workers)
            running = pool.submit(post, client, text="It is cold.")
            server.wait_until("transduce_inflight_requests", 1)
            send(signal.SIGCONT, *workers)
            server.signal(signal.SIGKILL)
            wait_until(lambda: have_ended(workers), END_TIMEOUT_S)
            with pytest.raises(httpx.TransportError):
                running.result()
        assert server.ended() == -signal.SIGKILL


@pytest.mark.parametrize("kernels", ["native", "standard"])
def test_workers_share_what_was_loaded_before_the_fork(kernels: str) -> None:
    """A forked process lacks ONNX Runtime's threads. So with ONNX Runtime's operators each worker loads the model."""
    with ServerProcess(COMMAND, {**SETTINGS, "kernels": kernels, "num_threads": 4}) as server:
        server.ready()
        with server.client() as client:
            assert len(translations(post(client))) == len(TEXTS)
        assert {one.pid for one in remaining_workers()} == {one.pid for one in workers_of(server)}
        sizes = [private_mb(worker) for worker in workers_of(server)]
        assert (max(sizes) < MAX_PRIVATE_MB) == (kernels == "native"), sizes


def test_a_server_without_worker_processes_ends_the_fork_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """The early start knows the environment variable in capitals only. The settings accept it in any case."""
    settings = {name: value for name, value in SETTINGS.items() if name != "num_lanes"}
    monkeypatch.setenv("Transduce_Num_Lanes", "1")
    with ServerProcess(COMMAND, settings) as server:
        (fork_server,) = wait_for_children(server)
        server.ready()
        assert psutil.Process(server.pid).children() == []
        assert have_ended([fork_server])


@pytest.mark.parametrize(
    ("settings", "message"), [({"num_rows": -1}, "NUM_ROWS"), ({"bundle": "/none"}, "bundle")]
)
def test_a_failed_start_leaves_no_process(settings: dict[str, object], message: str) -> None:
    with ServerProcess(COMMAND, {**SETTINGS, **settings}) as server:
        wait_for_children(server)
        assert server.ended() == 78
        assert message in "".join(server.errors)
        assert remaining_workers() == []


def test_a_signal_during_loading_leaves_no_process() -> None:
    with ServerProcess(COMMAND, SETTINGS) as server:
        (fork_server,) = wait_for_children(server)
        send(signal.SIGSTOP, fork_server)
        server.wait_for("listening")
        server.signal(signal.SIGTERM)
        assert server.ended() == 0
        assert have_ended([fork_server])
    assert remaining_workers() == []


def test_a_fork_server_that_dies_is_reported() -> None:
    with ServerProcess(COMMAND, SETTINGS) as server:
        (fork_server,) = wait_for_children(server)
        send(signal.SIGKILL, fork_server)
        assert server.ended() == 70
        assert remaining_workers() == []
        assert server.errors == [f"transduce serve: {KILLED}\n"]


def test_a_reload_whose_process_is_killed_says_so_and_the_old_model_serves() -> None:
    with ServerProcess(COMMAND, {**SETTINGS, "admin_token": TOKEN}) as server, ThreadPoolExecutor(1) as pool:
        workers = workers_of(server.ready())
        with server.client(headers={"authorization": f"Bearer {TOKEN}"}) as client:
            reloading = pool.submit(client.post, "/admin/models/en-de-small/reload")
            wait_until(lambda: len(psutil.Process(server.pid).children()) > len(workers))
            send(signal.SIGKILL, *set(psutil.Process(server.pid).children()) - set(workers))
            answer = reloading.result()
            assert answer.status_code == 503, answer.text
            assert int(answer.headers["retry-after"]) >= 1
            assert answer.json()["error"]["message"] == KILLED
            failure = server.wait_for("reload_failed")
            assert failure["problem"] == KILLED
            assert "exception" not in failure
            translations(post(client))


def test_settings_that_contradict_the_model_end_the_server_and_its_workers() -> None:
    with ServerProcess(COMMAND, {**SETTINGS, "max_encode_tokens": 8}) as server:
        (fork_server,) = wait_for_children(server)
        assert server.ended() == 78
        wait_until(lambda: have_ended([fork_server]) and remaining_workers() == [], END_TIMEOUT_S)
        (line,) = server.errors
        assert "max_encode_tokens (8)" in line
