"""The result file: one JSON document with all results of a command; every report is made from it."""

from __future__ import annotations

import math
import os
import platform
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import orjson

from transduce.loadtest.arrivals import Arrivals
from transduce.loadtest.output_files import write
from transduce.loadtest.plan import RunPlan
from transduce.loadtest.repeats import latency_of_all, summary
from transduce.loadtest.result import NOT_JUDGED, RunResult
from transduce.loadtest.sample import OK, most_frequent_error
from transduce.loadtest.server_side import Pinning
from transduce.loadtest.slo import Slo, Threshold
from transduce.loadtest.sweep import SweepResult

FORMAT = "transduce-loadtest-1"
PASSED = "passed"
MISSED = "missed"
FAILED = "failed"
INVALID = "invalid"
# As documented in docs/load-testing.md.
EXIT_CODES = {PASSED: 0, MISSED: 1, FAILED: 1, INVALID: 3}
DEFAULT_MIN_OK = 0.99
# Maximum number of digits after the decimal point of a value in a report.
MAX_DIGITS = 15

Document = dict[str, Any]


@dataclass(frozen=True)
class RunMetadata:
    """What a document says about the command, apart from its measurements. models: those that the server reports."""

    label: str
    command: str
    models: list[dict[str, Any]] | None = None
    pinning: Pinning = field(default_factory=Pinning)


def make_document(
    plan: RunPlan,
    runs: Sequence[RunResult],
    sweep: SweepResult | None,
    metadata: RunMetadata,
    *,
    min_rate: float | None = None,
    min_ok: float = DEFAULT_MIN_OK,
) -> Document:
    """The document of one command.

    runs: empty for a sweep. min_rate: the required answers/s; for a sweep, the required highest rate in requests/s.

    min_ok: the share of requests that must have the outcome `ok`, 0 to 1. A sweep overloads the server on purpose, so
    in a sweep one request with this outcome is enough.
    """
    problems = [
        f"run {number}: {problem}" for number, one in enumerate(runs, start=1) for problem in one.problems
    ] + (sweep.problems if sweep else [])
    thresholds = find_thresholds(plan.slos, runs, sweep, min_rate)
    failure = find_failure(runs, min_ok) if sweep is None else find_failure(_runs_of(sweep), 0.0)
    verdict = INVALID if problems else PASSED if all(each.is_met for each in thresholds) else MISSED
    if failure is not None:
        verdict = FAILED
    document = {
        "format": FORMAT,
        "label": metadata.label,
        "verdict": verdict,
        "failure": failure,
        "problems": problems,
        "thresholds": [asdict(threshold) for threshold in thresholds],
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": metadata.command,
        "target": {
            "url": plan.target.url,
            "dialect": plan.target.dialect.name,
            "source": plan.target.source,
            "target": plan.target.target,
            "models": metadata.models,
        },
        "plan": describe_plan(plan),
        "machine": {
            **describe_machine(),
            "server_cores": list(metadata.pinning.server),
            "tester_cores": list(metadata.pinning.tester),
        },
        "summary": summary(runs),
        "latency_of_all_runs_ms": latency_of_all(runs),
        "runs": [one.as_json() for one in runs],
        "sweep": sweep.as_json() if sweep else None,
    }
    return {name: _encodable(value) for name, value in document.items()}


