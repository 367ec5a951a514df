"""What became of one request. Every request ends in exactly one outcome."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from transduce.loadtest.dialects import ParsedResponse

OK = "ok"
TIMEOUT = "timeout"
CONNECT_FAILED = "connect_failed"
CONNECTION_LOST = "connection_lost"
# The tester gave the request up, as the workload asks.
DISCONNECTED = "disconnected"
# Not answered when the run was over.
OPEN = "open"
# 200, and no answer in it.
BAD_ANSWER = "bad_answer"
STREAM_ERROR = "stream_error"
STATUS_PREFIX = "http_"
# A description in Server-Timing, which may hold commas.
QUOTED = re.compile(r'"[^"]*"')


@dataclass(slots=True)
class Sample:
    """Times in seconds from the run's start; negative during the warm-up, None where it never happened.

    Attributes:
        index: of the request within the run.
        number: of the entry of the workload.
        scheduled_s: when it was due.
        begun_s: when the tester turned to it; later than scheduled_s by the tester's own lag.
        sent_s: when its first byte was handed over; it may have waited for a connection.
        first_text_s: when the first text of a stream was there.
        ended_s: when the last byte was there, or it was given up.
        outcome: one of the above, or `http_` and a status.
        num_words: of its texts.
        server_timing: the header, as it came.
        num_cached: sentences of the answer that the server had translated before; None where it does not say.
        response: the parsed body; None without one.
    """

    index: int
    number: int
    scheduled_s: float
    num_words: int
    begun_s: float = 0.0
    sent_s: float | None = None
    first_text_s: float | None = None
    ended_s: float = 0.0
    outcome: str = OPEN
    server_timing: str = ""
    num_cached: int | None = None
    response: ParsedResponse | None = None

    @property
    def is_ok(self) -> bool:
        """Whether it was answered."""
        return self.outcome == OK

    @property
    def is_refusal(self) -> bool:
        """Whether the server answered with another status than 200."""
        return self.outcome.startswith(STATUS_PREFIX)

    @property
    def latency_s(self) -> float:
        """From when it was due: what a user feels."""
        return self.ended_s - self.scheduled_s

    @property
    def uncorrected_latency_s(self) -> float:
        """From when it was sent: what a tester sees that waits with its stopwatch."""
        return self.ended_s - (self.scheduled_s if self.sent_s is None else self.sent_s)

    @property
    def lag_s(self) -> float:
        """By how much the tester itself was late."""
        return self.begun_s - self.scheduled_s

    def is_within(self, limit_s: float, *, is_first_text: bool = False) -> bool:
        """Whether it was answered in time."""
        if not self.is_ok:
            return False
        ended_s = self.first_text_s if is_first_text else self.ended_s
        return ended_s is not None and ended_s - self.scheduled_s <= limit_s


class ConservationError(Exception):
    """Requests were sent whose outcome is not known, or known twice: a bug of the tester."""


def count_outcomes(samples: Iterable[Sample], num_sent: int) -> dict[str, int]:
    """How many requests had each outcome, `ok` first.

    num_sent: counted where requests are begun, on its own.

    Raises:
        ConservationError: the outcomes do not add up to num_sent.
    """
    counts: dict[str, int] = {OK: 0}
    for sample in samples:
        counts[sample.outcome] = counts.get(sample.outcome, 0) + 1
    if sum(counts.values()) != num_sent:
        raise ConservationError(f"{num_sent} requests were sent, {sum(counts.values())} have an outcome")
    return {OK: counts.pop(OK), **dict(sorted(counts.items()))}


def read_server_timing(header: str) -> dict[str, float]:
    """Milliseconds by phase; what is no number is passed over."""
    phases = {}
    for part in QUOTED.sub("", header).split(","):
        name, _, parameters = part.strip().partition(";")
        for parameter in parameters.split(";"):
            key, _, value = parameter.strip().partition("=")
            if key == "dur":
                try:
                    phases[name.strip()] = float(value)
                except ValueError:
                    continue
    return phases
