"""Formats the result of `benchmarks.serving` as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

PHASES = ("tokenise", "queue", "encode", "decode", "detokenise", "other")


def render(result: dict[str, Any]) -> str:
    """All figures as Markdown tables, with the machine and the versions."""
    machine, model = result["machine"], result["model"]
    packages = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    cores = (
        "After the measured starts, the server had one core and the client had another."
        if result["pinned"]
        else "The server and the client shared the only core, so the rates are not comparable."
    )
    served = (
        f"{model['name']} {model['version']} in {model['precision']}; {result['num_sentences']} sentences "
        f"(`benchmarks/sentences.tsv`), without the sentence cache. {cores}"
    )
    measured_on = (
        f"{machine['cpu']}, {machine['num_cores']} cores, {machine['memory_gb']} GB, Linux {machine['kernel']}; "
        f"commit {result['commit']}; {packages}; {machine['measured_at']}, load before "
        f"{machine['load_average_before']}; the run took {result['seconds']} s."
    )
    command = f"```\n{result['command']}\n```"
    tables = [
        _start(result),
        _rates(result),
        _phases(result),
        _batch_consistency(result["batch_consistency"]),
    ]
    parts = ["# Serving", served, measured_on, command, *tables]
    return "\n\n".join(parts) + "\n"


def _start(result: dict[str, Any]) -> str:
    start, memory = result["start"], result["memory"]
    medians, starts = start["medians"], start["starts"]
    rows = [
        ("start to ready, s", f"{medians['ready_s']:.2f}", _range(starts, "ready_s", 2)),
        ("first request, ms", f"{medians['first_ms']:.1f}", _range(starts, "first_ms", 1)),
        (f"steady median (beam 4, “{start['sentence']}”), ms", f"{medians['steady_median_ms']:.1f}",
         _range(starts, "steady_median_ms", 1)),
        ("first over steady", f"{medians['first_over_steady']:.2f}", _range(starts, "first_over_steady", 2)),
        ("peak memory when ready, MB", f"{memory['after_start_mb']:.0f}", ""),
        ("peak memory after the load, MB", f"{memory['after_load_mb']:.0f}", ""),
    ]  # fmt: skip
    return f"## Start and memory\n\nMedians of {len(starts)} starts.\n\n" + _table(
        ("", "median", "lowest to highest"), rows
    )


def _range(starts: list[dict[str, float]], name: str, digits: int) -> str:
    values = [start[name] for start in starts]
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def _rates(result: dict[str, Any]) -> str:
    header = ("", "sentences/s", "median ms", "p95 ms", "rows per step", "server CPU", "client CPU")
    rows = []
    notes = []
    for beam, load in result["load"].items():
        name = beam.replace("_", " ")
        for each in (load["one_client"], load["many_clients"]):
            clients = f"{each['num_clients']:.0f} client{'s' if each['num_clients'] > 1 else ''}"
            rows.append((
                f"{name}, {clients}",
                f"{each['sentences_per_s']:.1f}",
                f"{each['latency_median_ms']:.1f}",
                f"{each['latency_p95_ms']:.1f}",
                f"{each['rows_per_step']:.1f}",
                f"{each['server_cpu_share']:.0%}",
                f"{each['client_cpu_share']:.0%}",
            ))  # fmt: skip
        ratios = ", ".join(f"{ratio:.2f}" for ratio in load["ratios"])
        notes.append(
            f"{name}: 32 clients get {load['ratio']:.2f} times as many answers (by round: {ratios})."
        )
    checks = [
        f"{beam.replace('_', ' ')} {check['sentences_per_s']:.1f} sentences/s "
        f"at {check['client_cpu_share']:.0%} client CPU"
        for beam, check in result["httpx"].items()
    ]
    notes.append(f"The clients use asyncio streams. With 32 httpx clients instead: {', '.join(checks)}.")
    return (
        "## One client and 32 clients\n\n"
        + _table(header, rows)
        + "\n\n"
        + "\n".join(f"- {n}" for n in notes)
    )


def _phases(result: dict[str, Any]) -> str:
    rows = []
    for beam, load in result["load"].items():
        for each in (load["one_client"], load["many_clients"]):
            name = f"{beam.replace('_', ' ')}, {each['num_clients']:.0f}"
            rows.append((name, *(f"{each['phases_ms'][phase]:.2f}" for phase in PHASES)))
    return (
        "## Time by phase\n\nMedian milliseconds by phase (`Server-Timing`), for 1 client and 32 clients. `other` is "
        "the rest: HTTP on both sides and, with 32 clients, waiting for the core.\n\n"
        + _table(("", *PHASES), rows)
    )


def _batch_consistency(by_precision: dict[str, Any]) -> str:
    rows, notes = [], []
    for precision, found in by_precision.items():
        if "skipped" in found:
            notes.append(f"{precision}: not compared: {found['skipped']}.")
            continue
        for name, each in found["answers"].items():
            rows.append((
                f"{precision}, {name}",
                f"{each['num_compared']:.0f}",
                f"{each['num_different']:.0f}",
                f"{each['num_other_scores']:.0f}",
                f"{each['largest_score_gap']:.2g}",
            ))  # fmt: skip
        arrivals = found["arrivals"]
        notes.append(
            f"{precision}: {arrivals['num_requests']} requests of both beam sizes in random order. They arrive at "
            f"Poisson times, {arrivals['offered_per_s']:.1f}/s. The p99 of the client's lag is "
            f"{arrivals['sent_late_p99_ms']:.1f} ms. A step has {arrivals['rows_per_step']:.1f} rows on average. "
            f"Latency: {arrivals['latency_median_ms']:.1f} ms median, {arrivals['latency_p95_ms']:.1f} ms p95."
        )
    header = ("", "answers", "text or length differs", "score differs", "largest score gap")
    return (
        "## Batch consistency\n\nEach answer is compared with the answer to the same sentence alone.\n\n"
        + _table(header, rows)
        + "\n\n"
        + "\n".join(f"- {note}" for note in notes)
    )


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
