"""Who runs: admission of waiting sentences to cache rows, their end, and what happens after a failed forward.

No preemption: a sentence reserves its beam's rows and its target length at admission, so it always
finishes. A step admits sentences of at most max_encode_tokens source subwords, so running
rows wait at most that long for newcomers.

Of R rows K are kept for callers that come. A caller holds at most (R - K) / K times as many rows as stay free when
it is given more, so that one that is alone holds R - K, two some 4 R / 9 each where K is a fifth of R, and a few rows
are free for the next one. A caller that holds none gets any that are free. One that has its part is passed over until
rows become free; where the first sentence of a caller that holds none does not fit, nobody overtakes it: a wide beam is
never starved by narrow ones. A sentence stays for at most as many steps as its target is long, and never past its
deadline.

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
from collections.abc import Collection

from app.engine.fair_queue import FairQueue
from app.engine.sequence import Sequence, Status
from app.engine.slots import Slots


class Scheduler:
    """Owns the queue, the rows' bookkeeping and the running sentences. Makes no call to the runner.

    running: sentences that hold rows, in order of admission (a dict's keys, for removal in constant time).
    num_held_rows: of each caller that holds any, those that are reserved for its sentences.
    stopped_at_budget: whether more could be admitted at once, but for the budget of the last step's encoding.
    """

    def __init__(self, num_rows: int, max_encode_tokens: int, *, num_kept_rows: int = 0) -> None:
        """num_kept_rows: of num_rows, those that no caller holds while it is alone."""
        self.slots = Slots(num_rows)
        self.num_held_rows: dict[str, int] = {}
        self.stopped_at_budget = False
        self._num_kept_rows = num_kept_rows
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
        if sequence.status is Status.RUNNING:
            held = self.num_held_rows
            if held.get(caller, 0) < held[sequence.caller]:  # it is counted to the one that holds less
                self._count(sequence, -1)
                sequence.caller = caller
                self._count(sequence, 1)

    def prioritize(self, sequence: Sequence) -> None:
        """Its request has waited its turn before and is next, for one sentence."""
        self._queue.prioritize(sequence)

    def end(self, sequence: Sequence) -> None:
        """Answered, failed, cancelled or expired: its rows are free at once, and it waits no more."""
        if sequence.status is Status.RUNNING:
            del self.running[sequence]
            self._count(sequence, -1)
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

    @property
    def callers(self) -> Collection[str]:
        """Those that have a sentence here, running or waiting."""
        held, waiting = self.num_held_rows.keys(), self._queue.callers
        return held | waiting if waiting else held

    def schedule(
        self, now: float, favoured: Collection[str] | None = None
    ) -> tuple[list[Sequence], list[Sequence]]:
        """Admit who fits, in turn. Returns the admitted, each with its first row, and those found expired.

        favoured: the callers whose sentences are admitted; None: all.
        """
        if self._is_retrying:
            self._is_retrying = bool(self.running or self._retries)
        self.stopped_at_budget = self._is_retrying
        if self._is_retrying:
            return self._next_half(), []
        admitted: list[Sequence] = []
        expired: list[Sequence] = []
        passed_over = set() if favoured is None else {*self._queue.callers} - {*favoured}
        budget = self._max_encode_tokens
        while (turn := self._queue.peek(passed_over)) is not None:
            caller, sequence = turn
            if sequence.deadline <= now:
                self.end(sequence)
                expired.append(sequence)
            elif not self._has_part_left(caller, sequence.num_reserved_rows):
                passed_over.add(caller)
            elif not self.slots.can_admit(sequence):
                break
            elif len(sequence.source_ids) > budget:
                self.stopped_at_budget = True
                break
            else:
                budget -= len(sequence.source_ids)
                self._queue.pop(caller)
                sequence.caller = caller  # of those that wait for it
                self._admit(sequence)
                admitted.append(sequence)
        return admitted, expired

    def _has_part_left(self, caller: str, num_rows: int) -> bool:
        """Whether a caller may be given so many rows beside those that it holds; see above."""
        held = self.num_held_rows.get(caller, 0)
        if not held or not self._num_kept_rows:
            return True
        most = self.slots.num_rows
        num_free = most - self.slots.num_reserved - num_rows
        return (held + num_rows) * self._num_kept_rows <= (most - self._num_kept_rows) * num_free

    def halve_running(self) -> list[Sequence]:
        """After a forward failed: everyone on board starts again, half of them at a time. Returns them."""
        board = list(self.running)
        for sequence in board:
            self._count(sequence, -1)
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
        self._count(sequence, 1)
        self._next_deadline = min(self._next_deadline, sequence.deadline)

    def _count(self, sequence: Sequence, sign: int) -> None:
        """Its rows are its caller's from now on, or no longer."""
        held = self.num_held_rows
        held[sequence.caller] = held.get(sequence.caller, 0) + sign * sequence.num_reserved_rows
        if not held[sequence.caller]:
            del held[sequence.caller]
