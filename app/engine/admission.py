"""The bound on accepted work, how long work would wait behind it, and how long to stay away when it is too long.

Source tokens a second come of two measurements, each of which is right by itself whatever the load was: how many steps
of how many rows a source token takes, told by every sentence that ends; and how many rows are stepped a second, told by
steps after which somebody still waits, for only then are the rows full. A sentence that is decoded a second time takes
steps and brings no tokens: those were counted in when its request was.

Ahead of a request of n sentences are at most n sentences of each other request of its caller, and as many of each other
caller's as its own caller has until then: so takes turns `FairQueue`. All that stands in the engine counts as not
begun. To this comes the time that the longest sentence of the request takes once it runs, twice where a second decoding
is likely. What these are is known only once a text is split and tokenised, so a request is looked at twice: when it
comes, by its length, and then.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from types import TracebackType

from app.engine.limits import EngineLimits
from app.engine.messages import Report
from app.engine.sequence import SequenceResult
from app.errors import Overloaded

MIN_RETRY_AFTER_S = 1.0
MAX_RETRY_AFTER_S = 60.0
# What is measured fades with this time constant, of stepping with full rows and of sentences' decoding. A flood takes
# a third of the engine's speed within a second, by the work of refusing it: who remembers longer lets in too many.
MEMORY_S = 2.0
MEMORY_ROW_STEPS = 50_000
# Steps with full rows before which nothing is foreseen; without any for so long, what was measured is forgotten: a
# slow minute must not have requests refused that would never fill the rows, and so never show that it is over.
MIN_FULL_STEPS = 16
MAX_FULL_AGE_S = 3.0
# English and German sentences have some twenty subwords.
USUAL_SENTENCE_TOKENS = 20
# A request is refused where its foreseen wait, so many times as long, would pass its deadline.
DEADLINE_MARGIN = 1.5


class Speed:
    """Source tokens a second of the engine with all rows busy."""

    def __init__(self, clock: Callable[[], float], *, num_lanes: int = 1) -> None:
        """clock: seconds. num_lanes: that share the work; what is measured is one's, with the others at work too."""
        self._clock = clock
        self._num_lanes = num_lanes
        self._last_full_at = -math.inf
        self._row_steps = 0.0  # of sentences that ended, and their source tokens
        self._tokens = 0.0
        self._steps = 0.0
        self._full_rows = 0.0  # stepped while somebody waited, and in how much time
        self._full_time_s = 0.0
        self._full_steps = 0.0
        self._num_full_steps = 0

    def measure(self, report: Report) -> None:
        """Learn from what the engine thread reports."""
        for sequence in report.ended:
            if isinstance(sequence.outcome, SequenceResult):
                row_steps = sequence.outcome.num_steps * sequence.num_reserved_rows
                kept = math.exp(-row_steps / MEMORY_ROW_STEPS)
                self._row_steps = self._row_steps * kept + row_steps
                self._tokens = self._tokens * kept + len(sequence.source_ids) * (not sequence.comes_back)
                self._steps = self._steps * kept + sequence.outcome.num_steps
        if not self._is_fresh:
            self._full_rows = self._full_time_s = self._full_steps = 0.0
            self._num_full_steps = 0
        for step in report.steps:
            if step.num_waiting and step.num_rows:
                kept = math.exp(-step.step_time_s / MEMORY_S)
                self._full_rows = (
                    self._full_rows * kept + step.num_row_steps + step.num_idle_rows * step.num_steps
                )
                self._full_time_s = self._full_time_s * kept + step.step_time_s
                self._full_steps = self._full_steps * kept + step.num_steps
                self._num_full_steps += 1
                self._last_full_at = self._clock()

    @property
    def tokens_per_s(self) -> float | None:
        """None while too little was measured of late."""
        is_known = self._num_full_steps >= MIN_FULL_STEPS and self._row_steps and self._full_time_s
        if not is_known or not self._is_fresh:
            return None
        return self._num_lanes * (self._full_rows / self._full_time_s) * (self._tokens / self._row_steps)

    def decode_time_s(self, num_tokens: float) -> float:
        """Seconds from a sentence's first step to its last, all rows busy. Only while `tokens_per_s` is known."""
        return num_tokens * (self._steps / self._tokens) * (self._full_time_s / self._full_steps)

    @property
    def _is_fresh(self) -> bool:
        return self._clock() - self._last_full_at <= MAX_FULL_AGE_S


