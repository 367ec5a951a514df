"""A session or runner on a GPU is freed while no other thread captures a graph."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from app.runtime import cuda_threads
from app.runtime.cuda_runner import CudaRunner, GpuSession
from app.runtime.cuda_threads import WHOLE_DEVICE


def another_thread_can_capture() -> bool:
    """Whether another thread could capture a graph now."""

    def try_to_capture() -> None:
        found.append(WHOLE_DEVICE.acquire(blocking=False))
        if found[0]:
            WHOLE_DEVICE.release()

    found: list[bool] = []
    other = threading.Thread(target=try_to_capture)
    other.start()
    other.join()
    return found[0]


class Probe:
    """When a probe is freed, it records whether another thread could capture a graph at that moment."""

    def __init__(self, found: list[bool]) -> None:
        self._found = found

    def __del__(self) -> None:
        self._found.append(another_thread_can_capture())


@pytest.mark.parametrize("kind", [GpuSession, CudaRunner])
def test_no_thread_captures_while_a_session_or_runner_is_freed(kind: Any) -> None:
    """The object has only some of its attributes, as after a failed load."""
    found: list[bool] = []
    owner = kind.__new__(kind)
    owner.session = Probe(found)
    del owner
    assert found == [False]
    assert another_thread_can_capture(), "the lock is free again"


def test_an_object_is_freed_during_a_capture_if_that_lasts_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_threads, "MAX_WAIT_S", 0.01)
    found: list[bool] = []
    owner = GpuSession.__new__(GpuSession)
    vars(owner)["session"] = Probe(found)
    with WHOLE_DEVICE:
        ending = threading.Thread(target=cuda_threads.free_attributes, args=(owner,))
        ending.start()
        ending.join()
    assert found == [False], "freed, although this thread has the lock"
