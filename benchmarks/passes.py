"""Single passes over the sentences: closed loop, closed loop with httpx, and Poisson arrivals."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.batch_consistency import AnswerLog, mixed_requests
from benchmarks.load import Request, TimedAnswer, closed_loop, httpx_loop, random_arrivals, rate_of
from benchmarks.server_process import ServerProcess

ARRIVALS_OVER_ALONE = 2.0  # the arrival rate, as a multiple of the rate of one closed-loop client
SEED = 20


@dataclass(frozen=True)
class Load:
    """The result of one closed-loop pass.

    phases_ms: medians of the header Server-Timing. The entry `other`, which the header lacks, is the rest of the
    latency: HTTP on both sides and, with many clients, waiting for the server's CPU core. CPU shares are of one core.
    rows_per_step: the mean.
    """

    num_clients: int
    num_sentences: int
    sentences_per_s: float
    latency_median_ms: float
    latency_p95_ms: float
    phases_ms: dict[str, float]
    rows_per_step: float
    server_cpu_share: float
    client_cpu_share: float


def measure_load(
    server: ServerProcess, requests: Sequence[Request], *, num_clients: int, limit_s: float
) -> tuple[Load, list[TimedAnswer]]:
    """Send every request once, after a warm-up of one response per client. Stops after limit_s seconds.

    Returns the figures, and all answers, including the answers of the warm-up.
    """
    before = _counters(server)
    answers = asyncio.run(
        closed_loop(
            server.port,
            requests,
            num_clients=num_clients,
            num_answers=num_clients + len(requests),
            limit_s=limit_s,
        )
    )
    after = _counters(server)
    spent = {name: after[name] - before[name] for name in after}
    counted = answers[num_clients:]
    latencies = [answer.latency_ms for answer in counted]
    load = Load(
        num_clients=num_clients,
        num_sentences=len(counted),
        sentences_per_s=rate_of([answer.ended_at for answer in answers], num_warm_up=num_clients),
        latency_median_ms=statistics.median(latencies),
        latency_p95_ms=statistics.quantiles(latencies, n=20)[-1],
        phases_ms=_phases(counted),
        rows_per_step=spent["rows"] / max(spent["steps"], 1),
        server_cpu_share=spent["server_cpu_s"] / spent["time_s"],
        client_cpu_share=spent["client_cpu_s"] / spent["time_s"],
    )
    return load, answers


def _counters(server: ServerProcess) -> dict[str, float]:
    return {
        "rows": server.metric("transduce_batch_size_sum"),
        "steps": server.metric("transduce_batch_size_count"),
        "server_cpu_s": server.cpu_time_s(),
        "client_cpu_s": time.process_time(),
        "time_s": time.perf_counter(),
    }


def _phases(answers: Sequence[TimedAnswer]) -> dict[str, float]:
    phases = [answer.phases_ms for answer in answers]
    medians = {name: statistics.median(phase[name] for phase in phases) for name in phases[0]}
    other = [answer.latency_ms - sum(phase.values()) for answer, phase in zip(answers, phases, strict=True)]
    return {**medians, "other": statistics.median(other)}


def median_load(loads: Sequence[Load]) -> dict[str, Any]:
    """Each figure's median over the passes, by its field name in `Load`."""
    found: dict[str, Any] = {}
    for name, value in asdict(loads[0]).items():
        if isinstance(value, dict):
            found[name] = {
                phase: statistics.median(load.phases_ms[phase] for load in loads) for phase in value
            }
        else:
            found[name] = statistics.median(getattr(load, name) for load in loads)
    return found


def measure_httpx(
    server: ServerProcess, requests: Sequence[Request], *, num_clients: int, limit_s: float
) -> dict[str, float]:
    """`measure_load` with httpx clients, to check the client of `benchmarks.load`."""
    cpu_before, before = time.process_time(), time.perf_counter()
    ended_at = asyncio.run(
        httpx_loop(
            server.port,
            requests,
            num_clients=num_clients,
            num_answers=num_clients + len(requests),
            limit_s=limit_s,
        )
    )
    share = (time.process_time() - cpu_before) / (time.perf_counter() - before)
    return {
        "sentences_per_s": rate_of(ended_at, num_warm_up=num_clients),
        "client_cpu_share": share,
    }


def measure_arrivals(
    server: ServerProcess,
    requests: dict[int, list[Request]],
    log: AnswerLog,
    *,
    alone_rates: Sequence[float],
    limit_s: float,
) -> dict[str, float]:
    """Send sentences with every beam size, in random order, at Poisson times, for at most about limit_s seconds.

    alone_rates: sentences/s of one client, by beam size.
    """
    rate = ARRIVALS_OVER_ALONE * statistics.harmonic_mean(alone_rates)
    mixed = mixed_requests(requests, seed=SEED)[: int(rate * limit_s)]
    before = _counters(server)
    answers = asyncio.run(random_arrivals(server.port, mixed, rate=rate, seed=SEED))
    after = _counters(server)
    log.add_batched("random arrival", answers)
    lags = [(answer.sent_at - answer.due_at) * 1e3 for answer in answers]
    latencies = [answer.latency_ms for answer in answers]
    return {
        "num_requests": len(answers),
        "offered_per_s": rate,
        "latency_median_ms": statistics.median(latencies),
        "latency_p95_ms": statistics.quantiles(latencies, n=20)[-1],
        "sent_late_p99_ms": statistics.quantiles(lags, n=100)[-1],
        "rows_per_step": (after["rows"] - before["rows"]) / max(after["steps"] - before["steps"], 1),
    }
