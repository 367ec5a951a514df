"""The outcome of one request. Every request ends with exactly one outcome."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from transduce.loadtest.dialects import ParsedResponse

OK = "ok"
TIMEOUT = "timeout"
CONNECT_FAILED = "connect_failed"
# The tester had no file descriptor or no port for a connection.
TESTER_FAILED = "tester_failed"
CONNECTION_LOST = "connection_lost"
# The tester cancelled the request, as the workload defines.
DISCONNECTED = "disconnected"
# Not ended when the tester stopped waiting: the time limit and GRACE_S after the end of the run.
OPEN = "open"
# Status 200 with an invalid body.
BAD_ANSWER = "bad_answer"
STREAM_ERROR = "stream_error"
STATUS_PREFIX = "http_"
# Server-Timing is metrics with commas between them, and a metric is parts with semicolons between them. A quoted string
# may hold commas, semicolons, and quotes after a backslash. A string without a closing quote extends to the end.
QUOTED = r'"(?>(?:[^"\\]|\\.)*)"?'
METRIC = re.compile(rf"(?>(?:{QUOTED}|[^,])+)")
PART = re.compile(rf"(?>(?:{QUOTED}|[^;])+)")


@dataclass(slots=True)
class Sample:
    """One request.

    Times are in seconds from the run's start, negative in the warm-up. A time is None if its event did not happen.
    Without a complete response, sent_s is None, and first_text_s is None unless the tester cancelled the request.

    Attributes:
        index: position of the request in the run.
        number: the workload entry.
        scheduled_s: due time.
        begun_s: time when the tester began the request; the difference from scheduled_s is the tester's lag.
        sent_s: time when the first byte was sent, after the opening of a connection or the wait for one, if any.
        first_text_s: time when the first text of a stream arrived.
        ended_s: time when the last byte arrived, or when the request failed or was cancelled.
        outcome: one of the constants above, or `http_` and a status.
        num_words: number of words of its texts.
        server_timing: the Server-Timing header.
        num_cached: sentences that the server answered from its cache; None if the server does not report it.
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
        """Whether the request was answered."""
        return self.outcome == OK

    @property
    def is_refusal(self) -> bool:
        """Whether the server responded with a status other than 200."""
        return self.outcome.startswith(STATUS_PREFIX)

    @property
    def latency_s(self) -> float:
        """Time from the due time of the request: the latency that a user experiences."""
        return self.ended_s - self.scheduled_s

    @property
    def uncorrected_latency_s(self) -> float:
        """Time from the sending of the request. Testers that send the next request after a response measure this."""
        return self.ended_s - (self.scheduled_s if self.sent_s is None else self.sent_s)

    @property
    def lag_s(self) -> float:
        """The delay that the tester itself caused."""
        return self.begun_s - self.scheduled_s

    def is_within(self, limit_s: float, *, is_first_text: bool = False) -> bool:
        """Whether the request was answered within `limit_s` of its due time.

        is_first_text: `limit_s` applies to the first text instead of the last byte, even if the tester cancelled the
        request after its first text.
        """
        if not (self.is_ok or (is_first_text and self.outcome == DISCONNECTED)):
            return False
        ended_s = self.first_text_s if is_first_text else self.ended_s
        return ended_s is not None and ended_s - self.scheduled_s <= limit_s

    def is_judged(self, limit_s: float, *, is_first_text: bool = False) -> bool:
        """Whether the request counts for an objective of `limit_s`.

        A request that the tester cancelled before `limit_s` does not count, because it might have been answered in
        time. There is one exception: with `is_first_text`, it counts if its first text came in time.
        """
        return (
            self.outcome != DISCONNECTED
            or self.latency_s > limit_s
            or self.is_within(limit_s, is_first_text=is_first_text)
        )


class ConservationError(Exception):
    """A request has no outcome or more than one: a bug in the tester."""


def count_outcomes(samples: Iterable[Sample], num_sent: int) -> dict[str, int]:
    """The number of requests with each outcome, `ok` first.

    num_sent: counted separately, when requests begin.

    Raises:
        ConservationError: the outcomes do not add up to num_sent.
    """
    counts: dict[str, int] = {OK: 0}
    for sample in samples:
        counts[sample.outcome] = counts.get(sample.outcome, 0) + 1
    if sum(counts.values()) != num_sent:
        raise ConservationError(f"{num_sent} requests were sent, {sum(counts.values())} have an outcome")
    return {OK: counts.pop(OK), **dict(sorted(counts.items()))}


def with_example(outcome: str, examples: Mapping[str, str]) -> str:
    """The outcome, with its error message in brackets if there is one. examples: messages by outcome."""
    message = examples.get(outcome)
    return f"{outcome} ({message})" if message else outcome


def most_frequent_error(outcomes: Mapping[str, int], examples: Mapping[str, str]) -> str:
    """The most frequent outcome that is not `ok`, with its number and its message, as text.

    outcomes: numbers by outcome. examples: messages by outcome. Raises ValueError if all outcomes are `ok`.
    """
    name = max((each for each in outcomes if each != OK), key=outcomes.__getitem__)
    return f"{outcomes[name]} {with_example(name, examples)}"


def read_server_timing(header: str) -> dict[str, float]:
    """Milliseconds by phase from a Server-Timing header; values that are not finite numbers are skipped."""
    phases = {}
    for metric in METRIC.findall(header):
        name, _, parameters = metric.partition(";")
        for parameter in PART.findall(parameters):
            key, _, value = parameter.strip().partition("=")
            if key == "dur":
                try:
                    milliseconds = float(value.strip('"'))
                except ValueError:
                    continue
                if math.isfinite(milliseconds):
                    phases[name.strip()] = milliseconds
    return phases
