"""The load tester on a real server with the bundled model."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.server_process import ServerProcess
from transduce.loadtest.arrivals import Arrivals, ClosedLoop
from transduce.loadtest.baseline import BaselineError, baseline_answers
from transduce.loadtest.dialects import DIALECTS
from transduce.loadtest.plan import RunPlan, Target
from transduce.loadtest.runner import run
from transduce.loadtest.server_side import (
    ServerSide,
    cpu_time_s,
    difference,
    memory_mb,
    pinned,
    processes_of,
)
from transduce.loadtest.workload import built_in

pytestmark = pytest.mark.slow
KEY = "a-key-of-the-tests"


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    settings = {"api_keys": hashlib.sha256(KEY.encode()).hexdigest(), "sentence_cache_bytes": 0}
    with ServerProcess(["transduce", "serve"], settings) as running:
        yield running.ready()


def plan(server: ServerProcess, *, dialect: str = "native", mix: str = "short", **more: Any) -> RunPlan:
    made = RunPlan(
        Target(server.url, DIALECTS[dialect], api_key=KEY),
        built_in(mix),
        Arrivals.at(96.0, 0.25),
        warm_up_s=0.1,
        timeout_s=120.0,
    )
    return dataclasses.replace(made, **more)


def test_the_tester_and_the_server_count_the_same(server: ServerProcess) -> None:
    side = ServerSide(Target(server.url, api_key=KEY), server.pid)
    before = side.snapshot()
    result = run(plan(server, mix="news", warm_up_s=0.0))
    seen = difference(before, side.snapshot(), 0.25)
    assert result.outcomes == {"ok": 24}
    assert seen is not None
    assert seen["sentences_total"] == 24
    assert seen["cpu_share"] > 0
    assert seen["rows_per_step"] >= 1
    assert {"tokenise", "queue", "encode", "decode"} <= result.phases_ms.keys()
    assert result.latency is not None
    assert result.phases_ms["decode"]["mean"] < result.latency.mean_ms
    models = side.models()
    assert models is not None
    assert [model["name"] for model in models] == ["en-de-small"]


def test_distinct_texts_are_not_answered_from_the_cache() -> None:
    with ServerProcess(["transduce", "serve"]) as running:
        target = Target(running.ready().url)
        made = dataclasses.replace(plan(running), target=target)
        first, other, again = (run(dataclasses.replace(made, seed=seed)) for seed in (1, 2, 1))
        assert first.outcomes == other.outcomes == {"ok": 24}
        assert first.cached_share == other.cached_share == 0.0
        assert again.cached_share == 1.0
        at_root = Target(target.url, DIALECTS["root"])
        assert run(dataclasses.replace(made, target=at_root, seed=3)).cached_share is None


@pytest.mark.parametrize("dialect", ["native", "root"])
def test_the_native_dialect_reports_tokens_and_root_none(server: ServerProcess, dialect: str) -> None:
    """The run ends after 6 requests. Tokens/s counts responses within a minute, enough for a busy machine."""
    result = run(plan(server, dialect=dialect, load=ClosedLoop(1, 60.0, 6), warm_up_s=0.0))
    assert result.outcomes == {"ok": 6}
    assert (result.per_s["target_tokens"] > 0) == (dialect == "native")


def test_arrays_and_beams_are_answered(server: ServerProcess) -> None:
    for mix, num in (("arrays", 32), ("beams", 1)):
        load = ClosedLoop(1, 60.0, 3)
        result = run(plan(server, mix=mix, load=load, warm_up_s=0.0))
        assert result.outcomes == {"ok": 3}
        # The server may split a sentence.
        assert 3 * num <= round(result.per_s["sentences"] * 60.0) <= 1.1 * 3 * num


def test_a_request_with_a_wrong_key_counts_as_http_403(server: ServerProcess) -> None:
    result = run(plan(server, target=Target(server.url, api_key="wrong")))
    assert result.outcomes == {"ok": 0, "http_403": 24}


def test_translations_under_load_equal_those_of_the_idle_server(server: ServerProcess) -> None:
    made = plan(server, workload=built_in("short", is_distinct=False))
    result = run(made, expected=baseline_answers(made, 20))
    assert result.quality is not None
    assert result.quality["exact_share"] == 1.0
    assert result.quality["num_texts"] >= 20
    with pytest.raises(BaselineError, match="distinct"):
        baseline_answers(plan(server), 20)


def test_a_server_answers_after_cancelled_requests(server: ServerProcess) -> None:
    workload = dataclasses.replace(built_in("bimodal"), disconnect_share=1.0, disconnect_within_s=0.01)
    result = run(plan(server, workload=workload))
    assert result.outcomes["disconnected"] >= 12
    assert set(result.outcomes) <= {"ok", "disconnected"}
    after = run(plan(server))
    assert after.outcomes == {"ok": 24}


def test_the_processes_of_a_server_are_measured_together() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 60 & wait"], start_new_session=True) as shell:
        try:
            deadline = time.monotonic() + 30.0
            while len(processes_of(shell.pid)) < 2 and time.monotonic() < deadline:
                time.sleep(0.01)
            own, child = processes_of(shell.pid)
            assert own == shell.pid
            assert memory_mb(own) > 0
            assert memory_mb(child) > 0
        finally:
            os.killpg(shell.pid, signal.SIGKILL)
    assert cpu_time_s(shell.pid) == memory_mb(shell.pid) == 0
    with pytest.raises(OSError, match=str(shell.pid)):
        processes_of(shell.pid)


def test_memory_of_another_users_server_is_not_reported() -> None:
    """Process 1 belongs to root. If root runs the test, the test reads as user 65534."""
    is_root = os.geteuid() == 0
    side = ServerSide(Target("http://127.0.0.1:9"), 1)
    side.snapshot()  # imports modules now, because user 65534 may not be able to read them
    if is_root:
        os.seteuid(65534)
    try:
        snapshot = side.snapshot()
    finally:
        if is_root:
            os.seteuid(0)
    assert snapshot.cpu_s is not None
    assert snapshot.pss_mb is None
    found = difference(snapshot, snapshot, 1.0)
    assert found == {"cpu_share": 0.0}


def test_server_and_tester_are_pinned_to_different_cores(server: ServerProcess) -> None:
    with pinned(server.pid) as pinning:
        if not pinning.server:
            pytest.skip("one core")
        assert set(pinning.server).isdisjoint(pinning.tester)
        assert {core for each in processes_of(server.pid) for core in os.sched_getaffinity(each)} == {
            *pinning.server
        }
        assert run(plan(server)).outcomes == {"ok": 24}
    with pinned(None) as nothing:
        assert nothing.server == ()


def test_a_process_that_starts_while_its_server_is_pinned_is_released_too() -> None:
    command = ["sh", "-c", "read line; sleep 60 & wait"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as shell:
        try:
            allowed = os.sched_getaffinity(shell.pid)
            with pinned(shell.pid) as pinning:
                if not pinning.server:
                    pytest.skip("one core")
                assert shell.stdin is not None
                shell.stdin.write(b"\n")
                shell.stdin.flush()
                deadline = time.monotonic() + 30.0
                while len(processes_of(shell.pid)) < 2 and time.monotonic() < deadline:
                    time.sleep(0.01)
                _, child = processes_of(shell.pid)
                assert os.sched_getaffinity(child) == {*pinning.server}
            assert os.sched_getaffinity(child) == os.sched_getaffinity(shell.pid) == allowed
        finally:
            os.killpg(shell.pid, signal.SIGKILL)
