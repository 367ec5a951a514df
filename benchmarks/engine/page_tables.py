"""Formats results as tables of docs/performance.md, which have at most six columns.

The results are those of `benchmarks.engine`, `benchmarks.engine.quality`, `benchmarks.step`, `benchmarks.ssru` and
`benchmarks.marian`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks import server_tables
from benchmarks.engine.goals import GOAL_HEADER, goal_lines
from benchmarks.engine.report import arrivals_text, packing, table, tried_backends

Row = dict[str, Any]
PRECISIONS = ("int8", "fp32")


def measured_on(result: dict[str, Any]) -> str:
    """The machine, the versions and the command, one fact per line."""
    machine, options, measured = result["machine"], result["plan"], result["measured"]
    rates = ", ".join(f"{name} {rate / 1e9:.0f}" for name, rate in measured["products_per_s"].items())
    reads = ", ".join(f"{size} MiB: {rate / 1e9:.0f}" for size, rate in measured["bytes_per_s"].items())
    facts = [
        f"Machine: {machine['cpu']} ({machine['vendor']}), {machine['num_cores']} cores, {machine['memory_gb']} GB.",
        f"System: Linux {machine['kernel']}; load average before the run {machine['load_average_before']}.",
        f"Run: {machine['measured_at']}, {result['seconds']:.0f} s, commit {result['commit']}.",
        f"Each side: {options['num_threads']} threads. Transduce: {options['num_rows']} cache rows.",
        packing(result),
        f"Backends of CTranslate2 that were tried: {tried_backends(result)}.",
        *([f"Multiply-adds of ONNX Runtime's own matrix product, 10^9 a second: {rates}."] if rates else []),
        f"Repeated reads of an array, GB/s by its size: {reads}.",
        f"Versions: {', '.join(f'{name} {version}' for name, version in result['versions'].items())}.",
        f"Command: `{result['command']}`.",
    ]
    return "\n".join(f"- {fact}" for fact in facts)


def goals_tables(result: dict[str, Any]) -> str:
    """A table for each precision: each goal's bound, the lowest and highest figure, and how many cases meet it."""
    return _by_name(
        (precision, table(GOAL_HEADER, goal_lines(result, precision)))
        for precision in PRECISIONS
        if any(row["precision"] == precision for row in result["cases"])
    )


def arrivals_table(result: dict[str, Any]) -> str:
    """The highest arrival rates, one line per beam size, or why they are left out."""
    return arrivals_text(result, _arrivals_table)


def _arrivals_table(rows: Sequence[Row]) -> str:
    header = ("model", "beam", "Transduce, sentences/s", "CTranslate2, sentences/s", "times as many")
    return table(
        header,
        (
            (
                f"{row['model']} {row['precision']}", row["beam_size"], f"{row['ours_per_s']:.0f}",
                f"{row['peer_per_s']:.0f}", "" if row["ratio"] is None else f"{row['ratio']:.2f}",
            )
            for row in rows
        ),
    )  # fmt: skip


def quality_tables(result: dict[str, Any]) -> str:
    """A table for each precision: the share of equal translations, and BLEU of both engines."""
    header = ("test set", "beam", "same output", "Transduce BLEU", "CTranslate2 BLEU", "p")

    def line(row: Row) -> tuple[object, ...]:
        scores = ("", "", "")
        if "ours_bleu" in row:
            scores = (f"{row['ours_bleu']:.2f}", f"{row['peer_bleu']:.2f}", f"{row['p']:.3f}")
        equal = f"{row['num_equal'] / row['num_sentences']:.1%}"
        return (f"{row['test_set']}, {row['num_sentences']} sentences", row["beam_size"], equal, *scores)

    rows = result["rows"]
    return _by_name(
        (precision, table(header, [line(row) for row in rows if row["precision"] == precision]))
        for precision in PRECISIONS
    )


def target_table(result: dict[str, Any], target: str) -> str:
    """A table of the fastest calls of native operators and of ONNX Runtime's, from a result of `benchmarks.step`.

    target: the instructions of the native operators, such as `avx2`.
    """
    fastest: dict[str, dict[str, float]] = {}
    for one in result["measurements"]:
        fastest.setdefault(one["case"], {})[one["variant"]] = one["fastest_ms"]

    precisions = [
        name for name in PRECISIONS if any(f"{name}-{target}" in times for times in fastest.values())
    ]
    header = ["case"]
    for precision in precisions:
        header += [f"{precision}, ms", "times as fast"]

    def line(case: str, times: dict[str, float]) -> list[str]:
        cells = [case]
        for precision in precisions:
            own, standard = times[f"{precision}-{target}"], times[f"{precision}-standard"]
            cells += [f"{own:.2f}", f"{standard / own:.2f}"]
        return cells

    lines = [line(case, times) for case, times in fastest.items()]
    return f"{table(header, lines)}\n\n{server_tables.measured_on(result)}"


def _by_name(tables: Iterable[tuple[str, str]]) -> str:
    return "\n\n".join(f"**{name}**\n\n{text}" for name, text in tables)


def ssru_table(result: dict[str, Any]) -> str:
    """The times with self-attention and with SSRUs, from a result of `benchmarks.ssru`."""
    header = ["search, sentences", "step, ms", "with SSRUs", "all, ms", "with SSRUs", "saved"]
    lines = []
    for one in result["comparisons"]:
        times = [one[name][kind] for name in ("step_ms", "call_ms") for kind in ("attention", "ssru")]
        search = "greedy" if one["beam_size"] == 1 else f"beam {one['beam_size']}"
        cells = [f"{ms:.2f}" for ms in times[:2]] + [f"{ms:.1f}" for ms in times[2:]]
        lines.append([f"{search}, {one['num_sentences']}", *cells, f"{one['time_saved']:.0%}"])
    return f"{table(header, lines)}\n\n{server_tables.measured_on(result)}"


def marian_table(result: dict[str, Any]) -> str:
    """The times of Marian and of Transduce, from a result of `benchmarks.marian`."""
    header = ["shortlist, search", "sentences", "Marian, ms", "Transduce, ms", "times as fast", "least"]
    lines = []
    for one in result["comparisons"]:
        search = "greedy" if one["beam_size"] == 1 else f"beam {one['beam_size']}"
        kind = f"{'with' if one['has_shortlist'] else 'without'}, {search}"
        times = [f"{one[name]:.1f}" for name in ("marian_ms", "ours_ms")]
        ratios = [f"{one[name]:.2f}" for name in ("ratio", "least_ratio")]
        lines.append([kind, str(one["num_sentences"]), *times, *ratios])
    return f"{table(header, lines)}\n\n{server_tables.measured_on(result)}"
