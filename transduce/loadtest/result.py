"""The figures of a run, in the form in which they are written as JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from transduce.loadtest.arrivals import Arrivals
from transduce.loadtest.percentiles import Distribution, distribution, percentile_of, rank_of
from transduce.loadtest.plan import RunPlan
from transduce.loadtest.sample import DISCONNECTED, Sample, count_outcomes, read_server_timing
from transduce.loadtest.slo import Attainment, Slo

# Permitted lag of the tester as a share of the median latency.
MAX_LAG_SHARE = 0.01
# Most bins of the timeline.
MAX_TIMELINE = 120


@dataclass(slots=True)
class RunRecord:
    """The raw data of a run.

    error_examples: the first error message for each outcome other than `ok`. cpu_share: CPU time of the tester as a
    share of one core.
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
    """One bin of the timeline. from_s: its start; latencies in ms, of the requests due in it."""

    from_s: float
    num_sent: int
    num_ok: int
    num_failed: int
    p50_ms: float | None
    p99_ms: float | None


@dataclass(frozen=True)
class PhaseResult:
    """One phase of the arrivals.

    recovery_s: time from the phase's start to the due time of its last request that missed the objective; None if the
    last tenth of its requests still missed it, or without an objective.
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
    """One run. Rates are per second of the run, without the warm-up.

    Attributes:
        offered_rate: requests that were due.
        achieved_rate: responses that arrived during the run.
        goodput: responses that met the objective; None without one.
        outcomes: number of requests by outcome: `ok`, `http_429`, `timeout`, ...; they add up to num_sent.
        warm_up_outcomes: the same for the warm-up.
        error_examples: the first error message by outcome, if it had one.
        latency: of answered requests, from their due times.
        uncorrected_latency: of the same requests, from when they were sent.
        first_text: time to the first text of a stream.
        refusals: time until an error response (429, 503, ...).
        lag: delay with which the tester began requests; None in a closed loop.
        loop_lag: delay of a timer in the tester's event loop.
        problems: reasons why the run is not valid; empty if it is.
        per_s: `sentences`, `source_words`, `source_tokens`, `target_tokens` of the responses that arrived during the
            run; 0 if the dialect does not report them.
        cached_share: share of sentences answered from the server's cache; None if the server does not report it.
        phases_ms: the server's phases, from Server-Timing: mean, p50, p99.
        quality: set by `quality.py`.
        server: set by `server_side.py`.
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
        """Requests that were not cancelled by the tester itself."""
        return self.num_sent - self.outcomes.get(DISCONNECTED, 0)

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
    """Compute the figures of a run.

    Raises:
        ConservationError: a bug in the tester.
    """
    warm_up = [sample for sample in record.samples if sample.scheduled_s < 0]
    samples = [sample for sample in record.samples if sample.scheduled_s >= 0]
    count_outcomes(record.samples, record.num_sent)
    answered = [sample for sample in samples if sample.is_ok]
    # Requests of the warm-up count if their response arrives during the run, because some of the run's own arrive after
    # it.
    in_time = [sample for sample in record.samples if sample.is_ok and 0 <= sample.ended_s <= plan.duration_s]
    is_open = isinstance(plan.load, Arrivals)
    latency = distribution(sample.latency_s for sample in answered)
    lag = distribution(max(0.0, sample.lag_s) for sample in samples) if is_open else None
    goal = plan.slos[-1] if plan.slos else None
    return RunResult(
        mode="open" if is_open else "closed",
        started_at=record.started_at,
        seed=plan.seed,
        duration_s=plan.duration_s,
        warm_up_s=plan.warm_up_s,
        num_sent=len(samples),
        offered_rate=len(samples) / plan.duration_s,
        achieved_rate=len(in_time) / plan.duration_s,
        goodput=None if goal is None else _num_within(samples, goal) / plan.duration_s,
        attained=[slo.judge(_num_within(samples, slo), _num_judged(samples)) for slo in plan.slos],
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
        problems=_problems(latency, lag, len(samples), plan.max_lag_s),
        per_s={name: amount / plan.duration_s for name, amount in _amounts(in_time).items()},
        cached_share=_cached_share(answered),
        phases_ms=_server_phases(answered),
        timeline=_timeline(samples, plan.duration_s),
        phases=_phases(plan.load, samples, goal) if isinstance(plan.load, Arrivals) else [],
        tester_cpu_share=record.cpu_share,
        num_connections=record.num_connections,
        max_open=record.max_open,
    )


