"""The highest rate of mixed-length traffic at which nearly all requests are in time; servers take turns."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.http.context import Context, Cores, kept_share, running, say, turned
from benchmarks.http.process_tree import ProcessTree
from benchmarks.http.rate_search import RateSearch
from benchmarks.http.subjects import Subject
from benchmarks.http.traffic import (
    NUM_CLIENTS,
    SEED,
    SLO,
    TIMEOUT_S,
    Trial,
    arrive,
    bimodal,
    characters_of,
    closed,
    mixed,
    percentile_ms,
    plan_of,
    samples_of,
    settle,
)
from transduce.loadtest.arrivals import Arrivals

# The search's first rate, as a share of the closed-loop throughput.
FIRST_SHARE = 0.85
# Requests/s. At a lower rate a trial has only a handful of requests.
LEAST_RATE = 0.5
# The load of the mixed test, as a share of the window batcher's greatest throughput.
BIMODAL_SHARE = 0.5


def measure_goodput(
    servers: Sequence[tuple[Subject, ProcessTree]], saturated: Mapping[str, float], context: Context
) -> dict[str, Any]:
    """For each server its trials and its highest successful rate. saturated: closed-loop answers a second.

    Everybody has a trial in every round, until the searches are done or the time for them is over.
    """
    effort = context.effort
    until = time.monotonic() + effort.search_s
    searches = {
        subject.name: RateSearch(
            max(LEAST_RATE, FIRST_SHARE * saturated[subject.name]), most=effort.most_trials
        )
        for subject, _ in servers
    }
    trials: dict[str, list[Trial]] = {subject.name: [] for subject, _ in servers}
    number = 0
    while any(not search.is_done for search in searches.values()) and time.monotonic() < until:
        for subject, server in servers:
            search = searches[subject.name]
            if search.is_done:
                continue
            trial = arrive(
                server, subject.dialect, mixed(), rate=search.rate, seconds=effort.trial_s, seed=SEED + number
            )
            trials[subject.name].append(trial)
            search.tell(holds=trial.holds)
            say(
                f"{subject.name} at {trial.rate:.1f}/s: {trial.share_in_time:.2%} in time, p99 {trial.p99_ms}"
            )
        number += 1
    return {
        subject.name: {
            "per_s": searches[subject.name].highest,
            "failed_at": searches[subject.name].lowest_failed,
            "trials": [asdict(trial) for trial in trials[subject.name]],
        }
        for subject, _ in servers
    }


def measure_slo(
    subjects: Sequence[Subject],
    cores: Cores,
    context: Context,
    saturated: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Search each rate, after the closed-loop throughput if it is not known."""
    with running(subjects, cores) as servers:
        known = saturated or {
            subject.name: closed(
                server, subject.dialect, mixed(), num_clients=NUM_CLIENTS, seconds=context.effort.saturated_s
            ).per_s
            for subject, server in servers
        }
        found = measure_goodput(servers, known, context)
        kept = [kept_share(server) for subject, server in servers if subject.is_ours]
    return {
        "is_pinned": cores.is_pinned,
        "slo": str(SLO),
        "settings": {subject.name: subject.settings for subject in subjects},
        "trial_s": context.effort.trial_s,
        "characters_per_request": characters_of(mixed()),
        "goodput": found,
        "kept_share": max(kept, default=0.0),
    }


def measure_bimodal(
    subjects: Sequence[Subject], cores: Cores, context: Context, *, window: str
) -> dict[str, Any]:
    """Short sentences beside long ones, at one rate for all: a share of what the server `window` does at most."""
    effort = context.effort
    workload = bimodal()
    num_short = len(workload.requests) * 4 // 5
    with running(subjects, cores) as servers:
        most = {
            subject.name: closed(
                server,
                subject.dialect,
                workload,
                num_clients=NUM_CLIENTS,
                seconds=effort.saturated_s,
            ).per_s
            for subject, server in servers
        }
        rate = BIMODAL_SHARE * most[window]
        # An overloaded server would still process old requests in its next turn.
        able = [each for each in servers if most[each[0].name] > rate]
        rows: dict[str, list[dict[str, Any]]] = {subject.name: [] for subject, _ in able}
        for number in range(effort.num_bimodal):
            for subject, server in turned(able, number):
                load = Arrivals.at(rate, effort.bimodal_s)
                samples = samples_of(plan_of(server, subject.dialect, workload, load, seed=SEED + number))
                settle(server, subject.dialect)
                # An unanswered request counts with the time until the end of its wait.
                short, long = (
                    [each.latency_s if each.is_ok else TIMEOUT_S for each in own]
                    for own in (
                        [each for each in samples if each.number < num_short],
                        [each for each in samples if each.number >= num_short],
                    )
                )
                row = {
                    "num_short": len(short),
                    "num_failed": sum(not each.is_ok for each in samples),
                    "short_p50_ms": percentile_ms(short, 0.5),
                    "short_p99_ms": percentile_ms(short, 0.99),
                    "long_p50_ms": percentile_ms(long, 0.5),
                    "long_p99_ms": percentile_ms(long, 0.99),
                }
                rows[subject.name].append(row)
                say(f"short and long, {subject.name} at {rate:.1f}/s: {row}")
        kept = [kept_share(server) for subject, server in servers if subject.is_ours]
    return {
        "is_pinned": cores.is_pinned,
        "settings": {subject.name: subject.settings for subject in subjects},
        "rate": rate,
        "share_of_window": BIMODAL_SHARE,
        "servers": rows,
        "saturated": most,
        "kept_share": max(kept, default=0.0),
    }
