"""Decides how many decoder steps one call of the runner takes, and what ends it earlier.

With more steps in a call, less time is spent between calls. But only between calls are new sequences admitted and ended
ones answered.
"""

from __future__ import annotations

import math

from app.runtime.stop_condition import NO_EARLY_STOP, StopCondition, WakeFlag

# A call of several steps stops early when a new sequence can be admitted, but takes at least the steps that fit into
# this many seconds, and at least one step. Smaller: calls become so short that the work between them costs speed.
# Larger: new sequences wait longer for their admission, and ended ones for their answer.
MIN_CALL_S = 0.003
# A short call takes MIN_CALL_S, or up to FEW_STEPS steps within MAX_FEW_S seconds, whichever is longer. If no row is
# free or sequences wait, the whole call is short. Any other call takes at most the steps of a short call, counted from
# the step in which its first sequence ends. If a short call took only MIN_CALL_S, the work between calls of many rows
# would take a tenth of the time instead of a thirtieth.
FEW_STEPS, MAX_FEW_S = 4, 0.015
# The maximum length of a call, in seconds. Cancelled and expired sequences stop it early too. Larger: reports come
# later.
MAX_CALL_S = 0.2
# The maximum number of steps of a call while a sequence is streamed. Larger: tokens come in larger groups, and the rows
# of a client that disconnects are freed later.
MAX_STEPS_STREAMED = 2


class CallLength:
    """Chooses the length of each call of one runner by the time of the last call. Belongs to the engine thread."""

    def __init__(self, max_steps: int, wake_flag: WakeFlag) -> None:
        """max_steps: of the runner. wake_flag: set when a message arrives for which a call stops early."""
        self._max_steps = max_steps
        self._wake_flag = wake_flag
        # Seconds of one decoder step in the last call, and the rows that it decoded.
        self._last_step_s, self._last_num_rows = math.inf, 1

    def record(self, time_s: float, num_steps: int, num_rows: int) -> None:
        """Record a call: its time in seconds, its steps, and the rows that it decoded."""
        self._last_step_s, self._last_num_rows = time_s / num_steps, num_rows

    def choose(
        self,
        num_rows: int,
        *,
        admits_next: bool,
        has_waiting: bool,
        is_full: bool,
        is_streaming: bool,
        pause_s: float | None,
    ) -> tuple[int, StopCondition]:
        """Return how many steps the next call may take, and what stops it earlier.

        num_rows: rows to decode. A step of more rows than in the last call is assumed to take longer in proportion.
        admits_next: whether sequences will be admitted after this call, because only the encoding budget has kept them
            waiting, or because sequences restart after a failed forward.
        has_waiting: whether sequences wait. is_full: whether no row is free. is_streaming: whether a sequence is
            streamed.
        pause_s: seconds for which the paused sequences may wait; None if none is paused.
        """
        max_steps = self._max_steps
        if max_steps == 1 or admits_next:
            return 1, NO_EARLY_STOP
        if is_streaming:
            max_steps = min(max_steps, MAX_STEPS_STREAMED)
        step_s = max(self._last_step_s * max(1.0, num_rows / self._last_num_rows), 1e-6)
        min_steps = int(MIN_CALL_S / step_s)
        short = max(1, min_steps, min(FEW_STEPS, int(MAX_FEW_S / step_s)))
        if pause_s is not None:
            max_steps = max(1, min(max_steps, int(pause_s / step_s)))
        if is_full:
            return min(max_steps, short), NO_EARLY_STOP
        longest = short if has_waiting else int(MAX_CALL_S / step_s)
        return max(1, min(max_steps, longest)), StopCondition(short - 1, self._wake_flag, min_steps)
