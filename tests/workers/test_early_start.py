"""The fork server: its start before the settings are read, its copies, and the priority of its loads."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.errors import BundleError
from app.model_starter import BundleLoader
from app.settings import Settings
from app.workers import early_start
from app.workers.__main__ import LOAD_NICENESS, in_slow_thread, load_shared
from app.workers.model_spec import ModelSpec
from tests.engine.test_engine import HANG_TIMEOUT_S
from tests.workers.running_engine import children, descriptors


@pytest.mark.parametrize(
    ("environment", "num_cores", "is_started"),
    [
        ({}, 2, True),
        ({}, 1, False),
        ({"NUM_LANES": "1"}, 4, False),
        ({"NUM_LANES": "3", "DEVICE": "cuda"}, 1, True),
        ({"NUM_LANES": "0", "NUM_THREADS": "1"}, 4, False),
        ({"NUM_LANES": "", "NUM_THREADS": "2"}, 1, True),
        ({"NUM_LANES": "many", "NUM_THREADS": "-1"}, 2, True),  # the settings reject these values later
        ({"DEVICE": "cuda"}, 4, False),
        ({"DEVICE": "auto"}, 4, True),
    ],
)
def test_the_fork_server_starts_if_the_environment_suggests_worker_processes(
    environment: dict[str, str], num_cores: int, is_started: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NUM_LANES", "NUM_THREADS", "DEVICE"):
        monkeypatch.delenv(f"TRANSDUCE_{name}", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(f"TRANSDUCE_{name}", value)
    monkeypatch.setattr(early_start, "num_usable_cores", lambda: num_cores)
    monkeypatch.setattr(early_start, "has_cuda_provider", lambda: False)
    fork_server = early_start.start_early()
    try:
        assert (fork_server is not None) == is_started
    finally:
        if fork_server is not None:
            assert fork_server.process_id in children()
            fork_server.close()
            assert fork_server.process_id not in children()


@pytest.mark.parametrize(("num_threads", "num_workers"), [(1, 1), (4, 4), (64, 4)])
def test_a_cpu_has_at_most_four_workers_by_default(num_threads: int, num_workers: int) -> None:
    assert early_start.default_num_workers("cpu", num_threads) == num_workers


def test_a_fork_server_that_cannot_be_started_is_no_error_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSDUCE_NUM_LANES", "2")
    monkeypatch.setattr("sys.executable", "/no/such/command")
    assert early_start.start_early() is None


def test_signals_do_not_end_the_fork_server_even_before_it_runs() -> None:
    """A terminal sends its signals to every process of the group, and only the server must handle them."""
    fork_server = early_start.start_fork_server()
    try:
        for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(fork_server.process_id, one)
        fork_server._control.close()
        assert fork_server._process.wait(HANG_TIMEOUT_S) == 0
    finally:
        fork_server.close()


def test_a_copy_of_a_fork_server_is_a_child_that_outlives_it() -> None:
    fork_server = early_start.start_fork_server()
    copies = [fork_server.copy(), fork_server.copy()]
    try:
        assert {fork_server.process_id, *(copy.process_id for copy in copies)} <= {*children()}
        fork_server.close()
        second_copy = copies[1].copy()
        copies.append(second_copy)
        assert second_copy.process_id in children()
        for copy in copies:
            copy._control.close()
            assert copy._process.wait(HANG_TIMEOUT_S) == 0
    finally:
        for one in (fork_server, *copies):
            one.close()
    assert not {copy.process_id for copy in copies} & {*children()}


def test_several_threads_can_wait_for_a_fork_server_that_another_thread_closes() -> None:
    for _ in range(10):
        fork_server = early_start.start_fork_server()
        with ThreadPoolExecutor(4) as threads:
            codes = [threads.submit(fork_server._process.wait, HANG_TIMEOUT_S) for _ in range(4)]
            fork_server.close()
            assert [code.result() for code in codes] == [-signal.SIGKILL] * 4


def test_the_end_of_a_process_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timer that reports the end of a process that ends too late is cancelled."""

    async def scenario() -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        timers: list[asyncio.TimerHandle] = []
        call_later = loop.call_later

        def recording_call_later(*arguments: Any) -> asyncio.TimerHandle:
            timers.append(call_later(*arguments))
            return timers[-1]

        monkeypatch.setattr(loop, "call_later", recording_call_later)
        fork_server = early_start.start_fork_server()
        fork_server._process.when_ended(loop, ended.set)
        os.kill(fork_server.process_id, signal.SIGKILL)
        await ended.wait()
        fork_server.close()
        assert [timer.cancelled() for timer in timers] == [True]

    asyncio.run(scenario())


