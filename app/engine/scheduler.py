"""Decides which sequences run: their admission to cache rows, their end, and their retries after a failed forward.

No preemption: at admission a sequence reserves the rows of its beam, each with room for its longest possible target,
so it always finishes. The sequences that a step admits have at most max_encode_tokens source subwords together, except
after a failed forward. This limits how long the running rows wait for the encoder.

Rows for later callers. Of R rows, K are kept for callers that come later. A caller that already holds rows gets more
only if afterwards (rows that it holds) <= (R - K) / K * (free rows). So a single caller holds up to R - K rows. If K is
a fifth of R, two callers hold up to about 4 R / 9 each, and a few rows stay free for the next caller. A caller that
holds no rows may take any free ones. A caller at its limit is skipped. If the first sequence of a caller without rows
does not fit, no other sequence is admitted before it, so narrow beams cannot starve a wide one. A sequence holds its
rows for at most as many steps as its target is long, and not past its deadline.

Bound on waiting. It holds if no forward fails, no rows pause (app/engine/caller_fairness.py) and no rows are kept for
later callers. Let there be R rows, beams of at most B rows and targets of at most T subwords. Then at least
floor(R / B) sequences (or all that wait) are admitted in every T + 1 steps. In a step where only the encoding budget
stops the admission, at least one is admitted. If a sequence's search is restarted (`Sequence.restart_guarded`,
`Sequence.restart_widened`), its steps are counted again from zero. If at most W sequences are admitted before a
sequence (`FairQueue` bounds W), then it is admitted within (W // floor(R / B) + 1) * (T + 1) + W + 1 steps.

After a failed forward the row that caused it is unknown, and all rows' caches are lost. All running sequences restart
from their sources, half of them at a time. A half that fails is halved again, until the failing sequence runs alone and
is failed. The others lose time, but no answer. While a half runs, no other sequence is admitted.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection

from app.engine.fair_queue import FairQueue
from app.engine.row_allocator import RowAllocator
from app.engine.sequence import RequestKey, Sequence, Status


class Scheduler:
    """Owns the queue, the allocator of rows and the running sequences. Never calls the runner.

    running: sequences that hold rows, in order of admission (a dict's keys, for removal in constant time).
    num_held_rows: the number of reserved rows of each caller that holds any.
    stopped_at_budget: whether a larger encoding budget would have admitted more sequences in the last step; True also
        while sequences are retried.
    """

    def __init__(self, num_rows: int, max_encode_tokens: int, *, num_kept_rows: int = 0) -> None:
        """num_kept_rows: how many of num_rows are kept for callers that come later."""
        self.row_allocator = RowAllocator(num_rows)
        self.num_held_rows: dict[str, int] = {}
        self.stopped_at_budget = False
        self._num_kept_rows = num_kept_rows
        self.running: dict[Sequence, None] = {}
        self._max_encode_tokens = max_encode_tokens
        self._queue = FairQueue()
        self._retries: deque[list[Sequence]] = deque()
        self._is_retrying = False
        self._next_deadline = math.inf  # no running or retried sequence has an earlier deadline

    @property
    def num_waiting(self) -> int:
        """Sequences that wait for rows, including those that are retried."""
        num_retried = 0
        if self._retries:
            num_retried = sum(one.status is Status.WAITING for half in self._retries for one in half)
        return len(self._queue) + num_retried

    @property
    def has_work(self) -> bool:
        """Whether there is a sequence to admit, step or retry."""
        return bool(self.running or self._queue or self._retries)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence."""
        self._queue.push(sequence)

    def join(self, sequence: Sequence, caller: str, request_id: str, deadline: float) -> None:
        """Queue a sequence for another request as well. The sequence's deadline becomes the later one of both."""
        sequence.deadline = max(sequence.deadline, deadline)
        self._queue.add_request(sequence, caller, RequestKey(request_id, deadline))
        if sequence.status is Status.RUNNING:
            held = self.num_held_rows
            if held.get(caller, 0) < held[sequence.caller]:  # its rows count for the caller that holds fewer
                self._count_rows(sequence, -1)
                sequence.caller = caller
                self._count_rows(sequence, 1)

    def prioritize(self, sequence: Sequence) -> None:
        """Move a sequence's request to the front of the queue until one of its sequences is admitted."""
        self._queue.prioritize(sequence)

    def end(self, sequence: Sequence) -> None:
        """End a sequence: its rows are freed at once, and it leaves the queue."""
        if sequence.status is Status.RUNNING:
            del self.running[sequence]
            self._count_rows(sequence, -1)
            self.row_allocator.release(sequence)
        elif sequence.status is Status.WAITING:
            # A retried sequence is not in the queue. `_next_half` drops it by its status.
            self._queue.remove(sequence)
        sequence.status = Status.ENDED

    def expired(self, now: float) -> list[Sequence]:
        """Return running and retried sequences whose deadline has passed; `schedule` finds the queued ones."""
        if now < self._next_deadline:
            return []
        admitted = list(self.running)
        for half in self._retries:
            admitted += [sequence for sequence in half if sequence.status is Status.WAITING]
        deadlines = [sequence.deadline for sequence in admitted]
        self._next_deadline = min((at for at in deadlines if at > now), default=math.inf)
        return [sequence for sequence, at in zip(admitted, deadlines, strict=True) if at <= now]

    @property
    def callers(self) -> Collection[str]:
        """Callers that have a running or a queued sequence."""
        held, waiting = self.num_held_rows.keys(), self._queue.callers
        return held | waiting if waiting else held

    def schedule(
        self, now: float, callers: Collection[str] | None = None
    ) -> tuple[list[Sequence], list[Sequence]]:
        """Admit the sequences that fit, in the queue's order.

        callers: those whose sequences may be admitted; None: all. Returns the admitted sequences, each with its first
        row, and those whose deadline had passed at their turn.
        """
        if self._is_retrying:
            self._is_retrying = bool(self.running or self._retries)
        self.stopped_at_budget = self._is_retrying
        if self._is_retrying:
            return self._next_half(), []
        admitted: list[Sequence] = []
        expired: list[Sequence] = []
        skipped = set() if callers is None else {*self._queue.callers} - {*callers}
        budget = self._max_encode_tokens
        while (turn := self._queue.peek(skipped)) is not None:
            caller, sequence = turn
            if sequence.deadline <= now:
                self.end(sequence)
                expired.append(sequence)
            elif not self._is_within_share(caller, sequence.num_reserved_rows):
                skipped.add(caller)
            elif not self.row_allocator.can_admit(sequence):
                break
            elif len(sequence.source_ids) > budget:
                self.stopped_at_budget = True
                break
            else:
                budget -= len(sequence.source_ids)
                self._queue.pop(caller)
                # Several callers may wait for the sequence. Its rows count for the one whose turn it is.
                sequence.caller = caller
                self._admit(sequence)
                admitted.append(sequence)
        return admitted, expired

    def _is_within_share(self, caller: str, num_rows: int) -> bool:
        """Return whether a caller may hold num_rows more, by the rule for later callers in the module's docstring."""
        held = self.num_held_rows.get(caller, 0)
        if not held or not self._num_kept_rows:
            return True
        num_all, num_kept = self.row_allocator.num_rows, self._num_kept_rows
        num_free = num_all - self.row_allocator.num_reserved - num_rows
        return (held + num_rows) * num_kept <= (num_all - num_kept) * num_free

    def split_running(self) -> list[Sequence]:
        """Restart all running sequences after a failed forward, half of them at a time. Returns them."""
        sequences = list(self.running)
        for sequence in sequences:
            self._count_rows(sequence, -1)
            self.row_allocator.release(sequence)
            sequence.restart()
        self.running.clear()
        middle = len(sequences) // 2
        self._retries.extendleft((sequences[middle:], sequences[:middle]))
        self._is_retrying = True
        return sequences

    def _next_half(self) -> list[Sequence]:
        """Admit the next half to retry if the running half has ended. Returns its sequences, or none."""
        half: list[Sequence] = []
        while not self.running and not half and self._retries:
            half = [sequence for sequence in self._retries.popleft() if sequence.status is Status.WAITING]
        for sequence in half:
            self._admit(sequence)
        return half

    def _admit(self, sequence: Sequence) -> None:
        self.row_allocator.admit(sequence)
        sequence.status = Status.RUNNING
        self.running[sequence] = None
        self._count_rows(sequence, 1)
        self._next_deadline = min(self._next_deadline, sequence.deadline)

    def _count_rows(self, sequence: Sequence, sign: int) -> None:
        """Add a sequence's reserved rows to its caller's; with sign -1 subtract them."""
        held = self.num_held_rows
        held[sequence.caller] = held.get(sequence.caller, 0) + sign * sequence.num_reserved_rows
        if not held[sequence.caller]:
            del held[sequence.caller]
