"""The fork server starts before the settings are read, if the environment suggests worker processes."""

from __future__ import annotations

import os
import signal

import pytest

from app.workers import early_start
from tests.engine.test_engine import HANG_TIMEOUT_S
from tests.workers.running_engine import children


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


def test_a_fork_server_that_cannot_be_started_is_no_error_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSDUCE_NUM_LANES", "2")
    monkeypatch.setattr("sys.executable", "/no/such/command")
    assert early_start.start_early() is None


def test_signals_do_not_end_the_fork_server_even_before_it_runs() -> None:
    """A terminal sends its signals to every process of the group, and only the server must handle them."""
    fork_server = early_start.start_fork_server()
    try:
        for one in (signal.SIGINT, signal.SIGTERM):
            os.kill(fork_server.process_id, one)
        fork_server._control.close()
        assert fork_server._process.wait(HANG_TIMEOUT_S) == 0
    finally:
        fork_server.close()
