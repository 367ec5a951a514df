"""A session or runner on a GPU is freed while no other thread captures a graph."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from app.runtime import cuda_threads
from app.runtime.cuda_runner import CudaRunner, GpuSession
from app.runtime.cuda_threads import WHOLE_DEVICE


class Probe:
    """Records whether another thread could capture when it is freed."""

    def __init__(self, found: list[bool]) -> None:
        self._found = found

    def __del__(self) -> None:
        def try_to_capture() -> None:
            if WHOLE_DEVICE.acquire(blocking=False):
                WHOLE_DEVICE.release()
                self._found.append(True)
            else:
                self._found.append(False)

        other = threading.Thread(target=try_to_capture)
        other.start()
        other.join()


@pytest.mark.parametrize("kind", [GpuSession, CudaRunner])
def test_no_thread_captures_while_a_session_or_runner_is_freed(kind: Any) -> None:
    """This holds, too, for an object whose load has failed, and which has only some of its attributes."""
    found: list[bool] = []
    owner = kind.__new__(kind)
    owner.session = Probe(found)
    del owner
    assert found == [False]
    assert WHOLE_DEVICE.acquire(blocking=False), "the lock is free again"
    WHOLE_DEVICE.release()


def test_the_end_waits_for_a_capture_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_threads, "MAX_WAIT_S", 0.01)
    found: list[bool] = []
    owner = GpuSession.__new__(GpuSession)
    vars(owner)["session"] = Probe(found)
    with WHOLE_DEVICE:
        ending = threading.Thread(target=cuda_threads.free_attributes, args=(owner,))
        ending.start()
        ending.join()
    assert found == [False], "freed, although this thread has the lock"
