"""`transduce loadtest URL`: puts load on a server and writes a report; the exit code says whether objectives were met.

Exit codes: 0 every threshold is met; 1 a threshold is missed, too few requests were answered (also in a run that is not
valid), or the command failed; 2 the command line is wrong; 3 a run or a sweep is not valid, for example because the
tester itself was late (docs/load-testing.md).
"""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tqdm import tqdm

from transduce.errors import CommandError, ExitCode
from transduce.loadtest.arguments import add_arguments, make_plan
from transduce.loadtest.arrivals import DEFAULT_BURSTINESS
from transduce.loadtest.baseline import baseline_answers
from transduce.loadtest.compare import compare_files
from transduce.loadtest.document import EXIT_CODES, Document, RunMetadata, make_document, write_json
from transduce.loadtest.html_report import html_report
from transduce.loadtest.output_files import prepare, write
from transduce.loadtest.percentiles import percentile_of
from transduce.loadtest.plan import RunPlan
from transduce.loadtest.quality import Expectation, references_of
from transduce.loadtest.repeats import with_seeds
from transduce.loadtest.result import RunResult
from transduce.loadtest.runner import OnProgress, Progress, run
from transduce.loadtest.server_side import SERVER_HAS_ENDED, ServerSide, difference, pinned
from transduce.loadtest.sweep import SweepPoint, SweepResult, SweepSettings, sweep
from transduce.loadtest.text_report import text_report
from transduce.signals import sigterm_as_interrupt

COMPARE = "compare"
# The progress bar shows the latencies of the last LAST_S seconds, of at most MAX_SHOWN requests.
LAST_S = 5.0
MAX_SHOWN = 10_000


def add_loadtest_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `transduce loadtest`."""
    add_arguments(parser)


class Execute(Protocol):
    """Executes one plan, as `runner.run` does."""

    def __call__(
        self, plan: RunPlan, on_progress: OnProgress | None, *, expected: Expectation | None
    ) -> RunResult:
        """The result of the run. If `expected` is set, the translations are compared with it."""


def run_loadtest(args: argparse.Namespace, *, execute: Execute = run) -> int:
    """Execute what the arguments define. Returns the exit code.

    execute: executes each run and each step of a sweep.

    Raises:
        CommandError: the arguments contradict each other, or a value or a text file is invalid.
        OSError: a file cannot be read or written, or the process of `--server-pid` cannot be read or pinned.
        ValueError: a result file is invalid, the baseline cannot be measured, or the precision of a sweep is too large.
        ModuleNotFoundError: translations are to be compared, and sacrebleu is not installed.
    """
    if args.url == COMPARE:
        if args.json is not None:
            raise CommandError("compare writes no --json, only --html", exit_code=ExitCode.USAGE)
        return compare_files(args.files, args.html)
    if args.files:
        raise CommandError("result files can only follow `compare`", exit_code=ExitCode.USAGE)
    plan = make_plan(args)
    for path in filter(None, (args.json, args.html)):
        prepare(path)
    server = ServerSide(plan.target, args.server_pid)
    with sigterm_as_interrupt(), pinned(args.server_pid if args.pin else None) as pinning:
        expected = baseline_answers(plan, args.rest) if args.rest else references_of(plan.workload)
        run_plan = _with_server_figures(server, expected, execute)
        found = _sweep(plan, args, run_plan) if args.sweep else None
        runs = [] if args.sweep else _runs(plan, args.runs or 1, run_plan)
    models = server.models()
    metadata = RunMetadata(
        label=args.label or f"{plan.workload.name} on {plan.target.url}",
        command=shlex.join(["transduce", *sys.argv[1:]]),
        models=models,
        pinning=pinning,
    )
    document = make_document(plan, runs, found, metadata, min_rate=args.min_rate, min_ok=args.min_ok)
    try:
        print(text_report(document), flush=True)
    finally:  # also if the reader of stdout has closed the pipe
        _write(document, args.json, args.html)
    return EXIT_CODES[document["verdict"]]


Run = Callable[[RunPlan, OnProgress | None], RunResult]


def _with_server_figures(server: ServerSide, expected: Expectation | None, execute: Execute) -> Run:
    """A function that executes a run and adds the server's figures, warm-up included, to its result."""

    def run_plan(plan: RunPlan, on_progress: OnProgress | None) -> RunResult:
        before, started_at = server.snapshot(), time.monotonic()
        result = execute(plan, on_progress, expected=expected)
        seconds = time.monotonic() - started_at
        after = server.snapshot()
        problems = [*result.problems, SERVER_HAS_ENDED] if after.has_ended else result.problems
        return dataclasses.replace(result, server=difference(before, after, seconds), problems=problems)

    return run_plan


def _runs(plan: RunPlan, num_runs: int, run_plan: Run) -> list[RunResult]:
    found = []
    for number, each in enumerate(with_seeds(plan, num_runs), start=1):
        with _Bar(plan, f"run {number} of {num_runs}") as bar:
            found.append(run_plan(each, bar.show))
    return found


def _sweep(plan: RunPlan, args: argparse.Namespace, run_plan: Run) -> SweepResult:
    settings = SweepSettings(
        duration_s=args.duration,
        kind=args.arrivals,
        burstiness=args.burstiness or DEFAULT_BURSTINESS,
        precision=args.precision,
        first_rate=args.rate,
    )

    def with_bar(one: RunPlan, _: OnProgress | None) -> RunResult:
        with _Bar(one, "sweep") as bar:
            return run_plan(one, bar.show)

    return sweep(plan, settings, on_point=_print_point, run_one=with_bar)


def _print_point(point: SweepPoint) -> None:
    latency = point.result.latency
    p99 = f"p99 {latency.p99_ms:.0f} ms" if latency else "no answers"
    held = "holds" if point.holds else "not valid" if not point.result.is_valid else "does not hold"
    tqdm.write(f"{point.rate:8.2f} requests/s: {held}, {p99}", file=sys.stderr)


class _Bar:
    """The progress bar of one run on stderr, if that is a terminal."""

    def __init__(self, plan: RunPlan, name: str) -> None:
        self._total = max(1, round(plan.duration_s + plan.warm_up_s))
        self._warm_up_s = plan.warm_up_s
        self._bar = tqdm(
            total=self._total,
            desc=name,
            unit="s",
            disable=None,
            leave=False,
            bar_format="{desc} {bar:20} {n:.0f}/{total} s{postfix}",
        )

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def show(self, progress: Progress) -> None:
        """Update the bar. The run's event loop calls this twice a second."""
        if self._bar.disable:
            return
        recent = []
        for sample in reversed(progress.samples[-MAX_SHOWN:]):
            if sample.ended_s < progress.elapsed_s - LAST_S:
                break
            if sample.is_ok:
                recent.append(sample.latency_s)
        p50, p99 = percentile_of(recent, 50), percentile_of(recent, 99)
        latencies = (
            "" if p50 is None or p99 is None else f", last {LAST_S:g} s: p50 {p50:.0f} ms, p99 {p99:.0f} ms"
        )
        self._bar.n = min(self._total, progress.elapsed_s + self._warm_up_s)
        self._bar.set_postfix_str(
            f"sent {progress.num_sent}, failed {progress.num_failed}, open {progress.num_open}{latencies}",
            refresh=True,
        )


def _write(document: Document, json_path: Path | None, html_path: Path | None) -> None:
    try:
        if json_path is not None:
            write_json(document, json_path)
    finally:  # also if the result file cannot be written
        if html_path is not None:
            write(html_path, html_report(document).encode())
