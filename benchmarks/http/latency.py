"""Measures latency with one client, throughput at saturation, starts, memory, and quality. Servers alternate."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from benchmarks.engine.cases import read_pairs
from benchmarks.http.context import Context, Cores, cached_share, print_progress, rotated, running_servers
from benchmarks.http.process_tree import ProcessTree
from benchmarks.http.subjects import Subject
from benchmarks.http.traffic import (
    CLOSED_LOOP_TIMEOUT_S,
    NUM_CLIENTS,
    NUM_SEEDS,
    SEED,
    ClosedLoopResult,
    closed_loop,
    mixed,
    plan_of,
    samples_of,
)
from transduce.loadtest.arrivals import ClosedLoop
from transduce.loadtest.workload import from_texts

Servers = list[tuple[Subject, ProcessTree]]


def measure_starts(subjects: Sequence[Subject], cores: Cores, num_starts: int) -> dict[str, dict[str, float]]:
    """Median seconds from a process's start until it is ready, and until its first answer."""
    found: dict[str, list[tuple[float, float]]] = {subject.name: [] for subject in subjects}
    for _ in range(num_starts):
        for subject in subjects:
            with running_servers([subject], cores) as servers:
                ((_, server),) = servers
                started_at = time.perf_counter()
                load = ClosedLoop(1, CLOSED_LOOP_TIMEOUT_S, num_requests=1)
                samples_of(
                    plan_of(server, subject.dialect, from_texts(["The kettle is already boiling."]), load)
                )
                found[subject.name].append(
                    (server.ready_s, server.ready_s + time.perf_counter() - started_at)
                )
    return {
        name: {
            "ready_s": statistics.median(each[0] for each in own),
            "first_answer_s": statistics.median(each[1] for each in own),
        }
        for name, own in found.items()
    }


def measure_closed_loops(
    servers: Servers, *, num_clients: int, seconds: float, num_rounds: int
) -> dict[str, dict[str, Any]]:
    """Run closed-loop clients on each server, in several rounds. Returns the rounds and their medians, by server."""
    found: dict[str, list[ClosedLoopResult]] = {subject.name: [] for subject, _ in servers}
    for number in range(num_rounds):
        for subject, server in rotated(servers, number):
            result = closed_loop(
                server,
                subject.dialect,
                mixed(),
                num_clients=num_clients,
                seconds=seconds,
                seed=SEED + number % NUM_SEEDS,
            )
            found[subject.name].append(result)
            print_progress(
                f"{num_clients} clients, {subject.name}: {result.per_s:.1f}/s, median {result.p50_ms:.1f} ms"
            )
    return {name: {**median_of(own), "rounds": [asdict(each) for each in own]} for name, own in found.items()}


def median_of(results: list[ClosedLoopResult]) -> dict[str, float]:
    """The median of each field."""
    rows = [asdict(result) for result in results]
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}


def measure_quality(servers: Servers, context: Context) -> dict[str, Any]:
    """BLEU and chrF of the translations at saturation, by server. Empty without sentence pairs."""
    if context.data is None:
        return {}
    import sacrebleu

    pairs = read_pairs(context.data)[: context.effort.num_quality]
    workload = from_texts([source for source, _ in pairs], name="pairs")
    load = ClosedLoop(NUM_CLIENTS, 10 * CLOSED_LOOP_TIMEOUT_S, num_requests=len(pairs))
    bleu, chrf = sacrebleu.BLEU(), sacrebleu.CHRF()
    rows = {}
    for subject, server in servers:
        plan = replace(plan_of(server, subject.dialect, workload, load), keeps_texts=True)
        texts = {
            each.number: each.response.texts[0] for each in samples_of(plan) if each.response is not None
        }
        answers = [texts.get(number, "") for number in range(len(pairs))]
        references = [[target for _, target in pairs]]
        rows[subject.name] = {
            "num_answers": len(texts),
            "bleu": bleu.corpus_score(answers, references).score,
            "chrf": chrf.corpus_score(answers, references).score,
        }
        print_progress(f"quality, {subject.name}: {rows[subject.name]}")
    return {
        "data": context.data.name,
        "num_sentences": len(pairs),
        "signatures": [str(bleu.get_signature()), str(chrf.get_signature())],
        "servers": rows,
    }


def measure_latency(
    subjects: Sequence[Subject], cores: Cores, context: Context, *, with_starts: bool
) -> dict[str, Any]:
    """All measurements of this module on these cores. with_starts: also measure starts and quality."""
    effort = context.effort
    starts = measure_starts(subjects, cores, effort.num_starts) if with_starts else {}
    with running_servers(subjects, cores) as servers:
        fresh = {subject.name: asdict(server.memory()) for subject, server in servers}
        num_rounds = effort.num_rounds
        alone = measure_closed_loops(servers, num_clients=1, seconds=effort.alone_s, num_rounds=num_rounds)
        saturated = measure_closed_loops(
            servers, num_clients=NUM_CLIENTS, seconds=effort.saturated_s, num_rounds=num_rounds
        )
        translating = [(subject, server) for subject, server in servers if subject.is_ours or subject.is_peer]
        quality = measure_quality(translating, context) if with_starts else {}
        loaded = {subject.name: asdict(server.memory()) for subject, server in servers}
        cached_shares = [cached_share(server) for subject, server in servers if subject.is_ours]
    return {
        "is_pinned": cores.are_separate,
        "settings": {subject.name: subject.settings for subject in subjects},
        "starts": starts,
        "alone": alone,
        "saturated": saturated,
        "quality": quality,
        "memory": {name: {"ready": fresh[name], "after_load": loaded[name]} for name in fresh},
        "not_decoded_share": max(cached_shares, default=0.0),
    }
