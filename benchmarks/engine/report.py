"""Formats the result of `benchmarks.engine` as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benchmarks.engine.goals import LEAST_TRIAL_S, LIMIT_S, valid_arrivals

INTEL = "GenuineIntel"


TIMES = """## Times

Median milliseconds for a group of sentences in one call. The ratio is CTranslate2's median over Transduce's. It is
above 1 where Transduce is faster. `rounds` has the lowest and the highest ratio of a round. `equal` is the share of
sentences for which both engines return the same subwords."""
ARRIVALS = """Sentences of `benchmarks/sentences.tsv` arrive at Poisson times. The table has the highest rate at which
the 95th percentile of the latency is at most 1 s. Latency counts from the time when a sentence is due. CTranslate2 has
a window batcher (5 ms, at most 32 sentences)."""
WHERE = """## Where Transduce's time goes

These are times of the engine in one process, even where several processes are faster. The floor is a lower bound: the
larger of bytes over bandwidth and multiply-adds over their rate, both as measured above. `share of floor` is the floor
over the time. `Python of a step` is the share of a decoder step outside ONNX Runtime: engine, scheduler and ONNX
Runtime's Python binding. `Python in all` also counts submission, handovers between threads, and the encoder's share.
`idle` is the share of the cores' time in which they are idle."""
OPERATORS = """### By operator

Milliseconds per group. The native kernels count the time of their sub-layers in the measured run. The time of the other
operators comes from a separate profiled run, and is scaled down to the measured run's time inside ONNX Runtime."""


def render(result: dict[str, Any]) -> str:
    """All figures as Markdown tables, with the machine and the versions."""
    cases = result["cases"]
    parts = [
        "# Engine",
        measured_on(result),
        f"```\n{result['command']}\n```",
        TIMES,
        times_table(cases),
        *(("## Arrivals", arrivals_text(result, arrivals_table)) if result["arrivals"] else ()),
        WHERE,
        where_table(cases),
        OPERATORS,
        parts_tables(cases),
    ]
    return "\n\n".join(parts) + "\n"


def measured_on(result: dict[str, Any]) -> str:
    """The machine, the versions, and how CTranslate2 runs on this machine."""
    machine, options, measured = result["machine"], result["plan"], result["measured"]
    packages = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    rates = ", ".join(f"{name} {rate / 1e9:.0f} G/s" for name, rate in measured["products_per_s"].items())
    products = f"Multiply-adds of ONNX Runtime's own matrix product: {rates}. " if rates else ""
    reads = ", ".join(f"{size} MiB {rate / 1e9:.0f} GB/s" for size, rate in measured["bytes_per_s"].items())
    return (
        f"{machine['cpu']} ({machine['vendor']}), {machine['num_cores']} cores, {machine['memory_gb']} GB, Linux "
        f"{machine['kernel']}; commit {result['commit']}; {packages}; {machine['measured_at']}, load before "
        f"{machine['load_average_before']}; the run took {result['seconds']} s; {options['num_threads']} threads for "
        f"each engine, {options['num_rows']} cache rows.\n\n"
        f"{packing(result)} The run tried its backends {tried_backends(result)}. For each case, its backend, "
        f"threads and batch sizes are the fastest of those tried.\n\n"
        f"{products}Repeated reads of an array: {reads}."
    )


def packing(result: dict[str, Any]) -> str:
    """When CTranslate2 packs its weights, and in how many cases of the result its fastest settings use MKL."""
    cases, vendor = result["cases"], result["machine"]["vendor"]
    sentence = "Without Intel's MKL, CTranslate2 packs its weights in every product."
    if not any(_uses_mkl(trial["backend"], vendor) for row in cases for trial in row["peer_tried"]):
        return f"{sentence} This run did not try MKL."
    chosen = sum(_uses_mkl(row["peer_choice"].partition(":")[0], vendor) for row in cases)
    return f"{sentence} The fastest settings have MKL in {chosen} of {len(cases)} cases."


def _uses_mkl(backend: str, vendor: str) -> bool:
    """Whether CTranslate2 uses MKL in a backend. Results of earlier versions have backends without CT2_USE_MKL."""
    return "CT2_USE_MKL=1" in backend or ("CT2_USE_MKL" not in backend and vendor == INTEL)


