"""The charts of a result file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transduce.loadtest.charts import Axis, Chart, Guide, Series, draw, number_text
from transduce.loadtest.figures import BARS_PER_DECADE, curve
from transduce.loadtest.slo import Slo

Result = dict[str, Any]
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
    """Latency over rate, of a sweep; hollow where the rate did not hold."""
    ordered = sorted((one for one in points if one["result"]["latency"]), key=lambda one: float(one["rate"]))
    series = [
        Series(
            name.replace("_", "."),
            [(one["rate"], one["result"]["latency"]["percentiles"][name]) for one in ordered],
            colour,
            marks=[one["holds"] for one in ordered],
        )
        for name, colour in SWEEP_LINES
    ]
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


def limits(slos: Sequence[str]) -> list[Guide]:
    """A line at each objective for whole answers."""
    found = [Slo.parse(text) for text in slos]
    return [Guide(slo.limit_s * 1e3, str(slo)) for slo in found if not slo.is_first_text]


def percentile_chart(lines: Sequence[tuple[str, Sequence[str]]], slos: Sequence[str] = ()) -> str:
    """Latency by percentile. lines: name and encoded histograms."""
    series = []
    for number, (name, encoded) in enumerate(lines):
        points = [(100 / (100 - percentile), value) for percentile, value in curve(encoded)]
        if points:
            series.append(Series(name, points, f"c{number % 8}", marks=()))
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
    """How many answers took how long, over all runs."""
    counts: dict[float, int] = {}
    for one in runs:
        for bound, count in one["latency"]["bars"] if one["latency"] else ():
            counts[bound] = counts.get(bound, 0) + count
    step = 10 ** (1 / BARS_PER_DECADE)
    bars = [(bound, bound * step, count) for bound, count in sorted(counts.items())]
    return draw(Chart(Axis("latency, ms", is_log=True), Axis("answers"), bars=bars))


def latency_timeline(one: Result) -> str:
    """Median and p99 of the requests due in each stretch of time."""
    moments = one["timeline"]
    series = [
        Series(
            name,
            [(moment["from_s"], moment[key]) for moment in moments if moment[key] is not None],
            colour,
            marks=(),
        )
        for name, key, colour in (("p50", "p50_ms", "c0"), ("p99", "p99_ms", "c1"))
    ]
    series = [one_series for one_series in series if one_series.points]
    return draw(Chart(seconds_axis(), Axis("latency by when requests were due, ms"), series))


def count_timeline(one: Result) -> str:
    """Requests sent, answered and failed in each stretch of time."""
    moments = one["timeline"]
    step = moments[1]["from_s"] - moments[0]["from_s"] if len(moments) > 1 else 1.0
    names = (("sent", "num_sent", "c7"), ("answered", "num_ok", "c2"), ("failed", "num_failed", "c3"))
    series = [
        Series(
            name,
            [(moment["from_s"], moment[key] / step) for moment in moments],
            colour,
            is_dashed=key == "num_sent",
            marks=(),
        )
        for name, key, colour in names
    ]
    return draw(Chart(seconds_axis(), Axis("requests/s by when they were due"), series))


def seconds_axis() -> Axis:
    """Of a timeline."""
    return Axis("seconds from the run's start", low=0.0)


def phases_chart(phases_ms: dict[str, dict[str, float]]) -> str:
    """The mean of each of the server's own phases, as one bar of stacked parts."""
    total = sum(found["mean"] for found in phases_ms.values())
    if not total:
        return ""
    width, x, parts, names = 720.0, 0.0, [], []
    for number, (name, found) in enumerate(phases_ms.items()):
        share = found["mean"] / total
        parts.append(
            f'<rect x="{x:.1f}" y="0" width="{max(0.0, share * width - 1):.1f}" height="26" rx="3" '
            f'style="fill:var(--c{number % 8})"><title>{name}: {number_text(found["mean"])} ms</title></rect>'
        )
        x += share * width
        names.append(
            f'<tspan dx="{0 if number == 0 else 16}" style="fill:var(--c{number % 8})">■ </tspan>'
            f"<tspan>{name} {number_text(found['mean'])} ms</tspan>"
        )
    return (
        f'<svg class="strip" viewBox="0 0 720 52" role="img" aria-label="server phases">{"".join(parts)}'
        f'<text x="0" y="45">{"".join(names)}</text></svg>'
    )
