"""The bound on accepted work, how long work would wait behind it, and how long to stay away when it is too long.

Callers share the bounds: while several have work here, each has its part of them, and what one has queued is not the
limit of another. A caller that is alone has all.

Ahead of a request of n sentences are at most n sentences of each other request of its caller, for requests take turns,
and of each other caller's work at most as much as of its own caller's until then, for callers do. All that stands in
the engine counts as not begun. To this comes the time that the longest sentence of the request takes once it runs,
twice where a second decoding is likely. What these are is known only once a text is split and tokenised, so a request
is looked at twice: when it comes, by its length, its beam and the shortest length that it asks for, and then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

from app.engine.limits import EngineLimits
from app.engine.speed import Cost, Speed
from app.errors import Overloaded

MIN_RETRY_AFTER_S = 1.0
MAX_RETRY_AFTER_S = 60.0
# Most English and German sentences have no more.
USUAL_SENTENCE_TOKENS = 30
# A request is refused where its foreseen wait, so many times as long, would pass its deadline.
DEADLINE_MARGIN = 1.5
# A caller that has nothing here is let in up to so many times the bounds, however many share them.
NEWCOMERS_BOUND = 2


class Admission:
    """Counts what was accepted and not yet answered, by caller."""

    def __init__(
        self, settings: EngineLimits, *, num_workers: int = 1, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """clock: of the requests' deadlines, in seconds. num_workers: of the engine."""
        self._settings = settings
        self._clock = clock
        self._held: dict[str, dict[Reservation, None]] = {}
        self._totals: dict[str, Cost] = {}
        self._total = Cost()
        self.speed = Speed(clock, num_workers=num_workers)

    @property
    def num_sentences(self) -> int:
        """Accepted and not yet answered."""
        return self._total.num_sentences

    @property
    def num_tokens(self) -> int:
        """Their source subwords, end tokens counted."""
        return self._total.num_tokens

    def admit(self, reservation: Reservation) -> None:
        """Count it in.

        Raises Overloaded where its caller's part of the bounds would be passed, or its wait is foreseen to pass its
        deadline; unless nothing else is there: who is alone always enters.
        """
        if self.num_sentences > 0:
            self._check_bounds(reservation)
            self.check_deadline(reservation)
        self._held.setdefault(reservation.caller, {})[reservation] = None
        self.add(reservation.caller, reservation.cost)

    def release(self, reservation: Reservation) -> None:
        """Count it out."""
        caller = reservation.caller
        del self._held[caller][reservation]
        self.add(caller, reservation.cost, -1)
        if not self._held[caller]:
            del self._held[caller], self._totals[caller]

    def add(self, caller: str, cost: Cost, sign: int = 1) -> None:
        """Count in or, with sign -1, out."""
        self._total = self._total.plus(cost, sign)
        self._totals[caller] = self._totals.get(caller, Cost()).plus(cost, sign)

    def expected_wait_s(self, asking: Reservation) -> float | None:
        """Seconds until a request would be answered if it came now; None while that is not known."""
        num_sentences, row_steps = asking.cost.num_sentences, self.speed.row_steps(asking.cost)
        for other in self._held.get(asking.caller, ()):  # as many as there are requests, for each that comes
            if other is not asking and other.cost.num_sentences:
                share = min(1.0, num_sentences / other.cost.num_sentences)
                row_steps += share * self.speed.row_steps(other.cost)
        wait_s = self._shared_s(asking.caller, row_steps)
        return None if wait_s is None else wait_s + self.speed.decode_time_s(asking.longest)

    def drain_time_s(self) -> float | None:
        """Seconds until all that was accepted is done; None while that is not known."""
        speed = self.speed.row_steps_per_s
        return None if speed is None else self.speed.row_steps(self._total) / speed

    def _shared_s(self, caller: str, row_steps: float) -> float | None:
        """Seconds in which so much of a caller's is done, the other callers' beside it; None while not known."""
        speed = self.speed.row_steps_per_s
        if speed is None:
            return None
        others = [self.speed.row_steps(total) for name, total in self._totals.items() if name != caller]
        return (row_steps + sum(min(row_steps, other) for other in others)) / speed

    def _drain_of_s(self, caller: str) -> float:
        """Seconds until all is done that was accepted of a caller; 0 while that is not known."""
        return self._shared_s(caller, self.speed.row_steps(self._totals.get(caller, Cost()))) or 0.0

    def _check_bounds(self, reservation: Reservation) -> None:
        caller, bounds = reservation.caller, self._settings
        num_callers = len(self._totals) + (caller not in self._totals)
        if caller in self._totals:
            wanted, share = self._totals[caller].plus(reservation.cost), 1 / num_callers
        else:
            wanted, share = self._total.plus(reservation.cost), min(num_callers, NEWCOMERS_BOUND)
        if (
            wanted.num_sentences > bounds.max_pending_sentences * share
            or wanted.num_tokens > bounds.max_pending_tokens * share
        ):
            raise Overloaded(
                "too much work is waiting; come back later", retry_after_s=_bounded(self._drain_of_s(caller))
            )

    def check_deadline(self, reservation: Reservation) -> None:
        """Raises Overloaded where its wait is foreseen to pass its deadline."""
        speed = self.speed.row_steps_per_s
        if reservation.deadline is None or speed is None:
            return
        left_s = reservation.deadline - self._clock()
        # Most requests would be in time even if they waited for all that was accepted.
        ahead = self.speed.row_steps(self._total.plus(reservation.cost))
        if (ahead / speed + self.speed.decode_time_s(reservation.longest)) * DEADLINE_MARGIN <= left_s:
            return
        wait_s = self.expected_wait_s(reservation)
        if wait_s is not None and wait_s * DEADLINE_MARGIN > left_s:
            drain_s = self._drain_of_s(reservation.caller)
            raise Overloaded(
                "the answer would come after the request's deadline; come back later, or allow it more time",
                retry_after_s=_bounded(max(wait_s * DEADLINE_MARGIN - left_s, drain_s)),
                is_foreseen=True,
            )


class Reservation:
    """A scope that holds a place in the queue: entered with `with`, given back however the scope ends.

    deadline: seconds of time.monotonic; None: however late. longest: source tokens that are decoded one after another,
    those of its longest sentence, twice where that is likely to be decoded twice; while it is not known, a usual one's.
    """

    def __init__(
        self, admission: Admission, cost: Cost, *, caller: str = "", deadline: float | None = None
    ) -> None:
        self._admission = admission
        self.cost = cost
        self.longest = min(cost.num_tokens, USUAL_SENTENCE_TOKENS)
        self.caller = caller
        self.deadline = deadline

    def __enter__(self) -> Reservation:
        """Raises Overloaded."""
        self._admission.admit(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._admission.release(self)

    def resize(self, cost: Cost, *, longest: int) -> None:
        """Put an estimate right, once the text is split and tokenised.

        Raises Overloaded where its wait is foreseen, now that it is known what it costs, to pass its deadline, unless
        it is alone; it is counted all the same until it leaves. The bounds are not looked at again.
        """
        others = self._admission.num_sentences - self.cost.num_sentences
        self._admission.add(self.caller, self.cost, -1)
        self._admission.add(self.caller, cost)
        self.cost, self.longest = cost, longest
        if others > 0 and cost.num_sentences:
            self._admission.check_deadline(self)


def _bounded(seconds: float) -> float:
    return min(max(seconds, MIN_RETRY_AFTER_S), MAX_RETRY_AFTER_S)