def _encodable(value: Any) -> Any:
    """The value with question marks for the surrogates in its strings, which no file can hold.

    Arguments and names of files have surrogates for bytes that are not UTF-8.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {_encodable(name): _encodable(each) for name, each in value.items()}
    return [_encodable(each) for each in value] if isinstance(value, list | tuple) else value


def _runs_of(sweep: SweepResult) -> list[RunResult]:
    first = [] if sweep.saturation is None else [sweep.saturation]
    return [*first, *(point.result for point in sweep.points)]


def find_failure(runs: Sequence[RunResult], min_ok: float) -> str | None:
    """The share of answered requests and the most frequent error, as text.

    None if enough requests were answered, or if no request counts.

    min_ok: the required share of answered requests over all runs, 0 to 1. Requests that the tester gave up on purpose,
    or for which it had no file descriptor or port, do not count. Whatever the share is, at least one request must be
    answered.
    """
    num_judged = sum(one.num_judged for one in runs)
    num_ok = sum(one.outcomes[OK] for one in runs)
    if not num_judged or (num_ok and num_ok / num_judged >= min_ok):
        return None
    counts: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for one in runs:
        counts.update({name: num for name, num in one.outcomes.items() if name not in NOT_JUDGED})
        examples = {**one.error_examples, **examples}
    needed = f", {min_ok * 100:g} % are needed" if min_ok else ""
    percentage = in_digits(num_ok / num_judged * 100, 1, needed=min_ok * 100 or math.inf, is_met=False)
    return (
        f"{num_ok} of {num_judged} requests were answered ({percentage}%{needed}); "
        f"the most frequent error: {most_frequent_error(counts, examples)}"
    )


def in_digits(value: float, num_digits: int, *, needed: float, is_met: bool) -> str:
    """The value with `num_digits` digits after the point, or as many more as its text needs to agree with `is_met`.

    needed: the minimum that meets the requirement. is_met: whether `value` does. MAX_DIGITS limits the digits.
    """
    for digits in range(num_digits, MAX_DIGITS):
        text = f"{value:.{digits}f}"
        if (float(text) >= needed) == is_met:
            return text
    return f"{value:.{MAX_DIGITS}f}"


def find_thresholds(
    slos: Sequence[Slo], runs: Sequence[RunResult], sweep: SweepResult | None, min_rate: float | None
) -> list[Threshold]:
    """The objectives and the required rate; for a sweep only the rate.

    An objective is met if more than half of the runs meet it. Its text has the median, over the runs, of the share of
    requests within the limit. If the number of runs is even, this is the lower of the two middle shares, so that the
    share agrees with the verdict.
    """
    found = []
    for number, slo in enumerate(slos if runs else ()):
        share = statistics.median_low(one.attained[number].share for one in runs)
        is_met = 2 * sum(one.attained[number].is_met for one in runs) > len(runs)
        found.append(
            Threshold(
                str(slo),
                f"{slo.percentile:g} % within {slo.limit_s * 1e3:g} ms",
                f"{in_digits(share * 100, 2, needed=slo.percentile, is_met=is_met)} %",
                is_met,
            )
        )
    if sweep is not None:
        rate = sweep.max_rate
        needed = f"at least {min_rate:g} requests/s" if min_rate else "some rate"
        name = f"rate with {', '.join(sweep.slos)}"
        found.append(
            Threshold(name, needed, "none", is_met=False)
            if rate is None
            else rate_threshold(name, needed, rate, min_rate or 0.0)
        )
    elif min_rate is not None and runs:
        rate = statistics.median(one.achieved_rate for one in runs)
        found.append(rate_threshold("achieved rate", f"at least {min_rate:g} requests/s", rate, min_rate))
    return found


def rate_threshold(name: str, needed: str, rate: float, min_rate: float) -> Threshold:
    """The requirement that a rate is at least `min_rate`. needed: the text of this requirement."""
    is_met = rate >= min_rate
    return Threshold(name, needed, f"{in_digits(rate, 1, needed=min_rate, is_met=is_met)} requests/s", is_met)


def describe_plan(plan: RunPlan) -> dict[str, Any]:
    """The plan as JSON, without the API key and the texts."""
    load = asdict(plan.load)
    return {
        "load": {"mode": "open" if isinstance(plan.load, Arrivals) else "closed", **load},
        "workload": {
            "name": plan.workload.name,
            "num_requests": len(plan.workload.requests),
            "is_distinct": plan.workload.is_distinct,
            "disconnect_share": plan.workload.disconnect_share,
        },
        "warm_up_s": plan.warm_up_s,
        "timeout_s": plan.timeout_s,
        "seed": plan.seed,
        "max_connections": plan.max_connections,
        "max_lag_s": plan.max_lag_s,
        "slos": [str(slo) for slo in plan.slos],
    }


def describe_machine() -> dict[str, Any]:
    """The machine that the tester runs on."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line for line in info.read_text("utf-8", errors="replace").splitlines() if "model name" in line
        ]
        cpu = names[0].partition(":")[2].strip() if names else cpu
    try:
        own = version("transduce")
    except PackageNotFoundError:
        own = "unknown"
    return {
        "cpu": cpu,
        "num_cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "transduce": own,
    }


def write_json(document: Document, path: Path) -> None:
    """Write a result file into a folder that exists. Raises OSError."""
    write(path, orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def read_json(path: Path) -> Document:
    """Read a result file. Raises OSError, ValueError."""
    try:
        found = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"{path} is not a result file of this version of `transduce loadtest`")
    return found
