"""The counts by which the engine chooses the worker of a sentence."""

from __future__ import annotations

import pytest

from app.engine.placement import FEW_ROWS, Placement
from tests.engine.test_worker_deaths import RecordingWorker


@pytest.fixture
def workers() -> tuple[RecordingWorker, RecordingWorker]:
    return RecordingWorker(), RecordingWorker()


@pytest.fixture
def placement(workers: tuple[RecordingWorker, RecordingWorker]) -> Placement:
    placement = Placement()
    for worker in workers:
        placement.add_worker(worker)
    return placement


def test_a_removed_worker_leaves_no_count(
    placement: Placement, workers: tuple[RecordingWorker, RecordingWorker]
) -> None:
    first, second = workers
    placement.add(first, "caller", FEW_ROWS)
    placement.add(second, "caller", 1)
    placement.remove_worker(first)
    placement.remove(first, "caller", FEW_ROWS)  # the sentence ends after its worker
    placement.remove(second, "caller", 1)
    assert placement.num_workers == 1
    assert not placement._rows_of_callers
    assert placement.choose() is second
    assert placement.add(second, "caller", 1) == 0


def test_a_worker_takes_sentences_until_it_has_enough_rows(
    placement: Placement, workers: tuple[RecordingWorker, RecordingWorker]
) -> None:
    first, second = workers
    placement.add(first, "caller", FEW_ROWS - 1)
    assert placement.choose() is first
    placement.add(first, "caller", 1)
    assert placement.choose() is second
