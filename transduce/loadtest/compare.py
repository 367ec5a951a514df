"""`transduce loadtest compare a.json b.json`: compares result files side by side, relative to the first."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from transduce.errors import CommandError, ExitCode
from transduce.loadtest.charts import Axis, Chart, draw
from transduce.loadtest.document import Document, read_json
from transduce.loadtest.html_report import MARKS_NOTE, Result, latency_of, median_of, problems, shown_runs
from transduce.loadtest.output_files import prepare, write
from transduce.loadtest.report_charts import limits, percentile_chart, rate_series
from transduce.loadtest.sample import DISCONNECTED, OK
from transduce.loadtest.style import PAGE, STYLE
from transduce.loadtest.tables import facts, page_number, section, table

MIN_FILES = 2
MAX_FILES = 8
# Title, distribution of a run, percentile.
LATENCIES = (
    ("latency p50, ms", "latency", "p50"),
    ("latency p90, ms", "latency", "p90"),
    ("latency p99, ms", "latency", "p99"),
    ("latency p99.9, ms", "latency", "p99_9"),
    ("uncorrected p99, ms", "uncorrected_latency", "p99"),
    ("first text p50, ms", "first_text", "p50"),
    ("tester's lag p99, ms", "lag", "p99"),
)
RATES = (("offered, requests/s", "offered_rate"), ("answers/s", "achieved_rate"), ("goodput/s", "goodput"))
AMOUNTS = ("sentences", "source_words", "source_tokens", "target_tokens")

Row = tuple[str, list[float | None]]


def compare_files(paths: Sequence[Path], html: Path | None) -> int:
    """Print the comparison, and write the HTML page if `html` is set. Returns 0.

    Raises:
        CommandError: too few or too many files.
        OSError: a file cannot be read or written.
        ValueError: a file is not a result file.
    """
    if not MIN_FILES <= len(paths) <= MAX_FILES:
        raise CommandError(f"compare takes {MIN_FILES} to {MAX_FILES} result files", exit_code=ExitCode.USAGE)
    documents = [read_json(path) for path in paths]
    if html is not None:
        prepare(html)
    print(text_table(documents))
    if html is not None:
        write(html, compare_page(documents).encode())
    return ExitCode.OK


def figure_rows(documents: Sequence[Document]) -> list[Row]:
    """The figures and their values in each file: the median over the `shown_runs` of the file."""
    rows: list[Row] = []
    if any(document["sweep"] for document in documents):
        found = [document["sweep"]["max_rate"] if document["sweep"] else None for document in documents]
        rows.append(("highest rate, requests/s", found))
    runs = [shown_runs(document) for document in documents]
    rows += [(title, [median_of(one, lambda r, n=name: r[n]) for one in runs]) for title, name in RATES]
    rows += [
        (title, [latency_of(one, kind, percentile) for one in runs]) for title, kind, percentile in LATENCIES
    ]
    rows += [
        (
            f"{name.replace('_', ' ')}/s",
            [median_of(one, lambda r, n=name: r["per_s"][n] or None) for one in runs],
        )
        for name in AMOUNTS
    ]
    rows.append(("not answered", [median_of(one, _num_not_answered) for one in runs]))
    rows.append(("chrF", [median_of(one, lambda r: r["quality"] and r["quality"]["chrf"]) for one in runs]))
    return [(title, values) for title, values in rows if any(value is not None for value in values)]


def _num_not_answered(result: Result) -> int:
    """Number of requests without an answer. Those that the tester gave up on purpose do not count."""
    outcomes = result["outcomes"]
    return int(result["num_sent"] - outcomes[OK] - outcomes.get(DISCONNECTED, 0))


def ratio(value: float | None, first: float | None) -> str:
    """The ratio of a value to the first file's; empty if either is missing or the first is 0."""
    return f"×{value / first:.2f}" if value is not None and first else ""


def labels_of(documents: Sequence[Document]) -> list[str]:
    """The files' labels; equal labels are numbered."""
    labels = [document["label"] for document in documents]
    return [
        label if labels.count(label) == 1 else f"{label} ({number})"
        for number, label in enumerate(labels, start=1)
    ]


def text_table(documents: Sequence[Document]) -> str:
    """The comparison for a terminal, with a column per file."""
    labels = labels_of(documents)
    lines = [f"{chr(ord('A') + number)}: {label}" for number, label in enumerate(labels)]
    lines += [
        f"   {chr(ord('A') + number)} is not valid: {problem}"
        for number, document in enumerate(documents)
        for problem in document["problems"]
    ]
    lines += [
        f"   {chr(ord('A') + number)} has failed: {document['failure']}"
        for number, document in enumerate(documents)
        if document["failure"]
    ]
    heads = "".join(f"{chr(ord('A') + number):>20}" for number in range(len(documents)))
    lines.append(f"{'':28}{heads}")
    verdicts = "".join(f"{document['verdict'].upper():>20}" for document in documents)
    lines.append(f"{'verdict':28}{verdicts}")
    for title, values in figure_rows(documents):
        cells = "".join(
            f"{page_number(value):>12} {ratio(value, values[0]) if number else '':>7}"
            for number, value in enumerate(values)
        )
        lines.append(f"{title:28}{cells}")
    return "\n".join(lines)


def compare_page(documents: Sequence[Document]) -> str:
    """The comparison as an HTML page."""
    labels = labels_of(documents)
    rows = [
        [
            escape(title),
            *(
                f"{page_number(value)} <span class=soft>{ratio(value, values[0]) if number else ''}</span>"
                for number, value in enumerate(values)
            ),
        ]
        for title, values in figure_rows(documents)
    ]
    verdicts = [
        f"<span class='verdict {document['verdict']}'>{document['verdict']}</span>" for document in documents
    ]
    labelled = list(zip(labels, documents, strict=True))
    body = [
        "<h1>Load tests compared</h1>",
        f"<p class=soft>Ratios are relative to the first file: {escape(labels[0])}</p>",
        *(problems(document, f"{label}: ") for label, document in labelled),
        section("Figures", table(("", *labels), [["verdict", *verdicts], *rows])),
        "<div class=pair>",
        section("Latency over rate, p99", _wide(_rates(documents, labels)), MARKS_NOTE),
        section("Latency by percentile", _wide(_percentiles(documents, labels))),
        "</div>",
        section("Commands", facts([(escape(label), _command(one)) for label, one in labelled])),
    ]
    return PAGE.format(title="Load tests compared", style=STYLE, body="".join(body))


def _rates(documents: Sequence[Document], labels: Sequence[str]) -> str:
    series = []
    for number, (label, document) in enumerate(zip(labels, documents, strict=True)):
        points = document["sweep"]["points"] if document["sweep"] else ()
        one = rate_series(label, f"c{number}", points, "p99")
        if one.points:
            series.append(one)
    slos = sorted({slo for document in documents for slo in (document["sweep"] or {}).get("slos", ())})
    axes = Axis("offered rate, requests/s"), Axis("p99, ms", is_log=True)
    return draw(Chart(*axes, series, guides=limits(slos), height=340)) if series else ""


def _percentiles(documents: Sequence[Document], labels: Sequence[str]) -> str:
    lines = []
    for label, document in zip(labels, documents, strict=True):
        encoded = [one["latency"]["hdr"] for one in shown_runs(document) if one["latency"]]
        lines.append((label, encoded))
    return percentile_chart(lines)


def _command(document: Document) -> str:
    return f"<code>{escape(document['command'])}</code>"


def _wide(chart: str) -> str:
    return f"<div class=sweep>{chart}</div>" if chart else ""
