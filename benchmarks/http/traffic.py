"""The workloads of the HTTP benchmark, and runs of the load tester summarised as a few figures."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import uvloop

from benchmarks.engine.jobs import ALPHA
from benchmarks.http.process_tree import ProcessTree
from benchmarks.serving import read_sentences
from transduce.loadtest.arrivals import Arrivals, ClosedLoop
from transduce.loadtest.dialects import DIALECTS, Dialect, NativeDialect, ParsedResponse, RequestSpec
from transduce.loadtest.plan import RunPlan, Target
from transduce.loadtest.result import RunResult
from transduce.loadtest.runner import observe, run
from transduce.loadtest.sample import Sample
from transduce.loadtest.slo import Slo
from transduce.loadtest.workload import Workload, from_texts

# A slow server answers fewer sentences in a run than a fast one. For a fair comparison, the sentences' mean length must
# not depend on how many are answered. With the seeds SEED and SEED + 1, this holds from 60 sentences on: the mean
# number of words of the first sentences differs by at most 9 % from the mean of all sentences.
SEED = 24
NUM_SEEDS = 2
WARM_UP_S = 1.0
NUM_CLIENTS = 32
SLO = Slo(99, 1.0)
# Timeout of a request with Poisson arrivals. It is above every latency bound of this benchmark.
TIMEOUT_S = 5.0
# Timeout of a request of a closed-loop client.
CLOSED_LOOP_TIMEOUT_S = 60.0
# A closed-loop run is repeated with LONGER times its duration if a client gets fewer than about FEW_ANSWERS answers, or
# all clients together fewer than LEAST_ANSWERS.
FEW_ANSWERS, LONGER, LEAST_ANSWERS = 4, 3, 100
SHORT_WORDS, LONG_WORDS = 7, 36
NUM_SHORT = 100
# The divisor of scores, length^ALPHA, which the peers have too (`benchmarks.http.peer_engines.Search`).
PENALTY = {"length_penalty": {"formula": "power", "alpha": ALPHA}}


class TextsDialect(NativeDialect):
    """The native API with PENALTY. Reads only a response's texts, because the minimal servers return nothing else."""

    name = "texts"

    def body(self, spec: RequestSpec, source: str, target: str, api_key: str | None) -> bytes:
        """The fields of the native API. The minimal servers ignore the penalty, because they have it already."""
        return super().body(replace(spec, options={**PENALTY, **spec.options}), source, target, api_key)

    def read(self, body: bytes) -> ParsedResponse:
        """Parse a response. Raises BadAnswerError."""
        return DIALECTS["v2"].read(body)


TEXTS: Dialect = TextsDialect()


@dataclass(frozen=True)
class ClosedLoopResult:
    """Result of closed-loop clients. per_s: answers/s. Latencies are in ms. CPU shares are of one core."""

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
    """Result of Poisson arrivals at one rate. Latencies are in ms, from the time when a request was due.

    holds: whether the run meets the objective. share_in_time: the share of requests answered within the bound.
    """

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
    """The sentences of `sentences.tsv`, which have 2 to 58 words."""
    return from_texts(read_sentences(), name="mixed")


def ten_words() -> list[str]:
    """The sentences of `sentences.tsv` with ten words."""
    return [text for text in read_sentences() if len(text.split()) == 10]


def bimodal() -> Workload:
    """A workload with four short sentences for each long one. The short sentences come first.

    Short: at most SHORT_WORDS words. Long: at least LONG_WORDS.
    """
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
    """The plan of a run, with the options that all runs share.

    A timed run begins with a warm-up, so that the server already has requests in progress when the measured time
    begins. When that time ends, the server has unfinished requests, whose answers do not count in the rate of answers.
    In return, the answers to requests of the warm-up count in that rate if they arrive in the measured time. Without
    the warm-up, a server that runs many requests at once would lose the most answers. A run with a fixed number of
    requests has no warm-up.
    """
    is_open = isinstance(load, Arrivals)
    is_counted = isinstance(load, ClosedLoop) and load.num_requests is not None
    return RunPlan(
        Target(server.url, dialect),
        workload,
        load,
        warm_up_s=0.0 if is_counted else WARM_UP_S,
        seed=seed,
        timeout_s=TIMEOUT_S if is_open else CLOSED_LOOP_TIMEOUT_S,
        slos=(SLO,),
    )


def closed_loop(
    server: ProcessTree,
    dialect: Dialect,
    workload: Workload,
    *,
    num_clients: int,
    seconds: float,
    seed: int = SEED,
) -> ClosedLoopResult:
    """Run closed-loop clients. Raises ValueError if no request of the measured time is answered.

    A run with few such answers (FEW_ANSWERS, LEAST_ANSWERS) is repeated with a longer time, at most twice.
    """
    for duration_s in (seconds, LONGER * seconds, LONGER**2 * seconds):
        plan = plan_of(server, dialect, workload, ClosedLoop(num_clients, duration_s), seed=seed)
        result, cpu_share = _run_closed_loop(server, plan)
        slowest_ms = duration_s * 1e3 / FEW_ANSWERS
        latency = result.latency
        if latency is not None and latency.num >= LEAST_ANSWERS and latency.p50_ms <= slowest_ms:
            break
    if result.latency is None:
        raise ValueError(f"no answer arrived: {result.outcomes}")
    percentiles = result.latency.percentiles
    return ClosedLoopResult(
        per_s=result.achieved_rate,
        num_answers=result.latency.num,
        num_failed=result.num_sent - result.outcomes["ok"],
        p50_ms=percentiles["p50"],
        p95_ms=percentiles["p95"],
        p99_ms=percentiles["p99"],
        tester_cpu_share=result.tester_cpu_share,
        server_cpu_share=cpu_share,
    )


def _run_closed_loop(server: ProcessTree, plan: RunPlan) -> tuple[RunResult, float]:
    """Execute a run. Returns its result, and the server's CPU time as a share of one core."""
    cpu_s, started_at = server.cpu_time_s(), time.perf_counter()
    result = run(plan)
    return result, (server.cpu_time_s() - cpu_s) / (time.perf_counter() - started_at)


def open_loop(
    server: ProcessTree, dialect: Dialect, workload: Workload, *, rate: float, seconds: float, seed: int
) -> Trial:
    """Run Poisson arrivals at one rate, then wait until the server has no waiting requests."""
    result = run(plan_of(server, dialect, workload, Arrivals.at(rate, seconds), seed=seed))
    wait_until_idle(server, dialect)
    return trial_of(rate, result)


def trial_of(rate: float, result: RunResult) -> Trial:
    """The figures of a run at one rate."""
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


def wait_until_idle(server: ProcessTree, dialect: Dialect) -> None:
    """Send one request and wait for its answer. The server begins it after the requests that already wait."""
    load = ClosedLoop(1, CLOSED_LOOP_TIMEOUT_S, num_requests=1)
    run(plan_of(server, dialect, from_texts(["Please shut the gate."]), load))


def samples_of(plan: RunPlan) -> list[Sample]:
    """Execute a run. Returns every request of it except those of the warm-up."""
    return [sample for sample in uvloop.run(observe(plan)).samples if sample.scheduled_s >= 0]
