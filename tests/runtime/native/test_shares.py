"""A thread pool of which only a part works, because other processes share the cores."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from app.runtime import native
from tests.runtime.native.test_feed_forward import Block

BLOCK = Block(256, 1024)
NUM_RUNS = 300
# A helper that may work polls this long for the next operator, in microseconds. So it does not sleep within a test.
SPIN_US = 60_000_000
# Seconds within which a helper without work falls asleep, even on a busy machine.
SLEEP_TIMEOUT_S = 30.0


@pytest.fixture(autouse=True)
def _all_share() -> Iterator[None]:
    yield
    native.share_threads(1)
    native.set_num_threads(1, spin_us=150)


def tasks() -> set[Path]:
    return set(Path("/proc/self/task").iterdir())


def start_helpers(num_threads: int) -> list[Path]:
    """Start a thread pool. Returns its helper threads in the order of their numbers."""
    before = tasks()
    assert native.set_num_threads(num_threads, spin_us=SPIN_US) == num_threads
    helpers = sorted(tasks() - before, key=lambda task: int(task.name))
    assert len(helpers) == num_threads - 1
    return helpers


def is_asleep(helper: Path) -> bool:
    """Whether Linux has put the thread to sleep. A thread that polls for work never sleeps."""
    return (helper / "stat").read_text().rsplit(")", 1)[1].split()[0] == "S"


def num_time_slices(helper: Path) -> int:
    """How often Linux has let the thread run."""
    return int((helper / "schedstat").read_text().split()[2])


def wait_until_asleep(helpers: list[Path]) -> None:
    """Wait until all helpers sleep."""
    deadline = time.monotonic() + SLEEP_TIMEOUT_S
    while not all(map(is_asleep, helpers)):
        assert time.monotonic() < deadline, "a helper without work stays awake"
        time.sleep(0.001)


def stay_asleep(helpers: list[Path], run: Callable[[], object]) -> bool:
    """Run some operators. Returns whether the helpers sleep all the time."""
    before = [num_time_slices(helper) for helper in helpers]
    for _ in range(NUM_RUNS):
        run()
    return [num_time_slices(helper) for helper in helpers] == before


@pytest.fixture
def run() -> Callable[[], dict[str, NDArray[Any]]]:
    operator, rows = BLOCK.operator(), BLOCK.rows(150)
    return lambda: operator.run(rows)


def assert_same(found: dict[str, NDArray[Any]], expected: dict[str, NDArray[Any]]) -> None:
    assert all(np.array_equal(values, expected[name]) for name, values in found.items())


def test_with_two_runners_the_second_thread_sleeps(
    run: Callable[[], dict[str, NDArray[Any]]],
) -> None:
    alone = run()
    helpers = start_helpers(2)
    native.share_threads(2)
    wait_until_asleep(helpers)
    assert_same(run(), alone)
    assert stay_asleep(helpers, run)
    native.share_threads(1)
    assert_same(run(), alone)
    assert not is_asleep(helpers[0])


@pytest.mark.parametrize(("num_sharing", "num_awake"), [(2, 2), (3, 1), (4, 1), (9, 1)])
def test_a_share_of_four_threads_works(
    num_sharing: int, num_awake: int, run: Callable[[], dict[str, NDArray[Any]]]
) -> None:
    alone = run()
    helpers = start_helpers(4)
    native.share_threads(num_sharing)
    working, sleeping = helpers[: num_awake - 1], helpers[num_awake - 1 :]
    wait_until_asleep(sleeping)
    assert_same(run(), alone)
    assert stay_asleep(sleeping, run)
    assert not any(map(is_asleep, working))
    assert_same(run(), alone)
