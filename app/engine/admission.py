"""Admission control: the bounds on accepted work, the expected wait of a request, and its Retry-After.

While several callers have accepted work, each has an equal share of the bounds. The bounds refuse a caller without
accepted work only if the work of all callers would exceed NEWCOMERS_BOUND times the bounds. A single caller has the
whole bounds.

The expected wait of a request is a sum of two times. The first is the time of all work that is done until the request
is answered, as if no accepted work had begun yet. For a request of n sentences this work is

- the request's own work;
- at most n sentences of each other request of its caller, because requests take turns;
- at most as much work of each other caller as of the request's caller, because callers take turns.

The second is the decoding time of the request's longest sentence, counted twice if that sentence is likely to be
decoded twice.

The number of sentences and subwords is known only after segmentation and tokenisation. So a request is first checked
with estimates (from its length, beam size and minimum length). With the true numbers its wait is checked again. The
bounds are also checked again if the estimate was too low. The estimate counts each text as one sentence, so without
this check many long texts could be accepted before the first of them is split.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

from app.engine.limits import EngineLimits
from app.engine.speed import Cost, Speed
from app.errors import Overloaded

# Bounds of Retry-After, in seconds.
MIN_RETRY_AFTER_S = 1.0
MAX_RETRY_AFTER_S = 60.0
# Source subwords that most English and German sentences do not exceed. A request's longest sentence is assumed to have
# at most this length until the text is segmented. Larger: long requests are refused that would have been in time.
# Smaller: more requests are refused only after the text is tokenised.
USUAL_SENTENCE_TOKENS = 30
# A request is refused if this many times its expected wait exceeds the time to its deadline. Smaller: more accepted
# requests expire. Larger: requests are refused that would have been in time.
DEADLINE_MARGIN = 1.5
# A request of a caller without accepted work is accepted while the work of all callers stays within this many times the
# bounds. If no other caller has accepted work, it must stay within the bounds themselves. Larger: more work waits.
# Smaller: the request is refused because of other callers' work.
NEWCOMERS_BOUND = 2


class Admission:
    """Accepts or refuses requests, and counts the accepted work of each caller that is not answered yet."""

    def __init__(
        self, settings: EngineLimits, *, num_workers: int = 1, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """clock: returns seconds, of the same clock as deadlines. num_workers: workers of the engine."""
        self._settings = settings
        self._clock = clock
        self._held: dict[str, dict[Reservation, None]] = {}
        self._totals: dict[str, Cost] = {}
        self._total = Cost()
        self.speed = Speed(clock, num_workers=num_workers)

    @property
    def num_sentences(self) -> int:
        """Sentences accepted and not yet answered."""
        return self._total.num_sentences

    @property
    def num_tokens(self) -> int:
        """Source subwords of the sentences accepted and not yet answered, end tokens included."""
        return self._total.num_tokens

    def accept(self, reservation: Reservation) -> None:
        """Count a reservation's work as accepted.

        Raises Overloaded as `check_bounds` and `check_deadline` do. An engine without work accepts any request.
        """
        if self.num_sentences > 0:
            self.check_bounds(reservation)
            self.check_deadline(reservation)
        self._held.setdefault(reservation.caller, {})[reservation] = None
        self.add(reservation.caller, reservation.cost)

    def release(self, reservation: Reservation) -> None:
        """Count a reservation's work as done."""
        caller = reservation.caller
        del self._held[caller][reservation]
        self.add(caller, reservation.cost, -1)
        if not self._held[caller]:
            del self._held[caller], self._totals[caller]

    def add(self, caller: str, cost: Cost, sign: int = 1) -> None:
        """Add work to a caller's total; with sign -1 subtract it."""
        self._total = self._total.plus(cost, sign)
        self._totals[caller] = self._totals.get(caller, Cost()).plus(cost, sign)

    def expected_wait_s(self, reservation: Reservation) -> float | None:
        """Return the seconds until a request is answered; None while the speed is unknown."""
        num_sentences, row_steps = reservation.cost.num_sentences, self.speed.row_steps(reservation.cost)
        for other in self._held.get(reservation.caller, ()):  # linear in the caller's requests
            if other is not reservation and other.cost.num_sentences:
                share = min(1.0, num_sentences / other.cost.num_sentences)
                row_steps += share * self.speed.row_steps(other.cost)
        wait_s = self._time_in_turns_s(reservation.caller, row_steps)
        return None if wait_s is None else wait_s + self.speed.decode_time_s(reservation.longest)

    def drain_time_s(self) -> float | None:
        """Return the seconds until all accepted work is done; None while the speed is unknown."""
        speed = self.speed.row_steps_per_s
        return None if speed is None else self.speed.row_steps(self._total) / speed

    def _time_in_turns_s(self, caller: str, row_steps: float) -> float | None:
        """Return the seconds until a caller's row-steps are done, if callers take turns; None without a known speed.

        A row-step is one step of one row.
        """
        speed = self.speed.row_steps_per_s
        if speed is None:
            return None
        others = [self.speed.row_steps(total) for name, total in self._totals.items() if name != caller]
        return (row_steps + sum(min(row_steps, other) for other in others)) / speed

    def _caller_drain_s(self, caller: str) -> float:
        """Return the seconds until all accepted work of a caller is done; 0 while the speed is unknown."""
        return self._time_in_turns_s(caller, self.speed.row_steps(self._totals.get(caller, Cost()))) or 0.0

    def check_bounds(self, reservation: Reservation) -> None:
        """Raise Overloaded when a reservation's work would exceed the bounds, as the module's docstring defines them.

        The totals must not include the reservation's work.
        """
        caller, bounds = reservation.caller, self._settings
        num_callers = len(self._totals) + (caller not in self._totals)
        held = self._held.get(caller, {})
        if len(held) > (reservation in held):  # the caller has other requests
            wanted, share = self._totals[caller].plus(reservation.cost), 1 / num_callers
        else:
            wanted, share = self._total.plus(reservation.cost), min(num_callers, NEWCOMERS_BOUND)
        if (
            wanted.num_sentences > bounds.max_pending_sentences * share
            or wanted.num_tokens > bounds.max_pending_tokens * share
        ):
            raise Overloaded(
                "too much work is waiting; come back later",
                retry_after_s=_bounded(self._caller_drain_s(caller)),
            )

    def check_deadline(self, reservation: Reservation) -> None:
        """Raise Overloaded if DEADLINE_MARGIN times a reservation's expected wait exceeds the time to its deadline."""
        speed = self.speed.row_steps_per_s
        if reservation.deadline is None or speed is None:
            return
        left_s = reservation.deadline - self._clock()
        # Quick test: most requests would be in time even behind all accepted work.
        ahead = self.speed.row_steps(self._total.plus(reservation.cost))
        if (ahead / speed + self.speed.decode_time_s(reservation.longest)) * DEADLINE_MARGIN <= left_s:
            return
        wait_s = self.expected_wait_s(reservation)
        if wait_s is not None and wait_s * DEADLINE_MARGIN > left_s:
            drain_s = self._caller_drain_s(reservation.caller)
            raise Overloaded(
                "the answer would come after the request's deadline; come back later, or allow it more time",
                retry_after_s=_bounded(max(wait_s * DEADLINE_MARGIN - left_s, drain_s)),
                would_be_late=True,
            )


