"""The charts of the reports, made from the JSON of a result file."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from html import escape
from typing import Any

from transduce.loadtest.charts import Axis, Chart, Guide, Series, draw, legend, number_text
from transduce.loadtest.percentiles import BARS_PER_DECADE, curve
from transduce.loadtest.slo import Slo
from transduce.loadtest.tables import percent

Result = dict[str, Any]
# Ticks of the percentile axis: 1 / (share of answers that took more), and the share that took less.
BEYOND_TICKS = (
    (1.0, "0 %"),
    (2.0, "50 %"),
    (10.0, "90 %"),
    (100.0, "99 %"),
    (1e3, "99.9 %"),
    (1e4, "99.99 %"),
)
SWEEP_LINES = (("p50", "c0"), ("p90", "c2"), ("p99", "c1"))


def rate_chart(points: Sequence[dict[str, Any]], slos: Sequence[str], max_rate: float | None) -> str:
    """Latency over rate in a sweep; a mark is hollow if its run missed an objective or is not valid."""
    series = [rate_series(name, colour, points, name) for name, colour in SWEEP_LINES]
    guides = limits(slos)
    if max_rate is not None:
        guides.append(Guide(max_rate, f"{max_rate:.1f}/s", is_upright=True))
    return draw(
        Chart(
            Axis("offered rate, requests/s"),
            Axis("latency, ms", is_log=True),
            series,
            guides=guides,
            height=340,
        )
    )


def rate_series(name: str, colour: str, points: Sequence[dict[str, Any]], percentile: str) -> Series:
    """One latency percentile over the rate: a mark per run, and a line through the medians."""
    values = [
        (one["rate"], one["result"]["latency"]["percentiles"][percentile], one["holds"])
        for one in points
        if one["result"]["latency"]
    ]
    values.sort()
    line = [
        (rate, statistics.median(value for _, value, _ in same))
        for rate, group in itertools.groupby(values, key=lambda one: one[0])
        if (same := list(group))
    ]
    marks = [holds for _, _, holds in values]
    return Series(name, [(rate, value) for rate, value, _ in values], colour, marks=marks, line=line)


def limits(slos: Sequence[str]) -> list[Guide]:
    """A guide line for each objective on whole responses."""
    found = [Slo.parse(text) for text in slos]
    return [Guide(slo.limit_s * 1e3, str(slo)) for slo in found if not slo.is_first_text]


def percentile_chart(
    lines: Sequence[tuple[str, Sequence[str]]], slos: Sequence[str] = (), dashed: Sequence[str] = ()
) -> str:
    """Latency by percentile.

    lines: name and encoded histograms. dashed: names of lines drawn dashed, because they may overlap others.
    """
    series = []
    for number, (name, encoded) in enumerate(lines):
        points = [(100 / (100 - percentile), value) for percentile, value in curve(encoded)]
        if points:
            is_dashed = name in dashed
            series.append(Series(name, points, f"c{number % 8}", is_dashed, marks=()))
    furthest = max((x for one in series for x, _ in one.points), default=1.0)
    ticks = [(value, text) for value, text in BEYOND_TICKS if value <= furthest]
    return draw(
        Chart(
            Axis("share of answers that took less", is_log=True, ticks=ticks),
            Axis("latency, ms", is_log=True),
            series,
            guides=limits(slos),
        )
    )


def histogram_chart(runs: Sequence[Result]) -> str:
    """The number of responses by latency, over all runs."""
    counts: dict[float, int] = {}
    for one in runs:
        for bound, count in one["latency"]["bars"] if one["latency"] else ():
            counts[bound] = counts.get(bound, 0) + count
    step = 10 ** (1 / BARS_PER_DECADE)
    bars = [(bound, bound * step, count) for bound, count in sorted(counts.items())]
    return draw(Chart(Axis("latency, ms", is_log=True), Axis("answers"), bars=bars))


def latency_timeline(one: Result) -> str:
    """Median and p99 latency by due time."""
    moments = one["timeline"]
    series = [
        Series(
            name,
            [(_middle_s(one, moment), moment[key]) for moment in moments if moment[key] is not None],
            colour,
            marks=(),
        )
        for name, key, colour in (("p50", "p50_ms", "c0"), ("p99", "p99_ms", "c1"))
    ]
    series = [one_series for one_series in series if one_series.points]
    return draw(Chart(seconds_axis(), Axis("latency by when requests were due, ms"), series))


def count_timeline(one: Result) -> str:
    """Requests sent, answered and failed per second, by due time."""
    moments = one["timeline"]
    step = one["duration_s"] / len(moments) if moments else 1.0
    names = (("sent", "num_sent", "c7"), ("answered", "num_ok", "c2"), ("failed", "num_failed", "c3"))
    series = [
        Series(
            name,
            [(_middle_s(one, moment), moment[key] / step) for moment in moments],
            colour,
            is_dashed=key == "num_sent",
            marks=(),
        )
        for name, key, colour in names
    ]
    return draw(Chart(seconds_axis(), Axis("requests/s by when they were due"), series))


def _middle_s(one: Result, moment: dict[str, Any]) -> float:
    """The middle of a timeline bin; all bins have equal length."""
    return float(moment["from_s"]) + float(one["duration_s"]) / len(one["timeline"]) / 2


def seconds_axis() -> Axis:
    """The time axis of a timeline."""
    return Axis("seconds from the run's start", low=0.0)


def phases_chart(phases_ms: dict[str, dict[str, float]]) -> str:
    """The mean of each server phase, as one stacked bar."""
    total = sum(found["mean"] for found in phases_ms.values())
    if not total:
        return ""
    parts, keys = [], []
    for number, (name, found) in enumerate(phases_ms.items()):
        share = found["mean"] / total
        label = f"{name} {number_text(found['mean'])} ms"
        parts.append(f'<i class="c{number % 8}" style="width:{share:.2%}" title="{escape(label)}"></i>')
        keys.append((f"{label}, {percent(share, 1)}", f"c{number % 8}", False))
    words = escape(", ".join(name for name, _, _ in keys))
    return f'<div class=strip role=img aria-label="{words}">{"".join(parts)}</div>{legend(keys)}'
