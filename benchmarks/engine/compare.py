"""Measures both sides in turns on the same cases: times, ratio, breakdown, floor."""

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
from benchmarks.engine.jobs import Done, Job
from benchmarks.engine.layouts import Layouts
from benchmarks.engine.search import PeerPool
from benchmarks.engine.weights import QUANTIZATION, Prepared

# The length of a turn. It sets the number of calls.
TURN_S = 0.4
# The pause after a turn, in which the threads of that side stop polling for work.
REST_S = 0.03
# If a call takes longer, the call that measures its length is also the first round.
LONG_S = 2.0
STARTED_AT = time.perf_counter()
Side = Callable[[Job], Done]


@dataclass(frozen=True)
class ComparisonOptions:
    """How much to measure: turns of each side, and the seconds after which a case gets no further turns."""

    num_threads: int
    num_rows: int
    num_rounds: int
    case_budget_s: float
    is_quick: bool


def compare(
    prepared: Prepared, cases: list[Case], options: ComparisonOptions, machine: Machine
) -> list[dict[str, Any]]:
    """Every case on one model in one precision."""
    manifest = Manifest.model_validate_json((prepared.ours / MANIFEST).read_bytes())
    pool = PeerPool(
        str(prepared.peer),
        QUANTIZATION[prepared.precision],
        num_threads=options.num_threads,
        is_quick=options.is_quick,
    )
    layouts = Layouts(arguments_of(prepared, options))
    rows = []
    try:
        for case in cases:
            found = pool.search(case)
            layout = layouts.search(case)
            ours = partial(layouts.translate, layout=layout)
            job, turns = _take_turns(ours, partial(pool.translate, choice=found.choice), case, options)
            # Of worker processes only the time is known.
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
                "peer_tried": found.tried,
                "calls_a_turn": job.num_calls,
                "equal_ids": _share_equal(turns[-1], job),
                "calls_s": sum(done.times_s),
                "num_calls": len(done.times_s),
                "spent": asdict(done.spent),
                "floor": asdict(floor_of(manifest, prepared.precision, machine, job, done)),
            }
            rows.append(row)
            say(line_of(row))
    finally:
        layouts.close()
        pool.close()
    return rows


def arguments_of(prepared: Prepared, options: ComparisonOptions) -> dict[str, Any]:
    """Arguments of our side's process."""
    return {
        "bundle": str(prepared.ours),
        "precision": prepared.precision,
        "num_rows": options.num_rows,
        "num_threads": options.num_threads,
    }


def _take_turns(
    ours: Side, theirs: Side, case: Case, options: ComparisonOptions
) -> tuple[Job, list[tuple[Done, Done]]]:
    """Rounds of one turn each, the first of a round in turn; so many calls in a turn that it lasts TURN_S."""
    started_at = time.perf_counter()
    once = replace(case.job, num_calls=1, is_warmed=not case.is_long)
    first = (ours(once), theirs(once))
    slowest_s = max(done.times_s[0] for done in first)
    job = replace(
        case.job, num_calls=max(1, min(10, round(TURN_S / slowest_s))), is_warmed=slowest_s < TURN_S
    )
    turns: list[tuple[Done, Done]] = [first] if slowest_s > LONG_S else []
    while len(turns) < options.num_rounds:
        if len(turns) >= 2 and time.perf_counter() - started_at > options.case_budget_s:
            break
        time.sleep(REST_S)
        if len(turns) % 2:
            other = theirs(job)
            time.sleep(REST_S)
            turns.append((ours(job), other))
        else:
            own = ours(job)
            time.sleep(REST_S)
            turns.append((own, theirs(job)))
    return job, turns


def _times(turns: list[tuple[Done, Done]], case: Case) -> dict[str, Any]:
    """Medians over all calls, in milliseconds a group. The ratio is above 1 if our side is faster."""
    scale = 1e3 / case.num_groups
    own = [statistics.median(turn[0].times_s) for turn in turns]
    theirs = [statistics.median(turn[1].times_s) for turn in turns]
    ratios = [their / our for our, their in zip(own, theirs, strict=True)]
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


def _share_equal(turn: tuple[Done, Done], job: Job) -> float | None:
    """The share of sentences with equal output on both sides; None for random weights.

    A sentence that does not end has one subword less on our side: the last of our steps only allows the end token.
    """
    if job.is_forced:
        return None
    pairs = list(zip(turn[0].ids, turn[1].ids, strict=True))
    return sum(own == their[: job.max_target_length - 1] for own, their in pairs) / len(pairs)


def merged(turns: list[Done]) -> Done:
    """All turns of one side as one result: every call's time, and the sum of the rest."""
    spent = [asdict(turn.spent) for turn in turns]
    total = _added_up(spent)
    times = [time_s for turn in turns for time_s in turn.times_s]
    return Done(times, turns[-1].ids, replace(turns[0].spent, **total))


def _added_up(spent: list[Any]) -> Any:
    """The sum of numbers, or of dicts of them, key by key."""
    if isinstance(spent[0], dict):
        return {name: _added_up([each[name] for each in spent]) for name in spent[0]}
    return sum(spent)


def line_of(row: dict[str, Any]) -> str:
    """A row as printed during the run."""
    return (
        f"{row['model']:<12} {row['precision']} {row['case']:<16} n={row['num_sentences']:<4} "
        f"beam={row['beam_size']} ours {row['ours_ms']:8.1f} ms ({row['layout']})  peer {row['peer_ms']:8.1f} ms  "
        f"ratio {row['ratio']:.2f} ({row['ratio_least']:.2f}-{row['ratio_most']:.2f})  {row['peer_choice']}"
    )


def say(line: str) -> None:
    """Print progress to stderr, with the seconds since the start."""
    print(f"{time.perf_counter() - STARTED_AT:6.1f} {line}", file=sys.stderr, flush=True)
