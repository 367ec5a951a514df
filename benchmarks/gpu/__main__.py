"""Measure Transduce on a GPU. Each part runs in a separate process with its own time limit.

The result has the reason of a part that is skipped, and the error of a part that fails. Writes JSON after every part.
At the end, prints a short table and writes it beside the JSON as .md. Needs no network.

    python -m benchmarks.gpu --device cuda --output benchmarks/results/gpu.json
    python -m benchmarks.gpu --device cpu --quick
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from app.runtime import cuda_attention, cuda_choice
from benchmarks.gpu import accuracy, kernels, speed
from benchmarks.gpu.report import render
from benchmarks.gpu.subject import GpuBenchmarkOptions, SkipError
from benchmarks.machine import ROOT, describe_run

# The parts in order, with their time limits in seconds. The first part that needs the random model writes it for all.
PARTS: dict[str, tuple[Callable[[GpuBenchmarkOptions], dict[str, Any]], float]] = {
    "placement": (accuracy.placement, 60.0),
    "steps": (speed.steps, 90.0),
    "kernels": (kernels.kernels, 40.0),
    "agreement": (accuracy.agreement, 90.0),
    "throughput": (speed.throughput, 75.0),
    "batch_consistency": (accuracy.batch_consistency, 60.0),
    "memory": (speed.memory, 60.0),
    "http": (speed.http, 90.0),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add = parser.add_argument
    add("--device", choices=("cuda", "cpu"), default="cuda", help="device of the model (default: cuda)")
    add(
        "--bundle",
        type=Path,
        default=ROOT / "bundles" / "en-de",
        help="a bundle with an fp16 variant (default: the bundled model)",
    )
    add(
        "--data",
        type=Path,
        help="TSV of source and target, .xz or plain (default: benchmarks/sentences.tsv, without BLEU)",
    )
    add("--output", type=Path, default=ROOT / "benchmarks" / "results" / "gpu.json", help="JSON file")
    add("--quick", action="store_true", help="a short test run with few sentences and steps")
    add(
        "--parts", default=",".join(PARTS), help=f"comma-separated parts of {', '.join(PARTS)} (default: all)"
    )
    add(
        "--budget",
        type=float,
        default=450.0,
        metavar="S",
        help="time limit of all parts; the part that runs then is ended, and the others are skipped (default: 450)",
    )
    add(
        "--memory-s",
        type=float,
        default=30.0,
        metavar="S",
        help="duration of the part memory (default: 30; with --quick always 0.5)",
    )
    add(
        "--golden-min-share",
        type=float,
        default=0.8,
        metavar="SHARE",
        help="share of the golden sentences that the server of the part http must decode exactly (default: 0.8)",
    )
    add("--one", help=argparse.SUPPRESS)
    add("--work", type=Path, help=argparse.SUPPRESS)


def run_part(options: GpuBenchmarkOptions, name: str, arguments: list[str], left_s: float) -> dict[str, Any]:
    """Run a part in a separate process. Returns its result and its status: ok, skipped or failed."""
    limit_s = min(PARTS[name][1] + max(0.0, options.memory_s - 30.0) * (name == "memory"), left_s)
    output = options.work / f"{name}.json"
    command = [sys.executable, "-m", "benchmarks.gpu", *arguments, "--one", name, "--work", str(options.work)]
    started_at = time.perf_counter()
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=limit_s)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)  # with the server of the part http
            if isinstance(error, subprocess.TimeoutExpired):
                return {"status": "failed", "reason": f"took more than {limit_s:.0f} s"}
            raise
    if not output.exists():
        last = (stderr.strip() or stdout.strip()).splitlines()[-3:]
        return {"status": "failed", "reason": f"exit code {process.returncode}: {' | '.join(last)}"}
    found: dict[str, Any] = json.loads(output.read_text("utf-8"))
    return {**found, "took_s": round(time.perf_counter() - started_at, 1)}


class ChoiceLog(logging.Handler):
    """Collects what runners log about their choice of kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record's message."""
        self.lines.append(record.getMessage())


def run_here(options: GpuBenchmarkOptions, name: str) -> None:
    """Run a part in this process, and write its result to the work folder."""
    log = ChoiceLog()
    for logger in (cuda_choice.logger, cuda_attention.logger):
        logger.setLevel(logging.INFO)
        logger.addHandler(log)
    try:
        found = {"status": "ok", **PARTS[name][0](options), "choice_of_kernels": log.lines}
    except SkipError as error:
        found = {"status": "skipped", "reason": str(error)}
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        (options.work / f"{name}.json").write_text(
            json.dumps({"status": "failed", "reason": reason[:2000]}), "utf-8"
        )
        raise
    (options.work / f"{name}.json").write_text(json.dumps(found), "utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts, write the result and print the table. Returns the exit code: 1 if a part failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    command_line = list(sys.argv[1:] if arguments is None else arguments)
    args = parser.parse_args(command_line)
    names = args.parts.split(",")
    if unknown := set(names) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    started_at = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        options = GpuBenchmarkOptions(
            device=args.device,
            bundle=args.bundle,
            data=args.data,
            work=args.work or Path(folder),
            is_quick=args.quick,
            memory_s=0.5 if args.quick else args.memory_s,
            golden_min_share=args.golden_min_share,
        )
        if args.one:
            run_here(options, args.one)
            return 0
        run = describe_run("benchmarks.gpu", command_line)
        result: dict[str, Any] = {
            **run,
            "machine": run["machine"] | gpu_facts(),
            "device": args.device,
            "parts": {},
        }
        args.output.parent.mkdir(parents=True, exist_ok=True)
        for name in names:
            left_s = args.budget - (time.perf_counter() - started_at)
            result["parts"][name] = (
                run_part(options, name, command_line, left_s)
                if left_s > 0
                else {"status": "skipped", "reason": f"the budget of {args.budget:.0f} s is spent"}
            )
            print(f"{name}: {result['parts'][name]['status']}", file=sys.stderr, flush=True)
            args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    table = render(result)
    args.output.with_suffix(".md").write_text(table + "\n", "utf-8")
    print(table)
    return 1 if any(part["status"] == "failed" for part in result["parts"].values()) else 0


def gpu_facts() -> dict[str, str]:
    """The GPU's name, driver version and memory, from nvidia-smi. Empty without nvidia-smi."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, check=True, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"gpu": done.stdout.strip()}


if __name__ == "__main__":
    # These signals raise SystemExit, so that `run_part` kills the process of the part. That process has a session of
    # its own, which the signals do not reach.
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
    sys.exit(main())