class Reservation:
    """A context manager that counts a request's work as accepted from entry to exit.

    deadline: seconds of time.monotonic; None: no deadline.
    longest: source subwords of the longest sentence, or its minimum target length if that is more; twice as many if
        that sentence is likely to be decoded twice. At most USUAL_SENTENCE_TOKENS until `resize`.
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
        """Count the work as accepted. Raises Overloaded, as `Admission.accept`."""
        self._admission.accept(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._admission.release(self)

    def resize(self, cost: Cost, *, longest: int, checks_bounds: bool = True) -> None:
        """Replace the estimate by the true cost, once the text is segmented and tokenised.

        Raises Overloaded as `Admission.check_deadline`. If the cost exceeds the estimate, it also raises as
        `Admission.check_bounds`, unless `checks_bounds` is false. Raises nothing if no other work is accepted. The true
        cost counts until the context ends, even if `resize` raises.
        """
        admission, estimate = self._admission, self.cost
        is_larger = cost.num_sentences > estimate.num_sentences or cost.num_tokens > estimate.num_tokens
        admission.add(self.caller, estimate, -1)
        has_others = admission.num_sentences > 0
        self.cost, self.longest = cost, longest
        try:
            if checks_bounds and has_others and is_larger:
                admission.check_bounds(self)
        finally:
            admission.add(self.caller, cost)
        if has_others and cost.num_sentences:
            admission.check_deadline(self)


def _bounded(seconds: float) -> float:
    return min(max(seconds, MIN_RETRY_AFTER_S), MAX_RETRY_AFTER_S)
