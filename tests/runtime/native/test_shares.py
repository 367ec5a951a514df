"""Only a part of the pool's threads works while other processes share the cores."""

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
NUM_RUNS = 50
# Microseconds for which an active worker polls for the next operator. This is longer than a test.
SPIN_US = 60_000_000
# Seconds within which a worker without work falls asleep, even on a busy machine.
SLEEP_TIMEOUT_S = 30.0


@pytest.fixture(autouse=True)
def _restored_pool() -> Iterator[None]:
    yield
    native.share_threads(1)
    native.set_num_threads(1, spin_us=150)


def tasks() -> set[Path]:
    return set(Path("/proc/self/task").iterdir())


def start_pool(num_threads: int) -> list[Path]:
    """Start a thread pool. Returns its worker threads in the order of their numbers."""
    before = tasks()
    assert native.set_num_threads(num_threads, spin_us=SPIN_US) == num_threads
    workers = sorted(tasks() - before, key=lambda task: int(task.name))
    assert len(workers) == num_threads - 1
    return workers


def is_asleep(worker: Path) -> bool:
    """Whether Linux has put the thread to sleep. A thread that polls for work never sleeps."""
    return (worker / "stat").read_text().rsplit(")", 1)[1].split()[0] == "S"


def num_time_slices(worker: Path) -> int:
    """How often Linux has let the thread run."""
    return int((worker / "schedstat").read_text().split()[2])


def wait_until_asleep(workers: list[Path]) -> None:
    """Wait until all workers sleep."""
    deadline = time.monotonic() + SLEEP_TIMEOUT_S
    while not all(map(is_asleep, workers)):
        assert time.monotonic() < deadline, "a worker without work stays awake"
        time.sleep(0.001)


def stay_asleep(workers: list[Path], run: Callable[[], object]) -> bool:
    """Call `run` NUM_RUNS times. Returns whether the workers sleep all the time."""
    before = [num_time_slices(worker) for worker in workers]
    for _ in range(NUM_RUNS):
        run()
    return [num_time_slices(worker) for worker in workers] == before


@pytest.fixture
def run() -> Callable[[], dict[str, NDArray[Any]]]:
    operator, rows = BLOCK.operator(), BLOCK.rows(150)
    return lambda: operator.run(rows)


def assert_same(found: dict[str, NDArray[Any]], expected: dict[str, NDArray[Any]]) -> None:
    assert all(np.array_equal(values, expected[name]) for name, values in found.items())


def test_the_second_thread_sleeps_while_two_processes_share_the_cores(
    run: Callable[[], dict[str, NDArray[Any]]],
) -> None:
    alone = run()
    workers = start_pool(2)
    native.share_threads(2)
    wait_until_asleep(workers)
    assert_same(run(), alone)
    assert stay_asleep(workers, run)
    native.share_threads(1)
    assert_same(run(), alone)
    assert not is_asleep(workers[0])


@pytest.mark.parametrize(("num_sharing", "num_awake"), [(2, 2), (3, 1), (4, 1), (9, 1)])
def test_of_four_threads_those_beyond_the_share_of_this_process_sleep(
    num_sharing: int, num_awake: int, run: Callable[[], dict[str, NDArray[Any]]]
) -> None:
    alone = run()
    workers = start_pool(4)
    native.share_threads(num_sharing)
    working, sleeping = workers[: num_awake - 1], workers[num_awake - 1 :]
    wait_until_asleep(sleeping)
    assert_same(run(), alone)
    assert stay_asleep(sleeping, run)
    assert not any(map(is_asleep, working))
    assert_same(run(), alone)