def _problems(
    latency: Distribution | None, lag: Distribution | None, num_sent: int, max_lag_s: float
) -> list[str]:
    problems = []
    if num_sent == 0:
        problems.append("no request was sent")
    if lag is not None:
        limit_ms = max(max_lag_s * 1e3, MAX_LAG_SHARE * latency.p50_ms if latency else 0.0)
        if lag.p99_ms > limit_ms:
            problems.append(
                f"the tester began requests up to {lag.p99_ms:.2f} ms late (p99), more than {limit_ms:.2f} ms: "
                "the figures include its own delay"
            )
    return problems


def _num_judged(samples: Sequence[Sample]) -> int:
    """The number of requests that were not cancelled by the tester; the others say nothing about the server."""
    return sum(sample.outcome != DISCONNECTED for sample in samples)


def _num_within(samples: Sequence[Sample], slo: Slo) -> int:
    return sum(sample.is_within(slo.limit_s, is_first_text=slo.is_first_text) for sample in samples)


def _amounts(answered: Sequence[Sample]) -> dict[str, int]:
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
    values: dict[str, list[float]] = defaultdict(list)
    for sample in answered:
        for name, milliseconds in read_server_timing(sample.server_timing).items():
            values[name].append(milliseconds)
    return {
        name: {
            "mean": sum(found) / len(found),
            "p50": sorted(found)[rank_of(len(found), 50) - 1],
            "p99": sorted(found)[rank_of(len(found), 99) - 1],
        }
        for name, found in values.items()
    }


def _timeline(samples: Sequence[Sample], duration_s: float) -> list[TimelineBin]:
    """The run in equal bins of at least a second, at most MAX_TIMELINE, by due time."""
    num = max(1, min(MAX_TIMELINE, int(duration_s)))
    step_s = duration_s / num
    stretches: list[list[Sample]] = [[] for _ in range(num)]
    for sample in samples:
        stretches[min(num - 1, int(sample.scheduled_s / step_s))].append(sample)
    return [_timeline_bin(number * step_s, own) for number, own in enumerate(stretches)]


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


def _phases(arrivals: Arrivals, samples: Sequence[Sample], goal: Slo | None) -> list[PhaseResult]:
    found = []
    for from_s, phase in zip(arrivals.starts_s(), arrivals.phases, strict=True):
        until_s = from_s + phase.duration_s
        due = sorted(
            (sample for sample in samples if from_s <= sample.scheduled_s < until_s),
            key=lambda sample: sample.scheduled_s,
        )
        latencies = [sample.latency_s for sample in due if sample.is_ok]
        share = _num_within(due, goal) / max(1, _num_judged(due)) if goal is not None else None
        found.append(
            PhaseResult(
                rate=phase.rate,
                from_s=from_s,
                duration_s=phase.duration_s,
                num_sent=len(due),
                num_ok=len(latencies),
                attained_share=share,
                p50_ms=percentile_of(latencies, 50),
                p99_ms=percentile_of(latencies, 99),
                recovery_s=None if goal is None else _recovery_s(due, goal, from_s),
            )
        )
    return found


def _recovery_s(due: Sequence[Sample], goal: Slo, from_s: float) -> float | None:
    judged = [sample for sample in due if sample.outcome != DISCONNECTED]
    missed = [
        number
        for number, sample in enumerate(judged)
        if not sample.is_within(goal.limit_s, is_first_text=goal.is_first_text)
    ]
    if not missed:
        return 0.0
    if missed[-1] >= len(judged) * 0.9:
        return None
    return judged[missed[-1]].scheduled_s - from_s
