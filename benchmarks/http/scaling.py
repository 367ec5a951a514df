"""Measures Transduce's throughput by rows, threads and replicas, and fits a simple model to each.

Rows: n hypotheses advance together in one step. A step takes a constant time plus a time for each hypothesis, so
throughput is proportional to n / (a + b n).
Threads: by Amdahl's law, a share of the work runs on all threads. Replicas: the throughput of two, as a share of twice
the throughput of one.
"""

from __future__ import annotations

import asyncio
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import uvloop

from benchmarks.http.context import Context, Cores, cached_share, print_progress, running_servers
from benchmarks.http.process_tree import ProcessTree
from benchmarks.http.subjects import Subject, ours
from benchmarks.http.traffic import NUM_CLIENTS, mixed, plan_of
from benchmarks.server_process import ALL_CORES
from transduce.loadtest.arrivals import ClosedLoop
from transduce.loadtest.runner import run_async

ROWS = (4, 8, 16, 32, 64, 128)
# Closed-loop clients. A sentence takes four rows, so they fill the largest number of rows.
CLIENTS_FOR_ROWS = 48
# A server with four rows does not start if a beam may have more hypotheses.
SMALL_ROWS = {"max_beam_size": "4", "max_num_hypotheses": "4"}


@dataclass(frozen=True)
class RowsModel:
    """The model answers/s = n / (a + b n) for n rows. worst: the largest relative error of the fit.

    a, b: a step's constant time and its time for each row, in seconds. Both are multiplied by the number of rows that
    an answer takes and by the number of its steps.
    """

    a: float
    b: float
    worst: float

    def per_s(self, rows: int) -> float:
        """The predicted throughput."""
        return rows / (self.a + self.b * rows)


def fit_rows(points: Sequence[tuple[int, float]]) -> RowsModel:
    """Fit the model by least squares of the relative error of n / throughput. points: rows and answers/s, above 0."""
    rows = np.array([n for n, _ in points], float)
    seconds = rows / np.array([per_s for _, per_s in points])
    weights = 1 / seconds
    design = np.stack([np.ones_like(rows), rows], 1) * weights[:, None]
    (a, b), *_ = np.linalg.lstsq(design, seconds * weights, rcond=None)
    model = RowsModel(float(a), float(b), 0.0)
    worst = max(abs(model.per_s(n) / per_s - 1) for n, per_s in points)
    return replace(model, worst=worst)


def parallel_share(one: float, two: float) -> float:
    """The parallel share p of Amdahl's law, speed-up = 1 / (1 - p + p / 2).

    one, two: the throughput of one thread and of two threads.
    """
    return 2 * (1 - one / two)


def measure_scaling(context: Context, separate_cores: Cores) -> dict[str, Any]:
    """Measure rows with the server on its own core, and threads and replicas on two cores."""
    rounds = 1 if context.effort.is_quick else 2
    rows: dict[int, list[float]] = {number: [] for number in ROWS}
    cached_shares = []
    for _ in range(rounds):
        for number in ROWS:
            settings = {**SMALL_ROWS, "num_rows": str(number), "num_threads": "1"}
            subject = ours(context.bundle.path, context.python, settings)
            with running_servers([subject], separate_cores) as servers:
                rows[number].append(_throughput(servers, CLIENTS_FOR_ROWS, context.effort.scaling_s))
                cached_shares.append(cached_share(servers[0][1]))
            print_progress(f"{number} rows: {rows[number][-1]:.1f}/s")
    layouts = _layouts(context, rounds)
    medians = {number: statistics.median(rates) for number, rates in rows.items()}
    model = fit_rows(list(medians.items()))
    found = {
        "rows": [
            {"rows": number, "per_s": per_s, "model_per_s": model.per_s(number), "runs": rows[number]}
            for number, per_s in medians.items()
        ],
        "rows_model": {"a_ms": model.a * 1e3, "b_ms": model.b * 1e3, "worst": model.worst},
        "layouts": [
            {"name": name, "per_s": statistics.median(rates), "runs": rates}
            for name, rates in layouts.items()
        ],
        "not_decoded_share": max(cached_shares),
    }
    if {"1 x 2", "2 x 1"} <= layouts.keys():
        one, threads, replicas = (statistics.median(layouts[name]) for name in ("1 x 1", "1 x 2", "2 x 1"))
        found |= {"parallel_share": parallel_share(one, threads), "replica_share": replicas / (2 * one)}
    return found


def _layouts(context: Context, rounds: int) -> dict[str, list[float]]:
    """Throughput by layout: replicas x threads. Each replica has its own cores, which the tester shares."""
    cores = sorted(ALL_CORES)[:2]
    layouts: dict[str, list[frozenset[int]]] = {"1 x 1": [frozenset(cores[:1])]}
    if len(cores) == 2:
        layouts["1 x 2"] = [frozenset(cores)]
        layouts["2 x 1"] = [frozenset({core}) for core in cores]
    found: dict[str, list[float]] = {name: [] for name in layouts}
    for _ in range(rounds):
        for name, replicas in layouts.items():
            subjects = [
                ours(context.bundle.path, context.python, {"num_threads": str(len(replica))})
                for replica in replicas
            ]
            servers: list[tuple[Subject, ProcessTree]] = []
            try:
                for subject, replica in zip(subjects, replicas, strict=True):
                    servers.append((subject, ProcessTree(subject.command, cores=replica).__enter__()))
                os.sched_setaffinity(0, ALL_CORES)
                found[name].append(_throughput(servers, NUM_CLIENTS, context.effort.scaling_s))
            finally:
                for _, server in servers:
                    server.__exit__(None, None, None)
            print_progress(f"{name}: {found[name][-1]:.1f}/s")
    return found


def _throughput(servers: Sequence[tuple[Subject, ProcessTree]], num_clients: int, seconds: float) -> float:
    """Total throughput of the servers. Each gets the same number of the clients."""

    async def all_at_once() -> float:
        load = ClosedLoop(num_clients // len(servers), seconds)
        plans = [
            plan_of(server, subject.dialect, mixed(), load, seed=number)
            for number, (subject, server) in enumerate(servers)
        ]
        results = await asyncio.gather(*(run_async(plan) for plan in plans))
        return sum(result.achieved_rate for result in results)

    return uvloop.run(all_at_once())
