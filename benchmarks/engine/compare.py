"""Measures Transduce and CTranslate2 alternately on the same cases: times, ratio, counters, lower bound."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from app.bundle import MANIFEST, Manifest
from benchmarks.engine.cases import Case
from benchmarks.engine.floor import Machine, floor_of
from benchmarks.engine.jobs import Job, JobResult
from benchmarks.engine.layouts import Layouts
from benchmarks.engine.search import PeerPool
from benchmarks.engine.weights import QUANTIZATION, ModelPair

# Seconds of one engine's turn. The number of calls in a turn follows from it.
TURN_S = 0.4
# Seconds of pause after a turn. The threads of that engine stop spinning, so they take no time from the other engine.
REST_S = 0.03
# Seconds. If a call takes longer, the first call, which measures the duration, also counts as the first round.
LONG_S = 2.0
STARTED_AT = time.perf_counter()
Side = Callable[[Job], JobResult]


@dataclass(frozen=True)
class ComparisonOptions:
    """How much to measure.

    A case has num_rounds rounds. But after its first two, no other one begins if case_budget_s seconds have passed.
    target: a key of `search.LIMITS`, whose instructions limit both engines; None: no limit.
    """

    num_threads: int
    num_rows: int
    num_rounds: int
    case_budget_s: float
    is_quick: bool
    target: str | None = None


def compare(
    prepared: ModelPair, cases: list[Case], options: ComparisonOptions, machine: Machine
) -> list[dict[str, Any]]:
    """Compare both engines on every case, with one model in one precision. Returns a result row for each case."""
    manifest = Manifest.model_validate_json((prepared.ours / MANIFEST).read_bytes())
    pool = pool_of(prepared, options)
    layouts = Layouts(arguments_of(prepared, options))
    rows = []
    try:
        for case in cases:
            found = pool.search(case)
            layout = layouts.search(case)
            ours = partial(layouts.translate, layout=layout)
            job, turns = _take_turns(ours, partial(pool.translate, choice=found.choice), case, options)
            # Worker processes report only their time. The counters come from a run in one process.
            is_alone = layout == layouts.alone
            done = merged([turn[0] for turn in turns]) if is_alone else layouts.translate(job, layouts.alone)
            row = {
                "model": prepared.name,
                "precision": prepared.precision,
                "case": case.name,
                "num_sentences": case.num_sentences,
                "num_groups": case.num_groups,
                "beam_size": case.beam_size,
                "max_target_length": case.job.max_target_length,
                **_times(turns, case),
                "layout": layout.describe(),
                "alone_ms": statistics.median(done.times_s) * 1e3 / case.num_groups,
                "peer_choice": found.choice.describe(),
                "peer_backend": found.choice.backend,
                "peer_settings": asdict(found.choice.settings),
                "peer_tried": found.tried,
                "calls_a_turn": job.num_calls,
                "equal_ids": _share_equal(turns[-1], job),
                "calls_s": sum(done.times_s),
                "num_calls": len(done.times_s),
                "spent": asdict(done.spent),
            }
            if machine.products_per_s:
                row["floor"] = asdict(floor_of(manifest, prepared.precision, machine, job, done))
            rows.append(row)
            print_progress(line_of(row))
    finally:
        layouts.close()
        pool.close()
    return rows


def arguments_of(prepared: ModelPair, options: ComparisonOptions) -> dict[str, Any]:
    """Arguments of Transduce's process."""
    return {
        "bundle": str(prepared.ours),
        "precision": prepared.precision,
        "num_rows": options.num_rows,
        "num_threads": options.num_threads,
        "kernels": options.target or "auto",
    }


def pool_of(prepared: ModelPair, options: ComparisonOptions) -> PeerPool:
    """CTranslate2's processes for a model."""
    return PeerPool(
        str(prepared.peer),
        QUANTIZATION[prepared.precision],
        num_threads=options.num_threads,
        is_quick=options.is_quick,
        target=options.target,
    )


