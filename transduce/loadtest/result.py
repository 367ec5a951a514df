"""Computes the result of one load-test run, in the form of the JSON report.

In this package the tester is the load generator, `transduce loadtest` itself. A request is due at the time that the
arrival process or the closed loop schedules for it. The lag is the time from then until the tester begins the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from transduce.loadtest.arrivals import Arrivals
from transduce.loadtest.percentiles import Distribution, distribution, percentile_of, rank_of
from transduce.loadtest.plan import RunPlan
from transduce.loadtest.sample import DISCONNECTED, TESTER_FAILED, Sample, count_outcomes, read_server_timing
from transduce.loadtest.slo import Attainment, Slo

# The largest valid lag of the tester, as a share of the median latency. A lag of up to `RunPlan.max_lag_s` is always
# valid. If the share is larger, the figures include more of the tester's own delay. If it is smaller, more runs on a
# busy machine are not valid.
MAX_LAG_SHARE = 0.01
# The largest number of bins in the timeline. If larger, charts are finer and reports are longer.
MAX_TIMELINE_BINS = 120
# A phase has not recovered if one of the last tenth of its requests missed the objective.
RECOVERED_BEFORE = 0.9
# Outcomes of requests that the server could not answer, for reasons of the tester.
NOT_JUDGED = frozenset({DISCONNECTED, TESTER_FAILED})


@dataclass(slots=True)
class RunRecord:
    """The raw data of a run, before any figure is computed.

    Attributes:
        started_at: date and time, as text.
        num_sent: requests that the tester began, warm-up included.
        max_open: the largest number of requests that were open at the same time.
        num_connections: connections that the tester opened.
        loop_late_s: for each tick of a timer in the tester's event loop, the seconds by which it was late. Ticks of the
            warm-up are left out.
        error_examples: the first error message of each outcome that has one.
        cpu_share: CPU time of the tester divided by elapsed time, warm-up included. 1 is one full core.
    """

    started_at: str
    samples: list[Sample] = field(default_factory=list)
    num_sent: int = 0
    max_open: int = 0
    num_connections: int = 0
    loop_late_s: list[float] = field(default_factory=list)
    error_examples: dict[str, str] = field(default_factory=dict)
    cpu_share: float = 0.0


@dataclass(frozen=True)
class TimelineBin:
    """The requests that were due in one bin of the timeline.

    from_s: start of the bin, in seconds from the run's start. p50_ms, p99_ms: latencies in ms; None if no request was
    answered.
    """

    from_s: float
    num_sent: int
    num_ok: int
    num_failed: int
    p50_ms: float | None
    p99_ms: float | None


@dataclass(frozen=True)
class PhaseResult:
    """The requests that were due in one phase of the arrivals. A phase is a period at one arrival rate.

    rate: requests per second. from_s: start of the phase, in seconds from the run's start. attained_share: of the
    requests that count for the objective (`Sample.is_judged`), the share that met it; None if no request counts, or if
    the run has no objective.

    The objective is the run's last one. recovery_s: seconds from the start of the phase to the due time of the last
    request that missed the objective. It is 0 if no request missed the objective. It is None if one of the last tenth
    of the phase's requests, or its last request, missed the objective, or if the run has no objective. Only
    requests that count for the objective are considered.
    """

    rate: float
    from_s: float
    duration_s: float
    num_sent: int
    num_ok: int
    attained_share: float | None
    p50_ms: float | None
    p99_ms: float | None
    recovery_s: float | None


@dataclass(frozen=True)
class RunResult:
    """The result of one run.

    Rates are per second of the run. The run begins after the warm-up. A request belongs to the run or to the warm-up by
    its due time, unless stated otherwise. A Distribution is None if it has no values.

    Attributes:
        mode: `open` if requests are sent at their due times, `closed` if each client waits for its response.
        num_sent: requests that the tester began.
        offered_rate: rate of the requests that were due.
        achieved_rate: rate of the `ok` responses that arrived during the run, whenever their requests were due.
        goodput: rate of the responses that met the last objective; None if the run has no objective.
        attained: for each objective, the share of requests that met it, of those that count (`Sample.is_judged`).
        outcomes: number of requests by outcome, such as `ok`, `http_429` and `timeout`. The sum is num_sent.
        warm_up_outcomes: number of requests of the warm-up by outcome.
        error_examples: the first error message of each outcome that has one, warm-up included.
        latency: time from the due time to the response, over the answered requests.
        uncorrected_latency: time from sending to the response, over the same requests.
        first_text: time from the due time to the first text of an answered stream.
        refusals: time from the due time to an error response, such as 429 or 503.
        lag: time from the due time until the tester began the request; None in a closed loop.
        loop_lag: time by which a timer in the tester's event loop was late.
        problems: reasons why the run is not valid; empty if the run is valid.
        per_s: rates of `sentences`, `source_words`, `source_tokens` and `target_tokens` in the responses that
            achieved_rate counts. A rate is 0 if the dialect does not report the number.
        cached_share: share of sentences that the server answered from its cache; None if the server does not report it.
        phases_ms: mean, p50 and p99 of the time in each phase of the server, from the Server-Timing header. A phase
            that the header of a response lacks counts as 0 ms.
        timeline: latencies over the time of the run.
        phases: results by phase of the arrivals; empty in a closed loop.
        tester_cpu_share, num_connections, max_open: as in RunRecord, warm-up included.
        quality: quality of the translations, from `quality.py`; None if not measured.
        server: counters, CPU time and memory of the server, from `server_side.py`, warm-up included; None if not
            measured.
    """

    mode: str
    started_at: str
    seed: int
    duration_s: float
    warm_up_s: float
    num_sent: int
    offered_rate: float
    achieved_rate: float
    goodput: float | None
    attained: list[Attainment]
    outcomes: dict[str, int]
    warm_up_outcomes: dict[str, int]
    error_examples: dict[str, str]
    latency: Distribution | None
    uncorrected_latency: Distribution | None
    first_text: Distribution | None
    refusals: Distribution | None
    lag: Distribution | None
    loop_lag: Distribution | None
    problems: list[str]
    per_s: dict[str, float]
    cached_share: float | None
    phases_ms: dict[str, dict[str, float]]
    timeline: list[TimelineBin]
    phases: list[PhaseResult]
    tester_cpu_share: float
    num_connections: int
    max_open: int
    quality: dict[str, Any] | None = None
    server: dict[str, Any] | None = None

    @property
    def num_judged(self) -> int:
        """Number of requests that the server should have answered.

        These are all but those that the tester cancelled, and those for which it had no file descriptor or port
        (`tester_failed`). A connection that the server refuses (`connect_failed`) counts.
        """
        return self.num_sent - sum(self.outcomes.get(name, 0) for name in NOT_JUDGED)

    @property
    def is_valid(self) -> bool:
        """Whether the figures describe the server and not the tester."""
        return not self.problems

    @property
    def meets_slos(self) -> bool:
        """Whether every objective is met."""
        return all(attainment.is_met for attainment in self.attained)

    def as_json(self) -> dict[str, Any]:
        """The fields and `is_valid` as JSON."""
        return {"is_valid": self.is_valid, **asdict(self)}


def make_result(plan: RunPlan, record: RunRecord) -> RunResult:
    """Compute the result of a run.

    Raises:
        ConservationError: a request has no outcome or more than one, which is a bug in the tester.
    """
    warm_up = [sample for sample in record.samples if sample.scheduled_s < 0]
    samples = [sample for sample in record.samples if sample.scheduled_s >= 0]
    count_outcomes(record.samples, record.num_sent)
    answered = [sample for sample in samples if sample.is_ok]
    # A response that arrives during the run counts, even if its request was due in the warm-up. In exchange, responses
    # that arrive after the end of the run do not count.
    arrived = [sample for sample in record.samples if sample.is_ok and 0 <= sample.ended_s <= plan.duration_s]
    is_open = isinstance(plan.load, Arrivals)
    latency = distribution(sample.latency_s for sample in answered)
    lag = distribution(max(0.0, sample.lag_s) for sample in samples) if is_open else None
    objective = plan.slos[-1] if plan.slos else None
    return RunResult(
        mode="open" if is_open else "closed",
        started_at=record.started_at,
        seed=plan.seed,
        duration_s=plan.duration_s,
        warm_up_s=plan.warm_up_s,
        num_sent=len(samples),
        offered_rate=len(samples) / plan.duration_s,
        achieved_rate=len(arrived) / plan.duration_s,
        goodput=None if objective is None else _num_within(samples, objective) / plan.duration_s,
        attained=[slo.judge(_num_within(samples, slo), len(_judged(samples, slo))) for slo in plan.slos],
        outcomes=count_outcomes(samples, record.num_sent - len(warm_up)),
        warm_up_outcomes=count_outcomes(warm_up, len(warm_up)),
        error_examples=record.error_examples,
        latency=latency,
        uncorrected_latency=distribution(sample.uncorrected_latency_s for sample in answered),
        first_text=distribution(
            sample.first_text_s - sample.scheduled_s for sample in answered if sample.first_text_s is not None
        ),
        refusals=distribution(sample.latency_s for sample in samples if sample.is_refusal),
        lag=lag,
        loop_lag=distribution(record.loop_late_s),
        problems=_problems(latency, lag, samples, plan, record.error_examples.get(TESTER_FAILED, "")),
        per_s={name: amount / plan.duration_s for name, amount in _amounts(arrived).items()},
        cached_share=_cached_share(answered),
        phases_ms=_server_phases(answered),
        timeline=_timeline(samples, plan.duration_s),
        phases=_phases(plan.load, samples, objective) if isinstance(plan.load, Arrivals) else [],
        tester_cpu_share=record.cpu_share,
        num_connections=record.num_connections,
        max_open=record.max_open,
    )


def _problems(
    latency: Distribution | None,
    lag: Distribution | None,
    samples: Sequence[Sample],
    plan: RunPlan,
    own_error: str,
) -> list[str]:
    problems = []
    if not samples:
        problems.append("no request was sent")
    problems += [
        f"the tester gave up every request before the time limit of {slo}"
        for slo in plan.slos
        if samples and not _judged(samples, slo)
    ]
    num_own = sum(sample.outcome == TESTER_FAILED for sample in samples)
    if num_own:
        problems.append(f"the tester could not open a connection for {num_own} requests: {own_error}")
    if lag is not None:
        limit_ms = max(plan.max_lag_s * 1e3, MAX_LAG_SHARE * latency.p50_ms if latency else 0.0)
        if lag.p99_ms > limit_ms:
            problems.append(
                f"the tester began 1 % of the requests at least {lag.p99_ms:.2f} ms late, and {limit_ms:.2f} ms are "
                "allowed: the figures include the delay of the tester"
            )
    return problems


def _judged(samples: Sequence[Sample], slo: Slo) -> list[Sample]:
    """The requests that count for the objective."""
    return [each for each in samples if each.is_judged(slo.limit_s, is_first_text=slo.is_first_text)]


def _num_within(samples: Sequence[Sample], slo: Slo) -> int:
    """Number of requests that were answered within the time limit of the objective."""
    return sum(sample.is_within(slo.limit_s, is_first_text=slo.is_first_text) for sample in samples)


def _amounts(answered: Sequence[Sample]) -> dict[str, int]:
    """The sums over all responses for `RunResult.per_s`."""
    responses = [sample.response for sample in answered if sample.response is not None]
    return {
        "sentences": sum(each.num_sentences for each in responses),
        "source_words": sum(sample.num_words for sample in answered),
        "source_tokens": sum(each.num_source_tokens for each in responses),
        "target_tokens": sum(each.num_target_tokens for each in responses),
    }


def _cached_share(answered: Sequence[Sample]) -> float | None:
    num_sentences, num_cached = 0, 0
    for sample in answered:
        if sample.response is not None and sample.num_cached is not None:
            num_sentences += sample.response.num_sentences
            num_cached += sample.num_cached
    return num_cached / num_sentences if num_sentences else None


def _server_phases(answered: Sequence[Sample]) -> dict[str, dict[str, float]]:
    timings = [found for sample in answered if (found := read_server_timing(sample.server_timing))]
    names = dict.fromkeys(name for timing in timings for name in timing)
    values = {name: [timing.get(name, 0.0) for timing in timings] for name in names}
    return {
        name: {
            "mean": sum(found) / len(found),
            "p50": sorted(found)[rank_of(len(found), 50) - 1],
            "p99": sorted(found)[rank_of(len(found), 99) - 1],
        }
        for name, found in values.items()
    }


def _timeline(samples: Sequence[Sample], duration_s: float) -> list[TimelineBin]:
    """Divide the requests by due time into at most MAX_TIMELINE_BINS bins of equal length.

    A bin is at least a second long, unless the run is shorter.
    """
    num_bins = max(1, min(MAX_TIMELINE_BINS, int(duration_s)))
    bin_s = duration_s / num_bins
    bins: list[list[Sample]] = [[] for _ in range(num_bins)]
    for sample in samples:
        bins[min(num_bins - 1, int(sample.scheduled_s / bin_s))].append(sample)
    return [_timeline_bin(index * bin_s, in_bin) for index, in_bin in enumerate(bins)]


def _timeline_bin(from_s: float, samples: Sequence[Sample]) -> TimelineBin:
    latencies = [sample.latency_s for sample in samples if sample.is_ok]
    num_cancelled = sum(sample.outcome == DISCONNECTED for sample in samples)
    return TimelineBin(
        from_s=from_s,
        num_sent=len(samples),
        num_ok=len(latencies),
        num_failed=len(samples) - len(latencies) - num_cancelled,
        p50_ms=percentile_of(latencies, 50),
        p99_ms=percentile_of(latencies, 99),
    )


def _phases(arrivals: Arrivals, samples: Sequence[Sample], objective: Slo | None) -> list[PhaseResult]:
    results = []
    for from_s, phase in zip(arrivals.starts_s(), arrivals.phases, strict=True):
        until_s = from_s + phase.duration_s
        due = sorted(
            (sample for sample in samples if from_s <= sample.scheduled_s < until_s),
            key=lambda sample: sample.scheduled_s,
        )
        latencies = [sample.latency_s for sample in due if sample.is_ok]
        judged = _judged(due, objective) if objective is not None else []
        share = _num_within(judged, objective) / len(judged) if objective is not None and judged else None
        results.append(
            PhaseResult(
                rate=phase.rate,
                from_s=from_s,
                duration_s=phase.duration_s,
                num_sent=len(due),
                num_ok=len(latencies),
                attained_share=share,
                p50_ms=percentile_of(latencies, 50),
                p99_ms=percentile_of(latencies, 99),
                recovery_s=None if objective is None else _recovery_s(judged, objective, from_s),
            )
        )
    return results


def _recovery_s(judged: Sequence[Sample], objective: Slo, from_s: float) -> float | None:
    """`PhaseResult.recovery_s`. judged: the phase's requests that count, in the order of their due times."""
    missed = [
        index
        for index, sample in enumerate(judged)
        if not sample.is_within(objective.limit_s, is_first_text=objective.is_first_text)
    ]
    if not missed:
        return 0.0
    if missed[-1] >= min(len(judged) * RECOVERED_BEFORE, len(judged) - 1):
        return None
    return judged[missed[-1]].scheduled_s - from_s