def tried_backends(result: dict[str, Any]) -> str:
    """The backends of CTranslate2 that any case of the result tried."""
    names = {trial["backend"] for row in result["cases"] for trial in row["peer_tried"]}
    return ", ".join(name if name == "default" else f"`{name}`" for name in sorted(names))


def arrivals_text(result: dict[str, Any], table_of: Callable[[Sequence[dict[str, Any]]], str]) -> str:
    """The table of the rates of arrivals, or a sentence that says why it is left out."""
    if rows := valid_arrivals(result):
        return table_of(rows)
    if not result["arrivals"]:
        return "This run measured no rates of arrivals."
    return (
        "The rates of arrivals of this run are left out. Its trials are too short: in less than "
        f"{LEAST_TRIAL_S:g} s, a rate that is too high may not build up a queue long enough to reach the latency "
        f"limit of {LIMIT_S:g} s."
    )


def times_table(rows: Sequence[dict[str, Any]]) -> str:
    """The times of both engines, one line per case."""
    header = (
        "model",
        "",
        "text",
        "at once",
        "beam",
        "Transduce ms",
        "CTranslate2 ms",
        "ratio",
        "rounds",
        "equal",
        "Transduce's processes x threads",
        "CTranslate2's settings",
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
    """The text ARRIVALS, and a table of the highest rates, one line per beam size."""
    header = ("model", "", "beam", "Transduce /s", "CTranslate2 /s", "ratio", "CTranslate2's settings")
    lines = table(
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
    return f"{ARRIVALS}\n\n{lines}"


def where_table(rows: Sequence[dict[str, Any]]) -> str:
    """Transduce's time, lower bound, Python's share and idle share, one line per case."""
    header = (
        "model", "", "text", "at once", "beam", "ms", "floor ms", "share of floor", "step ms", "Python of a step",
        "Python in all", "idle",
    )  # fmt: skip
    lines = []
    for row in rows:
        where = row["where"]
        lines.append((
            *name_of(row),
            f"{row['alone_ms']:.1f}",
            *_floor_cells(row),
            f"{where['step_ms']:.2f}",
            f"{where['step_python_share']:.1%}",
            f"{where['python_share']:.1%}",
            f"{where['idle_share']:.0%}",
        ))  # fmt: skip
    return table(header, lines)


def _floor_cells(row: dict[str, Any]) -> tuple[str, str]:
    """The lower bound in milliseconds, and its share of the time; empty in a run without lower bounds."""
    if "floor" not in row:
        return "", ""
    floor_ms = row["floor"]["seconds"] * 1e3 / row["num_groups"]
    return f"{floor_ms:.1f}", f"{floor_ms / row['alone_ms']:.0%}"


def parts_tables(rows: Sequence[dict[str, Any]]) -> str:
    """The time by category, one table for each model and precision."""
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
    header = ("model", "", "text", "at once", "beam", *names)
    return table(
        header,
        ((*name_of(row), *(_share(row["where"]["parts_ms"], name) for name in names)) for row in rows),
    )


def _share(parts_ms: dict[str, float], name: str) -> str:
    total = sum(parts_ms.values())
    part_ms = parts_ms.get(name, 0.0)
    return f"{part_ms:.2f} ({part_ms / total:.0%})"


def quality_table(result: dict[str, Any]) -> str:
    """BLEU and equal outputs, one line for each precision, test set and beam size."""
    header = (
        "",
        "test set",
        "beam",
        "sentences",
        "equal",
        "Transduce BLEU",
        "CTranslate2 BLEU",
        "difference",
        "p",
    )
    lines = []
    for row in result["rows"]:
        scores: tuple[str, ...] = ("", "", "", "")
        if "ours_bleu" in row:
            ours, theirs = row["ours_bleu"], row["peer_bleu"]
            scores = (f"{ours:.2f}", f"{theirs:.2f}", f"{ours - theirs:+.2f}", f"{row['p']:.3f}")
        equal = f"{row['num_equal']} ({row['num_equal'] / row['num_sentences']:.1%})"
        lines.append(
            (row["precision"], row["test_set"], row["beam_size"], row["num_sentences"], equal, *scores)
        )
    return table(header, lines)


def name_of(row: dict[str, Any]) -> tuple[object, ...]:
    """The columns that identify a case."""
    return (row["model"], row["precision"], row["case"], row["num_sentences"], row["beam_size"])


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