def _take_turns(
    ours: Side, theirs: Side, case: Case, options: ComparisonOptions
) -> tuple[Job, list[tuple[JobResult, JobResult]]]:
    """Run both engines once per round, and alternate which is first. Returns the job and the results by round.

    A turn has one to ten calls. Their number is chosen so that the slower engine's turn takes about TURN_S.
    """
    started_at = time.perf_counter()
    once = replace(case.job, num_calls=1, is_warmed=not case.is_long)
    first = (ours(once), theirs(once))
    slowest_s = max(done.times_s[0] for done in first)
    job = replace(
        case.job, num_calls=max(1, min(10, round(TURN_S / slowest_s))), is_warmed=slowest_s < TURN_S
    )
    turns: list[tuple[JobResult, JobResult]] = [first] if slowest_s > LONG_S else []
    while len(turns) < options.num_rounds:
        if len(turns) >= 2 and time.perf_counter() - started_at > options.case_budget_s:
            break
        time.sleep(REST_S)
        if len(turns) % 2:
            their_result = theirs(job)
            time.sleep(REST_S)
            turns.append((ours(job), their_result))
        else:
            our_result = ours(job)
            time.sleep(REST_S)
            turns.append((our_result, theirs(job)))
    return job, turns


def _times(turns: list[tuple[JobResult, JobResult]], case: Case) -> dict[str, Any]:
    """Medians over all calls, in milliseconds per group. The ratio is above 1 if Transduce is faster.

    ratio_least, ratio_most: the lowest and the highest ratio of a round.
    """
    scale = 1e3 / case.num_groups
    our_medians = [statistics.median(turn[0].times_s) for turn in turns]
    their_medians = [statistics.median(turn[1].times_s) for turn in turns]
    ratios = [their / our for our, their in zip(our_medians, their_medians, strict=True)]
    ours_s, theirs_s = (statistics.median(t for turn in turns for t in turn[side].times_s) for side in (0, 1))
    return {
        "ours_ms": ours_s * scale,
        "peer_ms": theirs_s * scale,
        "ratio": theirs_s / ours_s,
        "ratio_least": min(ratios),
        "ratio_most": max(ratios),
        "num_rounds": len(turns),
        "sentences_per_s": case.num_sentences * case.num_groups / ours_s,
        "peer_sentences_per_s": case.num_sentences * case.num_groups / theirs_s,
    }


def _share_equal(turn: tuple[JobResult, JobResult], job: Job) -> float | None:
    """The share of sentences with equal output in both engines. None for forced lengths.

    At the length limit, Transduce's last step allows only the end token. So Transduce returns one subword less for a
    sentence that reaches the limit.
    """
    if job.is_forced:
        return None
    pairs = list(zip(turn[0].ids, turn[1].ids, strict=True))
    return sum(ours == theirs[: job.max_target_length - 1] for ours, theirs in pairs) / len(pairs)


def merged(turns: list[JobResult]) -> JobResult:
    """One engine's results of all turns as one result: the times of all calls, and the sums of the counters."""
    counters = [asdict(turn.spent) for turn in turns]
    total = _sum_of(counters)
    times = [time_s for turn in turns for time_s in turn.times_s]
    return JobResult(times, turns[-1].ids, replace(turns[0].spent, **total))


def _sum_of(values: list[Any]) -> Any:
    """The sum of numbers. Of dicts: the sums by key."""
    if isinstance(values[0], dict):
        return {name: _sum_of([each[name] for each in values]) for name in values[0]}
    return sum(values)


def line_of(row: dict[str, Any]) -> str:
    """A result row as one line of progress."""
    return (
        f"{row['model']:<12} {row['precision']} {row['case']:<16} n={row['num_sentences']:<4} "
        f"beam={row['beam_size']} ours {row['ours_ms']:8.1f} ms ({row['layout']})  peer {row['peer_ms']:8.1f} ms  "
        f"ratio {row['ratio']:.2f} ({row['ratio_least']:.2f}-{row['ratio_most']:.2f})  {row['peer_choice']}"
    )


def print_progress(line: str) -> None:
    """Print a line to stderr, after the seconds since the start."""
    print(f"{time.perf_counter() - STARTED_AT:6.1f} {line}", file=sys.stderr, flush=True)
