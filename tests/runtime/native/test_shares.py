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
# Number of operators in which a working helper thread runs for some 50 ms.
NUM_RUNS = 300
# The least time that a working helper runs in one of the trials: on a busy machine it may start late.
AWAKE_NS = 10_000_000
NUM_TRIALS = 20
# The most time that a sleeping helper runs: it falls asleep, and wakes for nothing when others are woken.
ASLEEP_NS = 8_000_000


@pytest.fixture(autouse=True)
def _all_share() -> Iterator[None]:
    yield
    native.share_threads(1)


def tasks() -> set[Path]:
    return set(Path("/proc/self/task").iterdir())


def run_time_ns(task: Path) -> int:
    """The CPU time of a thread, from Linux."""
    return int((task / "schedstat").read_text().split()[0])


def start_helpers(num_threads: int) -> list[Path]:
    """Helpers of a team of so many threads, in the order of their numbers."""
    before = tasks()
    assert native.set_num_threads(num_threads) == num_threads
    helpers = sorted(tasks() - before, key=lambda task: int(task.name))
    assert len(helpers) == num_threads - 1
    return helpers


def times_ns(helpers: list[Path], run: Callable[[], object]) -> list[int]:
    """How long each helper runs while the caller runs some operators."""
    before = [run_time_ns(helper) for helper in helpers]
    for _ in range(NUM_RUNS):
        run()
    return [run_time_ns(helper) - start for helper, start in zip(helpers, before, strict=True)]


def works(helper: Path, run: Callable[[], object]) -> bool:
    """Whether a helper works on the caller's operators."""
    return any(times_ns([helper], run)[0] >= AWAKE_NS for _ in range(NUM_TRIALS))


@pytest.fixture
def run() -> Callable[[], dict[str, NDArray[Any]]]:
    operator, rows = BLOCK.operator(), BLOCK.rows(150)
    return lambda: operator.run(rows)


def assert_same(found: dict[str, NDArray[Any]], wanted: dict[str, NDArray[Any]]) -> None:
    assert all(np.array_equal(values, wanted[name]) for name, values in found.items())


def test_with_two_runners_the_second_thread_sleeps(
    run: Callable[[], dict[str, NDArray[Any]]],
) -> None:
    alone = run()
    helpers = start_helpers(2)
    assert works(helpers[0], run)
    native.share_threads(2)
    assert_same(run(), alone)
    (asleep_ns,) = times_ns(helpers, run)
    assert asleep_ns <= ASLEEP_NS
    native.share_threads(1)
    assert_same(run(), alone)
    assert works(helpers[0], run)


@pytest.mark.parametrize(("num_sharing", "num_awake"), [(2, 2), (3, 1), (4, 1), (9, 1)])
def test_a_share_of_four_threads_works(
    num_sharing: int, num_awake: int, run: Callable[[], dict[str, NDArray[Any]]]
) -> None:
    alone = run()
    helpers = start_helpers(4)
    native.share_threads(num_sharing)
    assert_same(run(), alone)
    assert max(times_ns(helpers[num_awake - 1 :], run)) <= ASLEEP_NS
    assert num_awake == 1 or works(helpers[0], run)
    assert_same(run(), alone)
