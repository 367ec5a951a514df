"""Formats the result of `benchmarks.engine` as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

INTEL = "GenuineIntel"


TURNS = """## In turns

Milliseconds for a group of sentences given at once, medians; the ratio is CTranslate2's median over Transduce's, above
1 where Transduce is quicker, with the least and the most of the rounds. `equal`: sentences of which both say the same,
subword by subword."""
ARRIVALS = """## Arrivals

Poisson arrivals of the project's own sentences: the highest rate at which the 95th percentile of the time from due to
answered stayed under 1 s. CTranslate2 stands behind a window batcher (5 ms, 32)."""
WHERE = """## Where Transduce's time goes

Of the engine in one process, also where several were quicker. The floor is the larger of bytes over bandwidth and
multiply-adds over the rate of products, both as measured above; the share is floor over time. `Python of a step`: what
of a decoder step is not spent inside ONNX Runtime, its binding counted as Python, engine and scheduler included;
`Python in all` adds submission, the crossings between threads and the encoder's part. `idle`: of the cores' time."""
OPERATORS = """### By operator

Milliseconds a group: sub-layers of the native kernels as counted in the measured run, operators of other graphs from a
profiled run of its own; at most the measured run's time inside ONNX Runtime."""


def render(result: dict[str, Any]) -> str:
    """Tables of every figure, with the machine and versions."""
    cases = result["cases"]
    parts = [
        "# Engine",
        measured_on(result),
        f"```\n{result['command']}\n```",
        TURNS,
        times_table(cases),
        *((ARRIVALS, arrivals_table(result["arrivals"])) if result["arrivals"] else ()),
        WHERE,
        where_table(cases),
        OPERATORS,
        parts_tables(cases),
    ]
    return "\n\n".join(parts) + "\n"


def measured_on(result: dict[str, Any]) -> str:
    """Machine, versions, and how CTranslate2 runs on it."""
    machine, options, measured = result["machine"], result["plan"], result["measured"]
    packages = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    is_intel = machine["vendor"] == INTEL
    packing = "which this one is" if is_intel else "which this one is not, so it packs them in every product"
    rates = ", ".join(f"{name} {rate / 1e9:.0f} G/s" for name, rate in measured["products_per_s"].items())
    reads = ", ".join(f"{size} MB {rate / 1e9:.0f} GB/s" for size, rate in measured["bytes_per_s"].items())
    return (
        f"{machine['cpu']} ({machine['vendor']}), {machine['num_cores']} cores, {machine['memory_gb']} GB, Linux "
        f"{machine['kernel']}; commit {result['commit']}; {packages}; {machine['measured_at']}, load before "
        f"{machine['load_average_before']}, {result['seconds']} s in all; {options['num_threads']} threads a side, "
        f"{options['num_rows']} cache rows.\n\n"
        f"CTranslate2 packs its weights on Intel's processors only, {packing}. Its backend, threads and batch sizes "
        f"are the best of those tried for each case.\n\n"
        f"Multiply-adds by ONNX Runtime's own product: {rates}. Reading again and again: {reads}."
    )


def times_table(rows: Sequence[dict[str, Any]]) -> str:
    """A line a case."""
    header = (
        "model",
        "",
        "given",
        "at once",
        "beam",
        "Transduce ms",
        "CTranslate2 ms",
        "ratio",
        "rounds",
        "equal",
        "our processes x threads",
        "its best",
    )
    return table(
        header,
        (
            (
                row["model"],
                row["precision"],
                row["case"],
                row["num_sentences"],
                row["beam_size"],
                f"{row['ours_ms']:.1f}",
                f"{row['peer_ms']:.1f}",
                f"**{row['ratio']:.2f}**",
                f"{row['ratio_least']:.2f} to {row['ratio_most']:.2f}",
                "" if row["equal_ids"] is None else f"{row['equal_ids']:.1%}",
                row["layout"],
                row["peer_choice"],
            )
            for row in rows
        ),
    )


def arrivals_table(rows: Sequence[dict[str, Any]]) -> str:
    """A line a beam."""
    header = ("model", "", "beam", "Transduce /s", "CTranslate2 /s", "ratio", "CTranslate2's settings")
    return table(
        header,
        (
            (
                row["model"],
                row["precision"],
                row["beam_size"],
                f"{row['ours_per_s']:.0f}",
                f"{row['peer_per_s']:.0f}",
                "" if row["ratio"] is None else f"**{row['ratio']:.2f}**",
                row["peer_choice"],
            )
            for row in rows
        ),
    )


def where_table(rows: Sequence[dict[str, Any]]) -> str:
    """A line a case: time, floor, Python, idle."""
    header = (
        "model", "", "given", "at once", "beam", "ms", "floor ms", "share of floor", "step ms", "Python of a step",
        "Python in all", "idle",
    )  # fmt: skip
    lines = []
    for row in rows:
        where, floor_ms = row["where"], row["floor"]["seconds"] * 1e3 / row["num_groups"]
        lines.append((
            *name_of(row),
            f"{row['alone_ms']:.1f}",
            f"{floor_ms:.1f}",
            f"{floor_ms / row['alone_ms']:.0%}",
            f"{where['step_ms']:.2f}",
            f"{where['step_python_share']:.1%}",
            f"{where['python_share']:.1%}",
            f"{where['idle_share']:.0%}",
        ))  # fmt: skip
    return table(header, lines)


def parts_tables(rows: Sequence[dict[str, Any]]) -> str:
    """A table for each model and precision, whose graphs have the same categories."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["model"], row["precision"]), []).append(row)
    return "\n\n".join(_parts_table(group) for group in groups.values())


def _parts_table(rows: Sequence[dict[str, Any]]) -> str:
    totals: dict[str, float] = {}
    for row in rows:
        for name, part_ms in row["where"]["parts_ms"].items():
            totals[name] = totals.get(name, 0.0) + part_ms / row["alone_ms"]
    names = sorted(totals, key=lambda name: -totals[name])
    header = ("model", "", "given", "at once", "beam", *names)
    return table(
        header,
        ((*name_of(row), *(_share(row["where"]["parts_ms"], name) for name in names)) for row in rows),
    )


def _share(parts_ms: dict[str, float], name: str) -> str:
    total = sum(parts_ms.values())
    part_ms = parts_ms.get(name, 0.0)
    return f"{part_ms:.2f} ({part_ms / total:.0%})"


def quality_table(result: dict[str, Any]) -> str:
    """A line for each precision, test set and beam."""
    header = (
        "",
        "test set",
        "beam",
        "sentences",
        "the same",
        "Transduce BLEU",
        "CTranslate2 BLEU",
        "difference",
        "p",
    )
    lines = []
    for row in result["rows"]:
        scores: tuple[str, ...] = ("", "", "", "")
        if "ours_bleu" in row:
            own, their = row["ours_bleu"], row["peer_bleu"]
            scores = (f"{own:.2f}", f"{their:.2f}", f"{own - their:+.2f}", f"{row['p']:.3f}")
        equal = f"{row['num_equal']} ({row['num_equal'] / row['num_sentences']:.1%})"
        lines.append(
            (row["precision"], row["test_set"], row["beam_size"], row["num_sentences"], equal, *scores)
        )
    return table(header, lines)


def name_of(row: dict[str, Any]) -> tuple[object, ...]:
    """The columns that say which case it is."""
    return (row["model"], row["precision"], row["case"], row["num_sentences"], row["beam_size"])


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Markdown."""
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
