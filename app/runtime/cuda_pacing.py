"""Decides how many steps of one call are enqueued on a GPU, and when the host waits for an earlier one.

A call may take `StopCondition.steps_after_end` steps after the first step in which a row ends. If the call has at most
steps_after_end + 1 steps and no wake flag, nothing can end it early: the host enqueues all its steps at once. In any
other call the host keeps at most MAX_AHEAD steps enqueued. Before it enqueues another step, it waits for the end of an
earlier one. So the host reads in time which rows have ended, and the GPU has the next step before the present step
ends. If a call must end with the step in which a row ends (`steps_after_end` is 0), the host keeps only one step
enqueued, and the GPU waits for the host between two steps.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from app.runtime.cuda_memory import Cuda
from app.runtime.interface import Int32s
from app.runtime.stop_condition import StopCondition

# The maximum number of steps enqueued at once in a call that may end early. If 1, the GPU idles between two steps. If 3
# or more, a call ends later.
MAX_AHEAD = 2
RUNNING = -1


class Pacing:
    """Paces the steps of calls, one call at a time.

    In a call with beams, a beam takes the place of a row here.

    ended_at: (num_rows,) host memory in which kernels write the step in which a row ends. RUNNING until then.
    must_end: (1,) host memory in which kernels write 1 if the call should end. The call may still take further steps.
    """

    def __init__(self, cuda: Cuda, num_rows: int) -> None:
        """Allocate memory and events for at most num_rows rows. Raises EngineFailure."""
        self._cuda = cuda
        self._memory = cuda.allocate_host(4 * (num_rows + 1))
        self.ended_at: Int32s = self._memory.view(np.int32)[:num_rows]
        self.must_end: Int32s = self._memory.view(np.int32)[num_rows:]
        self._events = [cuda.make_event() for _ in range(MAX_AHEAD)]

    def steps(self, num_rows: int, max_steps: int, stop: StopCondition) -> Iterator[int]:
        """Yield the number of each step of a call. The caller enqueues the step before it takes the next number.

        num_rows: rows that can end. max_steps: the maximum number of steps.
        """
        ended_at = self.ended_at[:num_rows]
        ended_at[:] = RUNNING
        self.must_end[0] = 0
        is_paced = stop.wake_flag is not None or stop.steps_after_end < max_steps - 1
        # With fewer steps after an end, the host must learn of the end sooner.
        num_ahead = min(MAX_AHEAD, stop.steps_after_end + 1)
        for number in range(max_steps):
            if is_paced and number >= num_ahead:
                self._cuda.wait_for(self._events[number % num_ahead])
            if is_paced and number and (self.must_end[0] or _is_over(number, ended_at, stop)):
                return
            yield number
            if is_paced:
                self._cuda.record(self._events[number % num_ahead])


def _is_over(number: int, ended_at: Int32s, stop: StopCondition) -> bool:
    """Whether a call ends before this step."""
    ended = ended_at[ended_at != RUNNING]
    if len(ended) and (len(ended) == len(ended_at) or number > ended.min() + stop.steps_after_end):
        return True
    return stop.wake_flag is not None and number >= stop.min_steps and stop.wake_flag.is_set
