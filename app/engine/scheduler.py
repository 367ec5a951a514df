"""Who runs: admission of waiting sentences to cache rows, their end, and what happens after a failed forward.

No preemption: a sentence reserves its beam's rows and its target length at admission, so it always
finishes. When the sentence whose turn it is does not fit, nobody overtakes it: a wide beam is never
starved by narrow ones. A step admits sentences of at most max_encode_tokens source subwords, so running
rows wait at most that long for newcomers.

How long a sentence can wait, failed forwards aside: with R rows, beams of at most B and targets of at
most T subwords, at least floor(R / B) sentences are admitted in every T + 1 steps (or all that wait), but one
a step where the encoding budget allows no more; a sentence that the loop guard begins again counts its steps
twice. `FairQueue` bounds how many are admitted before it: with
W of them, it is admitted within (W // floor(R / B) + 1) * (T + 1) + W + 1 steps.

After a failed forward nobody knows which row broke it, and all rows' caches are lost. Everyone on
board starts again from its source: first one half alone, then the other, and a half that fails is
halved again, until the one that fails alone is failed. The others lose time, never their answer.
While a half runs nobody else is admitted.
"""

from __future__ import annotations

import math
from collections import deque

from app.engine.fair_queue import FairQueue
from app.engine.sequence import Sequence, Status
from app.engine.slots import Slots


class Scheduler:
    """Owns the queue, the rows' bookkeeping and the running sentences. Makes no call to the runner.

    running: sentences that hold rows, in order of admission (a dict's keys, for removal in constant time).
    """

    def __init__(self, num_rows: int, max_encode_tokens: int) -> None:
        self.slots = Slots(num_rows)
        self.running: dict[Sequence, None] = {}
        self._max_encode_tokens = max_encode_tokens
        self._queue = FairQueue()
        self._retries: deque[list[Sequence]] = deque()
        self._is_retrying = False
        self._next_deadline = math.inf  # nobody's who runs or starts again is earlier

    @property
    def num_waiting(self) -> int:
        """Sentences that wait for rows, those that start again included."""
        num_retried = 0
        if self._retries:
            num_retried = sum(one.status is Status.WAITING for half in self._retries for one in half)
        return len(self._queue) + num_retried

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self.running or self._queue or self._retries)

    def add(self, sequence: Sequence) -> None:
        """Let a sentence wait for its turn."""
        self._queue.push(sequence)

    def join(self, sequence: Sequence, caller: str, request_id: str, deadline: float) -> None:
        """Another request waits for a sentence: it is served in whose turn comes first, and has the later deadline."""
        sequence.deadline = max(sequence.deadline, deadline)
        self._queue.push_again(sequence, caller, request_id)

    def hasten(self, sequence: Sequence) -> None:
        """Its request has waited its turn before and is next, for one sentence."""
        self._queue.hasten(sequence)

    def end(self, sequence: Sequence) -> None:
        """Answered, failed, cancelled or expired: its rows are free at once, and it waits no more."""
        if sequence.status is Status.RUNNING:
            del self.running[sequence]
            self.slots.release(sequence)
        elif sequence.status is Status.WAITING:
            self._queue.remove(sequence)  # where it is one of a half, its status tells
        sequence.status = Status.ENDED

    def expired(self, now: float) -> list[Sequence]:
        """Sentences whose time has run out, of those that run or start again; `schedule` finds those in the queue."""
        if now < self._next_deadline:
            return []
        begun = list(self.running)
        for half in self._retries:
            begun += [sequence for sequence in half if sequence.status is Status.WAITING]
        deadlines = [sequence.deadline for sequence in begun]
        self._next_deadline = min((at for at in deadlines if at > now), default=math.inf)
        return [sequence for sequence, at in zip(begun, deadlines, strict=True) if at <= now]

    def schedule(self, now: float) -> tuple[list[Sequence], list[Sequence]]:
        """Admit who fits, in turn. Returns the admitted, each with its first row, and those found expired."""
        if self._is_retrying:
            self._is_retrying = bool(self.running or self._retries)
        if self._is_retrying:
            return self._next_half(), []
        admitted: list[Sequence] = []
        expired: list[Sequence] = []
        budget = self._max_encode_tokens
        while (sequence := self._queue.peek()) is not None:
            if sequence.deadline <= now:
                self.end(sequence)
                expired.append(sequence)
                continue
            budget -= len(sequence.source_ids)
            if budget < 0 or not self.slots.can_admit(sequence):
                break
            self._admit(self._queue.pop())
            admitted.append(sequence)
        return admitted, expired

    def halve_running(self) -> list[Sequence]:
        """After a forward failed: everyone on board starts again, half of them at a time. Returns them."""
        board = list(self.running)
        for sequence in board:
            self.slots.release(sequence)
            sequence.restart()
        self.running.clear()
        middle = len(board) // 2
        self._retries.extendleft((board[middle:], board[:middle]))
        self._is_retrying = True
        return board

    def _next_half(self) -> list[Sequence]:
        """The next sentences to try by themselves, once those that run have ended."""
        half: list[Sequence] = []
        while not self.running and not half and self._retries:
            half = [sequence for sequence in self._retries.popleft() if sequence.status is Status.WAITING]
        for sequence in half:
            self._admit(sequence)
        return half

    def _admit(self, sequence: Sequence) -> None:
        self.slots.admit(sequence)
        sequence.status = Status.RUNNING
        self.running[sequence] = None
        self._next_deadline = min(self._next_deadline, sequence.deadline)
