"""Clients and faults of every class at once cost no answer and leave nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.chaos import State, run_chaos

# Chaos ends as soon as each fault has come and each class of clients has acted this often.
MIN_ACTIONS = 5


@pytest.mark.slow
@pytest.mark.server
def test_chaos(tmp_path: Path) -> None:
    seen, problems = run_chaos(tmp_path, seconds=0.0, min_actions=MIN_ACTIONS, seed=1)
    assert problems == []
    assert min(seen.faults.values()) >= 1


def test_growth_is_seen() -> None:
    before = State(num_children=2, num_descriptors=50, num_threads=9, memory_mb=100.0)
    after = State(num_children=3, num_descriptors=51, num_threads=10, memory_mb=200.0)
    assert after.growth_over(before) == [
        "num_children: 3, before 2",
        "num_descriptors: 51, before 50",
        "memory_mb: 200, before 100",
    ]
    assert before.growth_over(after) == []
