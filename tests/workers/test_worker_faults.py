"""Worker processes that are killed, hang or fail to start. No future stays pending, and no process is left."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from app.engine.engine import LAST_STEP_TIMEOUT_S, Engine
from app.engine.sequence import SequenceResult
from app.errors import BundleError, NotReady, SettingsError, WorkerEnded
from app.workers.fork_server import ForkServer
from app.workers.worker_proxy import WorkerProxy, start_workers
from tests.engine.fake_runner import EOS
from tests.engine.test_engine import HANG_TIMEOUT_S, NARROW, WIDE, submit
from tests.workers.fake_worker import POISON, PROBLEMS, SHARED, FakePlan
from tests.workers.running_engine import SETTINGS, RunningEngine, children, descriptors, running, until
from tests.workers.test_workers import put_into, run

SHORT = replace(NARROW, max_target_length=2)
# Seconds: the maximum time of Engine.close without its drain, plus a delay of a busy machine.
CLOSE_S = LAST_STEP_TIMEOUT_S + 30.0


@pytest.fixture
def plan(tmp_path: Path) -> FakePlan:
    return FakePlan(str(tmp_path), eos_bonus=-30.0)


@pytest.fixture
def new_children() -> Callable[[], set[int]]:
    """Return a function that lists the child processes that have begun since the start of the test."""
    before = set(children())
    return lambda: set(children()) - before


async def assert_dead(started: RunningEngine, futures: Sequence[asyncio.Future[SequenceResult]]) -> None:
    """Check that pending futures fail and new sentences are rejected, long before any deadline."""
    await until(lambda: bool(started.deaths))
    done, pending = await asyncio.wait(futures, timeout=5.0) if futures else ((), ())
    assert not pending
    assert [type(future.exception()) for future in done] == [NotReady] * len(futures)
    assert not started.engine.health().is_alive
    with pytest.raises(NotReady):
        submit(started.engine, [5, EOS])
    with pytest.raises(NotReady):
        started.engine.reserve(1, 1)
    began = time.monotonic()
    await started.engine.close(0.0)
    assert time.monotonic() - began < CLOSE_S
    assert len(started.deaths) == 1


@pytest.mark.parametrize("is_idle", [True, False])
def test_when_a_worker_is_killed_all_futures_fail(
    plan: FakePlan, is_idle: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with running(plan) as started:
            futures = []
            if not is_idle:
                plan.hold(0, 1)
                futures = [submit(started.engine, [5 + number, EOS], WIDE) for number in range(8)]
                await started.until_held(0, 1)
                # The workers do not read these, so the connection of the killed worker is reset.
                futures += [submit(started.engine, [5 + number, EOS], WIDE) for number in range(8)]
            started.signal(signal.SIGKILL, 1)
            await assert_dead(started, futures)

    run(scenario())
    assert not [one for one in caplog.records if one.name == "asyncio"]
    (record,) = [one for one in caplog.records if one.getMessage() == "engine_process_died"]
    assert vars(record)["fields"] == {"worker": 1, "exit": "signal 9"}


def test_a_new_worker_has_the_number_and_the_status_of_the_dead_one(plan: FakePlan) -> None:
    async def scenario() -> None:
        async with running(plan, max_restarts=1) as started:
            plan.hold(0, 1)
            futures = [submit(started.engine, [5 + number, EOS], WIDE) for number in range(6)]
            await started.until_held(0, 1)
            pool, dead = started.engine._pool, started.processes[1]
            started.signal(signal.SIGKILL, 1)
            await until(lambda: pool.placement.num_workers == 1)
            assert started.step_started_at(1) is None
            assert started.step_started_at(0) is not None
            plan.release(0, 1)
            assert all(isinstance(found, SequenceResult) for found in await asyncio.gather(*futures))
            await until(lambda: pool.placement.num_workers == 2)
            new = pool._workers[1]
            assert isinstance(new, WorkerProxy)
            assert new.process_id != dead.process_id
            started.processes[1] = new
            plan.hold(1)
            future = put_into(started, 1, 30, request_id="a")
            await until(lambda: started.step_started_at(1) is not None)
            plan.release(1)
            await future
            assert {step.worker for step in started.steps} == {0, 1}
        assert plan.calls(1, "encode")[-1] == 30

    run(scenario())


def test_when_both_workers_are_killed_the_death_is_reported_once(plan: FakePlan) -> None:
    async def scenario() -> None:
        async with running(plan) as started:
            started.signal(signal.SIGKILL, 0, 1)
            await until(lambda: not any(process.is_alive for process in started.processes))
            await assert_dead(started, [])

    run(scenario())


def test_a_worker_whose_forwards_all_fail_ends_the_engine(plan: FakePlan) -> None:
    """The worker process counts max_consecutive_failures failures in a row."""

    async def scenario() -> None:
        async with running(plan) as started:
            for _ in range(SETTINGS.max_consecutive_failures - 1):
                await asyncio.wait([submit(started.engine, [POISON, EOS])])
            assert started.engine.health().is_alive
            last = [submit(started.engine, [POISON, EOS]) for _ in range(2)]
            await assert_dead(started, last)

    run(scenario())


def test_a_step_that_hangs_is_a_stall_and_its_process_is_killed(plan: FakePlan) -> None:
    async def scenario() -> None:
        async with running(plan) as started:
            await until(lambda: started.engine.health().step_age_s == 0.0)
            plan.hold(0)
            future = submit(started.engine, [5, EOS])
            await started.until_held(0)
            started.signal(signal.SIGSTOP, 0)
            plan.release(0)
            await until(lambda: started.engine.health().is_stalled)
            assert started.engine.health().is_alive
            began = time.monotonic()
            await started.engine.close(0.05)
            assert time.monotonic() - began < 0.05 + CLOSE_S
            assert isinstance(future.exception(), NotReady)
            assert started.deaths == []

    run(scenario())


def test_a_worker_ends_during_a_step_if_its_server_is_gone(plan: FakePlan) -> None:
    async def scenario() -> None:
        async with running(plan, 1) as started:
            plan.hold(0)
            submit(started.engine, [5, EOS])
            await started.until_held(0)
            (worker,) = started.processes
            worker._stop_reading()
            worker._connection.close()
            assert worker._child is not None
            assert await asyncio.to_thread(worker._child.wait, HANG_TIMEOUT_S) == 0
            assert plan.is_held(0), "the process has ended during the forward"

    run(scenario())


def test_a_worker_that_does_not_read_its_messages_is_a_stall(plan: FakePlan) -> None:
    """The worker is stopped while it is idle, so its shared status stays idle."""

    async def scenario() -> None:
        async with running(plan) as started:
            await submit(started.engine, [5, EOS])
            await started.until_idle(0)
            started.signal(signal.SIGSTOP, 0)
            await asyncio.sleep(2 * SETTINGS.stall_limit_s)
            assert started.engine.health().is_healthy
            future = submit(started.engine, [5, EOS])
            assert started.engine.health().is_healthy
            await until(lambda: started.engine.health().is_stalled)
            started.signal(signal.SIGCONT, 0)
            await future
            await started.until_idle(0)
            assert started.engine.health().is_healthy
            started.signal(signal.SIGSTOP, 0, 1)
            began = time.monotonic()
            await started.engine.close(0.05)
            assert time.monotonic() - began < 0.05 + CLOSE_S

    run(scenario())


def test_a_worker_that_reads_nothing_is_a_stall_even_if_its_sentences_are_cancelled(plan: FakePlan) -> None:
    """Each request ends before the limit of a stall, and the worker has no sentence between two requests."""

    async def scenario() -> None:
        async with running(plan) as started:
            await submit(started.engine, [5, EOS])
            await started.until_idle(0)
            started.signal(signal.SIGSTOP, 0)
            submit(started.engine, [6, EOS]).cancel()
            await asyncio.sleep(2 * SETTINGS.stall_limit_s)
            last = submit(started.engine, [7, EOS])
            assert started.engine.health().is_stalled
            last.cancel()
            await asyncio.sleep(0)
            assert not started.processes[0]._by_key
            assert started.engine.health().is_stalled
            started.signal(signal.SIGCONT, 0)
            await submit(started.engine, [8, EOS])
            await until(lambda: started.engine.health().step_age_s == 0.0)
            await asyncio.sleep(2 * SETTINGS.stall_limit_s)
            submit(started.engine, [9, EOS]).cancel()
            assert started.engine.health().is_healthy, "the time begins with the new message"

    run(scenario())


def test_the_event_loop_waits_for_room_in_a_socket_only_while_bytes_are_unsent(plan: FakePlan) -> None:
    async def scenario() -> None:
        async with running(plan, 1) as started:
            (process,) = started.processes
            started.signal(signal.SIGSTOP, 0)
            futures: list[asyncio.Future[SequenceResult]] = []
            while not process._unsent:
                futures.append(submit(started.engine, [5, EOS], SHORT, request_id="x" * 20_000))
            started.signal(signal.SIGCONT, 0)
            await asyncio.gather(*futures)
            assert not asyncio.get_running_loop().remove_writer(process._connection.fileno())

    run(scenario())


def wait_for_all(processes: Callable[[], set[int]], timeout_s: float) -> None:
    """Wait until `processes` returns none. It returns the processes that have not ended."""
    deadline = time.monotonic() + timeout_s
    while found := processes():
        assert time.monotonic() < deadline
        for process_id in found:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process_id, os.WNOHANG)
        time.sleep(0.001)


def load_all(processes: Sequence[WorkerProxy]) -> None:
    """Load the workers in the same way as `app.startup`: after an error, close all of them."""
    try:
        for process in processes:
            process.load()
    finally:
        for process in processes:
            process.close()


@pytest.mark.seconds
@pytest.mark.parametrize("number", [0, 1, SHARED])
@pytest.mark.parametrize("ends", ["BundleError", "SettingsError", "SIGKILL"])
def test_errors_of_loading_reach_the_server(
    plan: FakePlan, ends: str, number: int, new_children: Callable[[], set[int]]
) -> None:
    before = descriptors("socket:")
    fork_server = ForkServer.start(replace(plan, ends=ends, ends_in=number).command())
    processes = start_workers(fork_server, 2)
    kind = {"BundleError": BundleError, "SettingsError": SettingsError, "SIGKILL": WorkerEnded}[ends]
    with pytest.raises(kind) as caught:
        load_all(processes)
    if isinstance(caught.value, BundleError | SettingsError):
        assert caught.value.problems == PROBLEMS
        assert getattr(caught.value, "path", "fake") == "fake"
    else:
        assert str(caught.value) == (
            "an engine process ended while it loaded, with signal 9; the usual cause is too little memory"
        )
    assert not new_children()
    assert descriptors("socket:") == before


def test_closing_ends_workers_that_are_loading(plan: FakePlan, new_children: Callable[[], set[int]]) -> None:
    processes = start_workers(ForkServer.start(plan.command()), 2)
    assert new_children()
    began = time.monotonic()
    for process in processes:
        process.close()
    assert time.monotonic() - began < CLOSE_S
    assert not new_children()
    for process in processes:
        process.close()  # a second close has no effect


def test_a_failed_start_leaves_no_process_and_no_descriptor(
    plan: FakePlan, monkeypatch: pytest.MonkeyPatch, new_children: Callable[[], set[int]]
) -> None:
    gc.collect()  # shared memory of other tests
    before = descriptors("socket:"), descriptors("/memfd:transduce")
    with pytest.raises(FileNotFoundError):
        ForkServer.start(["/no/such/command"])
    assert descriptors("socket:") == before[0]
    fork_server = ForkServer.start(plan.command())
    made = [socket.socketpair()]
    monkeypatch.setattr(socket, "socketpair", made.pop)  # the second call fails
    with pytest.raises(IndexError):
        start_workers(fork_server, 2)
    assert not new_children()
    assert (descriptors("socket:"), descriptors("/memfd:transduce")) == before


@pytest.mark.parametrize("is_forking", [False, True])
def test_a_fork_server_ends_after_its_server(
    plan: FakePlan, is_forking: bool, new_children: Callable[[], set[int]]
) -> None:
    """The server ends before it sends a spec, or after the fork server has forked workers."""
    fork_server = ForkServer.start(plan.command())
    if is_forking:
        for worker in start_workers(fork_server, 2):
            worker._connection.close()
    fork_server._control.close()
    assert fork_server._process.wait(HANG_TIMEOUT_S) == 0
    wait_for_all(new_children, HANG_TIMEOUT_S)


def test_a_new_worker_that_hangs_while_it_loads_is_an_error(
    plan: FakePlan, new_children: Callable[[], set[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.workers.worker_proxy.LOAD_TIMEOUT_S", 0.05)
    (dead,) = start_workers(ForkServer.start(plan.command()), 1)
    dead.close()
    fork_server = ForkServer.start(plan.command())
    os.kill(fork_server.process_id, signal.SIGSTOP)
    in_case_it_waits = threading.Timer(30.0, fork_server.close)
    in_case_it_waits.start()
    new = dead.successor(fork_server, b"")
    try:
        with pytest.raises(TimeoutError):
            new.load()
    finally:
        in_case_it_waits.cancel()
        new.close()
    assert not new_children()


def test_a_worker_that_dies_between_loading_and_the_start_ends_the_engine(plan: FakePlan) -> None:
    async def scenario() -> None:
        (process,) = start_workers(ForkServer.start(plan.command()), 1)
        process.load()
        assert process._child is not None
        process._child.kill()
        process._child.wait()
        deaths: list[int] = []
        engine = Engine([process], settings=SETTINGS, on_death=lambda: deaths.append(1))
        engine.start()
        future = submit(engine, [5, EOS])
        with pytest.raises(NotReady):
            await asyncio.wait_for(future, HANG_TIMEOUT_S)
        assert deaths == [1]
        await engine.close(0.0)

    run(scenario())