class Admission:
    """Counts sentences and source tokens that were accepted and not yet answered."""

    def __init__(
        self, settings: EngineLimits, *, num_lanes: int = 1, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """clock: of the requests' deadlines, in seconds. num_lanes: of the engine."""
        self._settings = settings
        self._clock = clock
        self._held: dict[str, set[Reservation]] = {}
        self.speed = Speed(clock, num_lanes=num_lanes)
        self.num_sentences = 0
        self.num_tokens = 0

    def enter(self, reservation: Reservation) -> None:
        """Count it in.

        Raises Overloaded where the bounds would be passed, or its wait is foreseen to pass its deadline; unless nothing
        else is there: who is alone always enters.
        """
        if self.num_sentences > 0:
            self._check_bounds(reservation)
            self.check_deadline(reservation)
        self._held.setdefault(reservation.caller, set()).add(reservation)
        self.add(reservation.num_sentences, reservation.num_tokens)

    def leave(self, reservation: Reservation) -> None:
        """Count it out."""
        held = self._held[reservation.caller]
        held.remove(reservation)
        if not held:
            del self._held[reservation.caller]
        self.add(-reservation.num_sentences, -reservation.num_tokens)

    def add(self, num_sentences: int, num_tokens: int) -> None:
        """Count in or, where negative, out."""
        self.num_sentences += num_sentences
        self.num_tokens += num_tokens

    def expected_wait_s(self, asking: Reservation) -> float | None:
        """Seconds until a request would be answered if it came now; None while that is not known."""
        speed = self.speed.tokens_per_s
        if speed is None:
            return None
        num_sentences, caller = asking.num_sentences, asking.caller
        own_sentences, ahead = num_sentences, float(asking.num_tokens)
        for other in self._held.get(caller, ()):  # as many as there are requests, for each that comes
            if other is asking:
                continue
            if other.num_sentences <= num_sentences:
                own_sentences += other.num_sentences
                ahead += other.num_tokens
            else:
                own_sentences += num_sentences
                ahead += _tokens_of(other.num_sentences, other.num_tokens, until=num_sentences)
        for name, held in self._held.items():
            if name != caller:
                sentences = sum(other.num_sentences for other in held)
                tokens = sum(other.num_tokens for other in held)
                ahead += _tokens_of(sentences, tokens, until=own_sentences)
        return ahead / speed + self.speed.decode_time_s(asking.longest)

    def drain_time_s(self) -> float | None:
        """Seconds until all that was accepted is done; None while that is not known."""
        speed = self.speed.tokens_per_s
        return None if speed is None else self.num_tokens / speed

    def _check_bounds(self, reservation: Reservation) -> None:
        sentences = self.num_sentences + reservation.num_sentences
        tokens = self.num_tokens + reservation.num_tokens
        if sentences > self._settings.max_pending_sentences or tokens > self._settings.max_pending_tokens:
            retry_after_s = _bounded(self.drain_time_s() or 0.0)
            raise Overloaded("too much work is waiting; come back later", retry_after_s=retry_after_s)

    def check_deadline(self, reservation: Reservation) -> None:
        """Raises Overloaded where its wait is foreseen to pass its deadline."""
        speed = self.speed.tokens_per_s
        if reservation.deadline is None or speed is None:
            return
        left_s = reservation.deadline - self._clock()
        # Most requests would be in time even if they waited for all that was accepted.
        ahead = self.num_tokens + reservation.num_tokens
        if (ahead / speed + self.speed.decode_time_s(reservation.longest)) * DEADLINE_MARGIN <= left_s:
            return
        wait_s = self.expected_wait_s(reservation)
        if wait_s is not None and wait_s * DEADLINE_MARGIN > left_s:
            raise Overloaded(
                "the answer would come after the request's deadline; come back later, or allow it more time",
                retry_after_s=_bounded(wait_s * DEADLINE_MARGIN - left_s),
                is_foreseen=True,
            )


class Reservation:
    """A scope that holds a place in the queue: entered with `with`, given back however the scope ends.

    deadline: seconds of time.monotonic; None: however late. longest: source tokens that are decoded one after another,
    those of its longest sentence, twice where that is likely to be decoded twice; while it is not known, a usual one's.
    """

    def __init__(
        self,
        admission: Admission,
        num_sentences: int,
        num_tokens: int,
        *,
        caller: str = "",
        deadline: float | None = None,
    ) -> None:
        self._admission = admission
        self.num_sentences = num_sentences
        self.num_tokens = num_tokens
        self.longest = min(num_tokens, USUAL_SENTENCE_TOKENS)
        self.caller = caller
        self.deadline = deadline

    def __enter__(self) -> Reservation:
        """Raises Overloaded."""
        self._admission.enter(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._admission.leave(self)

    def resize(self, lengths: Sequence[int], *, longest: int) -> None:
        """Put an estimate right, once the text is split and tokenised. lengths: source tokens of each sentence.

        Raises Overloaded where its wait is foreseen, now that it is known what it costs, to pass its deadline, unless
        it is alone; it is counted all the same until it leaves. The bounds are not looked at again.
        """
        others = self._admission.num_sentences - self.num_sentences
        num_sentences, num_tokens = len(lengths), sum(lengths)
        self._admission.add(num_sentences - self.num_sentences, num_tokens - self.num_tokens)
        self.num_sentences, self.num_tokens, self.longest = num_sentences, num_tokens, longest
        if others > 0 and lengths:
            self._admission.check_deadline(self)


def _tokens_of(num_sentences: int, num_tokens: int, *, until: int) -> float:
    """Of the first `until` of so many sentences, the tokens."""
    return num_tokens * min(1.0, until / num_sentences) if num_sentences else 0.0


def _bounded(seconds: float) -> float:
    return min(max(seconds, MIN_RETRY_AFTER_S), MAX_RETRY_AFTER_S)
