"""The HTML report of a result file, as one self-contained page."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from transduce.loadtest.document import Document
from transduce.loadtest.report_charts import (
    count_timeline,
    histogram_chart,
    latency_timeline,
    percentile_chart,
    phases_chart,
    rate_chart,
)
from transduce.loadtest.server_side import HAS_RESTARTED
from transduce.loadtest.style import PAGE, STYLE
from transduce.loadtest.tables import card, facts, mark, page_number, percent, section, table
from transduce.loadtest.text_report import describe_load, describe_workload

Result = dict[str, Any]
PERCENTILES = ("p50", "p90", "p95", "p99", "p99_9")
SENT = "from time of sending"
RESTARTED = "it restarted, or another instance of it answered, so its counters are left out"
MARKS_NOTE = (
    "One mark per run, hollow if the run missed the objective or is not valid. The lines connect the medians."
)


def html_report(document: Document) -> str:
    """The whole page."""
    runs = shown_runs(document)
    slos = document["plan"]["slos"]
    body = [_head(document), problems(document), _cards(document, runs), _thresholds(document)]
    if document["sweep"]:
        body.append(_sweep(document["sweep"]))
    if runs:
        note = "Runs at the highest rate that met the objectives." if document["sweep"] else ""
        body.append(_charts(runs, slos, note))
        body.append(_details(runs))
    body.append(_setup(document))
    return PAGE.format(title=escape(document["label"]), style=STYLE, body="".join(body))


def shown_runs(document: Document) -> list[Result]:
    """The runs shown in detail.

    Without a sweep, these are all runs. Of a sweep, they are the runs at its highest rate, without those that missed an
    objective or are not valid.
    """
    sweep = document["sweep"]
    if not sweep:
        return list(document["runs"])
    return [
        point["result"] for point in sweep["points"] if point["rate"] == sweep["max_rate"] and point["holds"]
    ]


def _head(document: Document) -> str:
    verdict = document["verdict"]
    target = document["target"]
    models = ", ".join(
        f"{model.get('name', '?')} {model.get('version', '')} {model.get('precision', '')}".strip()
        for model in target["models"] or ()
    )
    parts = [
        target["url"],
        f"{target['dialect']} dialect",
        f"{target['source']} → {target['target']}",
        models,
        f"workload {document['plan']['workload']['name']}",
        document["created_at"].replace("T", " ").replace("+00:00", " UTC"),
    ]
    subtitle = " · ".join(escape(part) for part in parts if part)
    return (
        f"<h1>{escape(document['label'])}<span class='verdict {verdict}'>{verdict}</span></h1>"
        f"<p class=soft>{subtitle}</p>"
    )


def problems(document: Document, prefix: str = "") -> str:
    """A section with the failure, and one with the reasons why a run is not valid; empty if there are none.

    prefix: begins the headings.
    """
    failures = [document["failure"]] if document["failure"] else []
    return "".join(
        f"<section class=problem><h2>{escape(prefix + title)}</h2>"
        + "".join(f"<p>{escape(line)}</p>" for line in lines)
        + "</section>"
        for title, lines in (("Failed", failures), ("Not valid", document["problems"]))
        if lines
    )


def median_of(runs: Sequence[Result], figure: Callable[..., float | None]) -> float | None:
    """The median of a figure over the runs that have it; None if no run has it. figure: computes it from a run."""
    values = [value for one in runs if (value := figure(one)) is not None]
    return statistics.median(values) if values else None


def latency_of(runs: Sequence[Result], kind: str, percentile: str) -> float | None:
    """The median of a percentile, in ms. kind: `latency`, `first_text` or `lag`, among others."""
    return median_of(runs, lambda one: one[kind] and one[kind]["percentiles"][percentile])


def _cards(document: Document, runs: Sequence[Result]) -> str:
    sweep = document["sweep"]
    cards = _sweep_cards(sweep) if sweep else []
    if runs:
        cards += [] if sweep else _rate_cards(runs)
        cards += _run_cards(runs)
    return f"<div class=cards>{''.join(cards)}</div>"


def _sweep_cards(sweep: dict[str, Any]) -> list[str]:
    title, rate = f"highest rate with {', '.join(sweep['slos'])}", sweep["max_rate"]
    found = [card(title, "none") if rate is None else card(title, page_number(rate), "/s")]
    if sweep["saturation"]:
        found.append(card("saturation", page_number(sweep["saturation"]["achieved_rate"]), "/s"))
    return found


def _rate_cards(runs: Sequence[Result]) -> list[str]:
    names = (("answers", "achieved_rate"), ("offered", "offered_rate"), ("goodput", "goodput"))
    return [
        card(title, page_number(statistics.median(one[name] for one in runs)), "/s")
        for title, name in names
        if runs[0][name] is not None
    ]


def _run_cards(runs: Sequence[Result]) -> list[str]:
    latencies = (
        ("latency p50", "latency", "p50"),
        ("latency p99", "latency", "p99"),
        ("first text p50", "first_text", "p50"),
        ("lag of the tester, p99", "lag", "p99"),
    )
    found = [
        card(title, page_number(latency_of(runs, kind, percentile), 3), "ms")
        for title, kind, percentile in latencies
        if runs[0][kind]
    ]
    for name in ("sentences", "source_words", "target_tokens"):
        value = statistics.median(one["per_s"][name] for one in runs)
        if value:
            found.append(card(name.replace("_", " "), page_number(value, 3), "/s"))
    share = median_of(runs, lambda one: one["cached_share"])
    if share is not None:
        found.append(card("answered from the cache", page_number(100 * share, 3), "%"))
    if runs[0]["quality"]:
        chrf = median_of(runs, lambda one: one["quality"] and one["quality"]["chrf"])
        found.append(card("chrF under load", page_number(chrf, 3)))
    return found


def _thresholds(document: Document) -> str:
    rows = [
        [
            escape(each["name"]),
            mark(each["is_met"], "met", "missed"),
            escape(each["found"]),
            escape(each["needed"]),
        ]
        for each in document["thresholds"]
    ]
    return section("Thresholds", table(("threshold", "", "measured", "required"), rows)) if rows else ""


def _sweep(sweep: dict[str, Any]) -> str:
    chart = rate_chart(sweep["points"], sweep["slos"], sweep["max_rate"])
    rows = []
    for point in sorted(sweep["points"], key=lambda one: float(one["rate"])):
        one = point["result"]
        latency = one["latency"]["percentiles"] if one["latency"] else {}
        shares = ", ".join(percent(each["share"], 2) for each in one["attained"])
        state = mark(point["holds"], "holds", "does not hold")
        rows.append(
            [
                page_number(point["rate"]),
                state if one["is_valid"] else "<span class=odd>not valid</span>",
                page_number(one["achieved_rate"]),
                shares,
                *(page_number(latency.get(name), 3) for name in PERCENTILES),
                page_number(one["lag"]["percentiles"]["p99"] if one["lag"] else None, 3),
                escape(_not_answered(one)),
            ]
        )
    heads = (
        "requests/s",
        "",
        "answers/s",
        "in time",
        *(name.replace("_", ".") + " ms" for name in PERCENTILES),
    )
    return section(
        "Latency over rate", f"<div class=sweep>{chart}</div>" if chart else "", MARKS_NOTE
    ) + section("All rates tested", table((*heads, "lag p99 ms", "not answered"), rows))


def _not_answered(one: Result) -> str:
    found = [f"{count} {name}" for name, count in one["outcomes"].items() if name != "ok" and count]
    return ", ".join(found) or "0"


def _charts(runs: Sequence[Result], slos: Sequence[str], note: str) -> str:
    lines = [
        (name, [one[key]["hdr"] for one in runs if one[key]])
        for name, key in (
            ("from due time", "latency"),
            (SENT, "uncorrected_latency"),
            ("first text", "first_text"),
        )
    ]
    lines = [line for line in lines if line[1]]
    first = _first_run_note(runs)
    pairs = (
        section(
            "Latency by percentile", percentile_chart(lines, slos, dashed=(SENT,)) if lines else "", note
        ),
        section("Latency histogram", histogram_chart(runs), note),
        section("Latency over time", latency_timeline(runs[0]), first),
        section("Requests over time", count_timeline(runs[0]), first),
    )
    return f"<div class=pair>{''.join(pairs)}</div>"


def _first_run_note(runs: Sequence[Result]) -> str:
    """The note of a section that shows the first run only; empty if there is only one run."""
    return f"Run 1 of {len(runs)}." if len(runs) > 1 else ""


def _details(runs: Sequence[Result]) -> str:
    first = _first_run_note(runs)
    parts = [section("Time on the server by phase (mean)", phases_chart(runs[0]["phases_ms"]), first)]
    if len(runs[0]["phases"]) > 1:
        parts.append(section("Phases of the load", _load_phases(runs[0]), first))
    heads = ("run", "seed", "sent", "answers/s", *(name.replace("_", ".") + " ms" for name in PERCENTILES))
    rows = [
        [
            str(number),
            str(one["seed"]),
            str(one["num_sent"]),
            page_number(one["achieved_rate"]),
            *(
                page_number(one["latency"]["percentiles"][name] if one["latency"] else None, 3)
                for name in PERCENTILES
            ),
            page_number(one["latency"]["max_ms"] if one["latency"] else None, 3),
            page_number(
                one["uncorrected_latency"]["percentiles"]["p99"] if one["uncorrected_latency"] else None, 3
            ),
            page_number(one["lag"]["percentiles"]["p99"] if one["lag"] else None, 3),
            percent(one["tester_cpu_share"]),
        ]
        for number, one in enumerate(runs, start=1)
    ]
    tail = ("max ms", "uncorrected p99 ms", "lag p99 ms", "tester's CPU")
    parts.append(section("Runs", table((*heads, *tail), rows)))
    parts.append(section("Outcomes of all requests", _outcomes(runs)))
    return "".join(parts)


def _load_phases(one: Result) -> str:
    rows = [
        [
            f"{phase['from_s']:g} s",
            page_number(phase["rate"]),
            str(phase["num_sent"]),
            str(phase["num_ok"]),
            "–" if phase["attained_share"] is None else percent(phase["attained_share"], 1),
            page_number(phase["p50_ms"], 3),
            page_number(phase["p99_ms"], 3),
            _recovery(phase),
        ]
        for phase in one["phases"]
    ]
    heads = ("from", "requests/s", "sent", "ok", "in time", "p50 ms", "p99 ms", "last miss after")
    return table(heads, rows)


def _recovery(phase: dict[str, Any]) -> str:
    if phase["attained_share"] is None:
        return "–"
    if phase["recovery_s"] is None:
        return "<span class=bad>to the end</span>"
    return f"{phase['recovery_s']:.1f} s" if phase["recovery_s"] else "none"


def _outcomes(runs: Sequence[Result]) -> str:
    names = sorted({name for one in runs for name in one["outcomes"]} - {"ok"})
    rows = [
        [str(number), str(one["num_sent"]), *(str(one["outcomes"].get(name, 0)) for name in ("ok", *names))]
        for number, one in enumerate(runs, start=1)
    ]
    return table(("run", "sent", "ok", *names), rows)


def _setup(document: Document) -> str:
    machine = document["machine"]
    if machine["server_cores"]:
        cores = f"server on core {machine['server_cores']}, tester on core {machine['tester_cores']}"
    else:
        cores = "server and tester were not pinned to cores"
    plan = document["plan"]
    rows = [
        ("command", f"<code>{escape(document['command'])}</code>"),
        ("machine", escape(f"{machine['cpu']}, {machine['num_cores']} cores, {machine['system']}")),
        ("cores", escape(cores)),
        ("software", escape(f"transduce {machine['transduce']}, Python {machine['python']}")),
        ("load", escape(_load(document))),
        ("workload", escape(describe_workload(plan["workload"]))),
        ("warm-up, time limit, seed", f"{plan['warm_up_s']:g} s, {plan['timeout_s']:g} s, {plan['seed']}"),
    ]
    server = next((one["server"] for one in shown_runs(document) if one["server"]), None)
    if server:
        figures = [
            RESTARTED if name == HAS_RESTARTED else f"{name.replace('_', ' ')} {page_number(value)}"
            for name, value in server.items()
        ]
        rows.append(("server, first run, warm-up included", escape(", ".join(figures))))
    return section("Setup", facts(rows))


def _load(document: Document) -> str:
    load = document["plan"]["load"]
    if not document["sweep"]:
        return describe_load(load)
    (phase,) = load["phases"]
    return f"on a schedule ({load['kind']}), {phase['duration_s']:g} s at each rate"