def test_an_ended_fork_server_cannot_be_copied() -> None:
    fork_server = early_start.start_fork_server()
    os.kill(fork_server.process_id, signal.SIGKILL)
    before = descriptors("socket:")
    try:
        with pytest.raises(OSError, match=r"fork server has ended|Broken pipe|reset by peer"):
            fork_server.copy()
        assert descriptors("socket:") == before
    finally:
        fork_server.close()


def test_a_stopped_fork_server_cannot_be_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.workers.fork_server.COPY_TIMEOUT_S", 0.05)
    fork_server = early_start.start_fork_server()
    os.kill(fork_server.process_id, signal.SIGSTOP)
    try:
        with pytest.raises(TimeoutError):
            fork_server.copy()
    finally:
        fork_server.close()
    assert fork_server.process_id not in children()


def test_a_failed_load_ends_its_copy_of_the_fork_server(tmp_path: Path) -> None:
    fork_server = early_start.start_fork_server()
    try:
        before = {*children()}
        with pytest.raises(BundleError):
            BundleLoader(fork_server).load_one(tmp_path / "none", Settings(model_memory=10**9))
        assert {*children()} == before
    finally:
        fork_server.close()


def test_if_there_is_no_bundle_the_fork_server_ends(tmp_path: Path) -> None:
    fork_server = early_start.start_fork_server()
    try:
        with pytest.raises(BundleError):
            BundleLoader(fork_server).load_all(Settings(bundle=tmp_path / "none"))
        assert fork_server.process_id not in children()
    finally:
        fork_server.close()


@pytest.mark.parametrize("loads_at_low_priority", [True, False])
def test_only_a_load_beside_other_models_has_a_low_priority(loads_at_low_priority: bool) -> None:
    def load(**_options: object) -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    spec = cast(ModelSpec, SimpleNamespace(loads_at_low_priority=loads_at_low_priority, load=load))
    before = load()
    assert cast(int, load_shared(spec)) == (
        min(19, before + LOAD_NICENESS) if loads_at_low_priority else before
    )


def test_only_the_slow_thread_has_a_low_priority() -> None:
    def priority() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    before = priority()
    assert in_slow_thread(priority) == min(19, before + LOAD_NICENESS)
    assert priority() == before
    with pytest.raises(ZeroDivisionError):
        in_slow_thread(lambda: 1 // 0)


# A program. Its arguments are the log level of the server and the number of a worker. It prints the worker's log level.
LOG_LEVEL = """
import logging, sys
from types import SimpleNamespace
import msgspec
from app.workers.__main__ import prepare
spec = SimpleNamespace(log_level=sys.argv[1], is_native=False, load=lambda: None)
msgspec.json.decode = lambda *_, **_options: spec
prepare(b"")(int(sys.argv[2]))
print(logging.getLevelName(logging.getLogger().level).lower())
"""


@pytest.mark.parametrize(
    ("of_server", "of_first", "of_second"),
    [("debug", "debug", "warning"), ("warning", "warning", "warning"), ("error", "error", "error")],
)
def test_no_worker_logs_more_than_the_server(of_server: str, of_first: str, of_second: str) -> None:
    for number, level in enumerate((of_first, of_second)):
        command = [sys.executable, "-c", LOG_LEVEL, of_server, str(number)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=HANG_TIMEOUT_S)
        assert done.stdout == f"{level}\n"
