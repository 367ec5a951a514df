"""A team of threads of which only a part works, because other processes share the cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from app.runtime import native
from tests.runtime.native.test_feed_forward import Block

BLOCK = Block(256, 1024)
# Operators that take some 50 ms of a thread.
NUM_RUNS = 60
# Of a helper's time is this what it takes to fall asleep and, where others are woken, to look and sleep on.
MOST_ASLEEP = 0.1
NUM_TRIALS = 20


@pytest.fixture(autouse=True)
def _all_share() -> Iterator[None]:
    yield
    native.share_threads(1)


def tasks() -> set[Path]:
    return set(Path("/proc/self/task").iterdir())


def run_time_ns(task: Path) -> int:
    """For how long a thread has run, as Linux counts it."""
    return int((task / "schedstat").read_text().split()[0])


def start_helpers(num_threads: int) -> list[Path]:
    """Helpers of a team of so many threads, in the order of their numbers."""
    before = tasks()
    assert native.set_num_threads(num_threads) == num_threads
    helpers = sorted(tasks() - before, key=lambda task: int(task.name))
    assert len(helpers) == num_threads - 1
    return helpers


def times_ns(helpers: list[Path], run: Callable[[], object]) -> list[int]:
    """How long each of them runs while the caller does some operators."""
    before = [run_time_ns(helper) for helper in helpers]
    for _ in range(NUM_RUNS):
        run()
    return [run_time_ns(helper) - start for helper, start in zip(helpers, before, strict=True)]


@pytest.fixture
def run() -> Callable[[], dict[str, NDArray[Any]]]:
    operator, rows = BLOCK.operator(), BLOCK.rows(150)
    return lambda: operator.run(rows)


def assert_same(found: dict[str, NDArray[Any]], wanted: dict[str, NDArray[Any]]) -> None:
    assert all(np.array_equal(values, wanted[name]) for name, values in found.items())


def test_who_shares_with_another_leaves_its_second_thread_asleep(
    run: Callable[[], dict[str, NDArray[Any]]],
) -> None:
    alone = run()
    helpers = start_helpers(2)
    (awake_ns,) = times_ns(helpers, run)
    assert awake_ns > 0
    native.share_threads(2)
    assert_same(run(), alone)
    (asleep_ns,) = times_ns(helpers, run)
    assert asleep_ns <= MOST_ASLEEP * awake_ns
    native.share_threads(1)
    assert_same(run(), alone)
    for _ in range(NUM_TRIALS):  # a busy machine may not let it run at once
        if times_ns(helpers, run)[0] > 2 * MOST_ASLEEP * awake_ns:
            return
    pytest.fail("the second thread was not given back")


@pytest.mark.parametrize(("num_sharing", "num_awake"), [(2, 2), (3, 1), (4, 1), (9, 1)])
def test_of_four_threads_a_part_works(
    num_sharing: int, num_awake: int, run: Callable[[], dict[str, NDArray[Any]]]
) -> None:
    alone = run()
    helpers = start_helpers(4)
    native.share_threads(num_sharing)
    assert_same(run(), alone)
    asleep = helpers[num_awake - 1 :]
    for _ in range(NUM_TRIALS):
        found = times_ns(helpers, run)
        assert_same(run(), alone)
        if num_awake == 1 or found[0] > 10 * max(found[1:]):
            assert len(asleep) == 4 - num_awake
            assert max(found[num_awake - 1 :]) <= 2_000_000
            return
    pytest.fail(f"the helpers ran for {found} ns")
