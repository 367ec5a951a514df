"""The requests that every server gets, and load tester runs summarised as a few figures."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import uvloop

from benchmarks.http.process_tree import ProcessTree
from benchmarks.serving import read_sentences
from transduce.loadtest.arrivals import Arrivals, ClosedLoop
from transduce.loadtest.dialects import DIALECTS, Dialect, NativeDialect, ParsedResponse
from transduce.loadtest.plan import RunPlan, Target
from transduce.loadtest.result import RunResult
from transduce.loadtest.runner import observe, run
from transduce.loadtest.sample import Sample
from transduce.loadtest.slo import Slo
from transduce.loadtest.workload import Workload, from_texts

# Whose first 60 sentences, and any more of them, are about as long as all together (as those of the next seed are): in
# a run's time one server gets through five times as many as another.
SEED = 24
NUM_SEEDS = 2
WARM_UP_S = 1.0
NUM_CLIENTS = 32
SLO = Slo(99, 1.0)
# Longer answers are cancelled: they would exceed every latency bound that is measured here.
TIMEOUT_S = 5.0
PATIENCE_S = 60.0
# Seconds of one client in a run; with fewer clients a run is longer in proportion.
FEW_ANSWERS, LONGER = 4, 3
SHORT_WORDS, LONG_WORDS = 7, 36
NUM_SHORT = 100


class TextsDialect(NativeDialect):
    """The native API, of whose answers only the texts are read, as minimal servers return no more."""

    name = "texts"

    def read(self, body: bytes) -> ParsedResponse:
        """Raises BadAnswerError."""
        return DIALECTS["v2"].read(body)


TEXTS: Dialect = TextsDialect()


@dataclass(frozen=True)
class Flow:
    """Result of closed-loop clients. Latencies in ms of answers within the limit; per_s: answers a second."""

    per_s: float
    num_answers: int
    num_failed: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    tester_cpu_share: float
    server_cpu_share: float


@dataclass(frozen=True)
class Trial:
    """One rate of Poisson arrivals. Latencies in ms from when requests were due; share: of answers within the bound."""

    rate: float
    holds: bool
    share_in_time: float
    p50_ms: float | None
    p99_ms: float | None
    num_sent: int
    num_ok: int
    lag_p99_ms: float
    is_tester_late: bool


def mixed() -> Workload:
    """The project's own sentences, 2 to 58 words."""
    return from_texts(read_sentences(), name="mixed")


def ten_words() -> list[str]:
    """Those with ten words."""
    return [text for text in read_sentences() if len(text.split()) == 10]


def bimodal() -> Workload:
    """Four short sentences for each long one, the short ones first."""
    texts = read_sentences()
    short = [text for text in texts if len(text.split()) <= SHORT_WORDS][:NUM_SHORT]
    long = [text for text in texts if len(text.split()) >= LONG_WORDS][: NUM_SHORT // 4]
    return from_texts([*short, *long], name="bimodal")


def characters_of(workload: Workload) -> float:
    """Mean number of code points of a request."""
    lengths = [sum(map(len, spec.texts)) for spec in workload.requests]
    return sum(lengths) / len(lengths)


def plan_of(
    server: ProcessTree,
    dialect: Dialect,
    workload: Workload,
    load: Arrivals | ClosedLoop,
    *,
    seed: int = SEED,
) -> RunPlan:
    """A run with the options that all runs share.

    A server that is counted for a time is at work when that begins, as it still is when it ends: otherwise what is half
    done at the end would be missing, most of all from a server that does much at once.
    """
    is_open = isinstance(load, Arrivals)
    is_counted = isinstance(load, ClosedLoop) and load.num_requests is not None
    return RunPlan(
        Target(server.url, dialect),
        workload,
        load,
        warm_up_s=0.0 if is_counted else WARM_UP_S,
        seed=seed,
        timeout_s=TIMEOUT_S if is_open else PATIENCE_S,
        slos=(SLO,),
    )


def closed(
    server: ProcessTree,
    dialect: Dialect,
    workload: Workload,
    *,
    num_clients: int,
    seconds: float,
    seed: int = SEED,
) -> Flow:
    """Closed-loop clients. Raises ValueError without any answer.

    A run is repeated with a longer time if a client got only a few answers, and again if all of them
    were of requests from before it.
    """
    for lasting_s in (seconds, LONGER * seconds, LONGER**2 * seconds):
        plan = plan_of(server, dialect, workload, ClosedLoop(num_clients, lasting_s), seed=seed)
        result, cpu_share = _closed(server, plan)
        few_ms = seconds * 1e3 / FEW_ANSWERS
        if result.latency is not None and (lasting_s > seconds or result.latency.p50_ms <= few_ms):
            break
    if result.latency is None:
        raise ValueError(f"no answer came: {result.outcomes}")
    percentiles = result.latency.percentiles
    return Flow(
        per_s=result.achieved_rate,
        num_answers=result.latency.num,
        num_failed=result.num_sent - result.outcomes["ok"],
        p50_ms=percentiles["p50"],
        p95_ms=percentiles["p95"],
        p99_ms=percentiles["p99"],
        tester_cpu_share=result.tester_cpu_share,
        server_cpu_share=cpu_share,
    )


def _closed(server: ProcessTree, plan: RunPlan) -> tuple[RunResult, float]:
    """Execute a run; returns it with the server's CPU time as a share of one core."""
    cpu_s, started_at = server.cpu_time_s(), time.perf_counter()
    result = run(plan)
    return result, (server.cpu_time_s() - cpu_s) / (time.perf_counter() - started_at)


def arrive(
    server: ProcessTree, dialect: Dialect, workload: Workload, *, rate: float, seconds: float, seed: int
) -> Trial:
    """Poisson arrivals at one rate. Waits until the server is idle, for the next run."""
    result = run(plan_of(server, dialect, workload, Arrivals.at(rate, seconds), seed=seed))
    settle(server, dialect)
    return trial_of(rate, result)


def trial_of(rate: float, result: RunResult) -> Trial:
    """The figures of a run at a rate."""
    latency, lag = result.latency, result.lag
    return Trial(
        rate=rate,
        holds=result.meets_slos,
        share_in_time=result.attained[-1].share,
        p50_ms=None if latency is None else latency.p50_ms,
        p99_ms=None if latency is None else latency.p99_ms,
        num_sent=result.num_sent,
        num_ok=result.outcomes["ok"],
        lag_p99_ms=0.0 if lag is None else lag.p99_ms,
        is_tester_late=not result.is_valid,
    )


def settle(server: ProcessTree, dialect: Dialect) -> None:
    """Wait for one answer: the server answers it after its remaining requests."""
    load = ClosedLoop(1, PATIENCE_S, num_requests=1)
    run(plan_of(server, dialect, from_texts(["Please shut the gate."]), load))


def samples_of(plan: RunPlan) -> list[Sample]:
    """Every request of a run except the warm-up."""
    return [sample for sample in uvloop.run(observe(plan)).samples if sample.scheduled_s >= 0]


def as_json(found: Flow | Trial) -> dict[str, object]:
    """The answer's fields."""
    return asdict(found)


def percentile_ms(seconds: Sequence[float], share: float) -> float | None:
    """A percentile in ms, by nearest rank; None without values."""
    if not seconds:
        return None
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e3
