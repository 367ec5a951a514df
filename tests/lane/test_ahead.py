"""Whether the lanes' process is started before the settings are read."""

from __future__ import annotations

import os
import signal

import pytest

from app.lane import ahead
from tests.engine.lanes import children
from tests.engine.test_engine import PATIENCE_S


@pytest.mark.parametrize(
    ("environment", "num_cores", "is_started"),
    [
        ({}, 2, True),
        ({}, 1, False),
        ({"NUM_LANES": "1"}, 4, False),
        ({"NUM_LANES": "3", "DEVICE": "cuda"}, 1, True),
        ({"NUM_LANES": "0", "NUM_THREADS": "1"}, 4, False),
        ({"NUM_LANES": "", "NUM_THREADS": "2"}, 1, True),
        ({"NUM_LANES": "many", "NUM_THREADS": "-1"}, 2, True),  # the settings' reader refuses them
        ({"DEVICE": "cuda"}, 4, False),
        ({"DEVICE": "auto"}, 4, True),
    ],
)
def test_it_is_where_there_will_be_lanes(
    environment: dict[str, str], num_cores: int, is_started: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NUM_LANES", "NUM_THREADS", "DEVICE"):
        monkeypatch.delenv(f"TRANSDUCE_{name}", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(f"TRANSDUCE_{name}", value)
    monkeypatch.setattr(ahead, "num_usable_cores", lambda: num_cores)
    monkeypatch.setattr(ahead, "has_cuda_provider", lambda: False)
    origin = ahead.start_ahead()
    try:
        assert (origin is not None) == is_started
    finally:
        if origin is not None:
            assert origin.process_id in children()
            origin.leave()
            assert origin.process_id not in children()


def test_a_process_that_cannot_be_started_is_not_told_of_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSDUCE_NUM_LANES", "2")
    monkeypatch.setattr("sys.executable", "/no/such/command")
    assert ahead.start_ahead() is None


def test_the_servers_signals_do_not_end_it_however_early_they_come() -> None:
    """A terminal sends them to every process of its group."""
    origin = ahead.start_origin()
    try:
        for one in (signal.SIGINT, signal.SIGTERM):
            os.kill(origin.process_id, one)
        origin._control.close()
        assert origin._process.wait(PATIENCE_S) == 0
    finally:
        origin.leave()
