"""Finds the highest rate of mixed-length traffic at which a server meets its latency objective. Servers alternate.

Also measures the latencies of short and of long sentences at one rate.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.http.context import Context, Cores, cached_share, print_progress, rotated, running_servers
from benchmarks.http.process_tree import ProcessTree
from benchmarks.http.rate_search import RateSearch
from benchmarks.http.subjects import Subject
from benchmarks.http.traffic import (
    NUM_CLIENTS,
    SEED,
    SLO,
    TIMEOUT_S,
    Trial,
    bimodal,
    characters_of,
    closed_loop,
    mixed,
    open_loop,
    plan_of,
    samples_of,
    wait_until_idle,
)
from transduce.loadtest.arrivals import Arrivals
from transduce.loadtest.percentiles import percentile_of

# The first rate of the search, as a share of the closed-loop throughput.
FIRST_SHARE = 0.85
# The maximum number of trials at one rate. Only a trial with a late tester is repeated.
MAX_ATTEMPTS = 2
# The minimum first rate of a search, in requests/s. At a lower rate a trial has only a handful of requests.
MIN_FIRST_RATE = 0.5
# The rate of the test with short and long sentences, as a share of the closed-loop throughput of CTranslate2 with the
# window batcher.
BIMODAL_SHARE = 0.5


def measure_goodput(
    servers: Sequence[tuple[Subject, ProcessTree]], saturated: Mapping[str, float], context: Context
) -> dict[str, Any]:
    """Search for the highest successful rate of each server. saturated: closed-loop answers/s.

    Each server has one trial per round, until all searches are done or their time is over. A trial in which the tester
    sent requests late is repeated once, and only the repetition counts. Returns the highest rate and the trials, by
    server.
    """
    effort = context.effort
    until = time.monotonic() + effort.search_s
    searches = {
        subject.name: RateSearch(
            max(MIN_FIRST_RATE, FIRST_SHARE * saturated[subject.name]), most=effort.most_trials
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
            for _ in range(MAX_ATTEMPTS):
                trial = open_loop(
                    server,
                    subject.dialect,
                    mixed(),
                    rate=search.rate,
                    seconds=effort.trial_s,
                    seed=SEED + number,
                )
                trials[subject.name].append(trial)
                print_progress(
                    f"{subject.name} at {trial.rate:.1f}/s: {trial.share_in_time:.2%} in time, p99 {trial.p99_ms}"
                    f"{', tester late' if trial.is_tester_late else ''}"
                )
                if not trial.is_tester_late:
                    break
            search.record(holds=trial.holds)
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
    """Search each server's goodput. Measures the closed-loop throughput first if `saturated` is None."""
    with running_servers(subjects, cores) as servers:
        known = saturated or {
            subject.name: closed_loop(
                server, subject.dialect, mixed(), num_clients=NUM_CLIENTS, seconds=context.effort.saturated_s
            ).per_s
            for subject, server in servers
        }
        found = measure_goodput(servers, known, context)
        cached_shares = [cached_share(server) for subject, server in servers if subject.is_ours]
    return {
        "is_pinned": cores.are_separate,
        "slo": str(SLO),
        "settings": {subject.name: subject.settings for subject in subjects},
        "trial_s": context.effort.trial_s,
        "characters_per_request": characters_of(mixed()),
        "goodput": found,
        "not_decoded_share": max(cached_shares, default=0.0),
    }


def measure_bimodal(
    subjects: Sequence[Subject], cores: Cores, context: Context, *, window: str
) -> dict[str, Any]:
    """Latencies of short and of long sentences in one stream.

    All servers get the same rate: a share of the closed-loop throughput of the server named `window`.
    """
    effort = context.effort
    workload = bimodal()
    num_short = len(workload.requests) * 4 // 5  # the first four fifths of the requests are short
    with running_servers(subjects, cores) as servers:
        saturated = {
            subject.name: closed_loop(
                server,
                subject.dialect,
                workload,
                num_clients=NUM_CLIENTS,
                seconds=effort.saturated_s,
            ).per_s
            for subject, server in servers
        }
        rate = BIMODAL_SHARE * saturated[window]
        # Servers whose throughput is not above the rate are left out. They would still have old requests in their next
        # turn.
        fast_enough = [each for each in servers if saturated[each[0].name] > rate]
        rows: dict[str, list[dict[str, Any]]] = {subject.name: [] for subject, _ in fast_enough}
        for number in range(effort.num_bimodal):
            for subject, server in rotated(fast_enough, number):
                load = Arrivals.at(rate, effort.bimodal_s)
                samples = samples_of(plan_of(server, subject.dialect, workload, load, seed=SEED + number))
                wait_until_idle(server, subject.dialect)
                # An unanswered request counts with the timeout as its latency.
                short, long = (
                    [each.latency_s if each.is_ok else TIMEOUT_S for each in group]
                    for group in (
                        [each for each in samples if each.number < num_short],
                        [each for each in samples if each.number >= num_short],
                    )
                )
                row = {
                    "num_short": len(short),
                    "num_failed": sum(not each.is_ok for each in samples),
                    "short_p50_ms": percentile_of(short, 50),
                    "short_p99_ms": percentile_of(short, 99),
                    "long_p50_ms": percentile_of(long, 50),
                    "long_p99_ms": percentile_of(long, 99),
                }
                rows[subject.name].append(row)
                print_progress(f"short and long, {subject.name} at {rate:.1f}/s: {row}")
        cached_shares = [cached_share(server) for subject, server in servers if subject.is_ours]
    return {
        "is_pinned": cores.are_separate,
        "settings": {subject.name: subject.settings for subject in subjects},
        "rate": rate,
        "share_of_window": BIMODAL_SHARE,
        "servers": rows,
        "saturated": saturated,
        "not_decoded_share": max(cached_shares, default=0.0),
    }
