"""Charts: lines and marks, the description for screen readers, and labels that do not overlap."""

from __future__ import annotations

import itertools
import re
from typing import Any

from transduce.loadtest.charts import (
    LEFT,
    RIGHT,
    TICK_WIDTH,
    WIDTH,
    Axis,
    Chart,
    Guide,
    Series,
    describe_chart,
    draw,
    number_text,
)
from transduce.loadtest.report_charts import count_timeline, rate_series

RATES = Axis("offered rate, requests/s")


def x_ticks(svg: str) -> list[float]:
    return [float(x) for x in re.findall(r'class="tick" x="([\d.]+)" y="[\d.]+" text-anchor="middle"', svg)]


def test_marks_are_drawn_for_few_points_or_on_request() -> None:
    points = [(1.0, 10.0), (2.0, 30.0)]

    def circles(marks: tuple[bool, ...] | None) -> list[str]:
        svg = draw(Chart(RATES, Axis("ms"), [Series("p50", points, "c0", marks=marks)]))
        return re.findall(r'<circle class="([^"]*)"', svg)

    assert circles(()) == []
    assert circles(None) == ["mark c0", "mark c0"]
    assert circles((True, False)) == ["mark c0", "mark c0 hollow"]


def test_a_chart_has_a_description() -> None:
    line = Series("p99", [(1.0, 20.0), (2.0, 50.0), (3.0, 40.0)], "c0")
    chart = Chart(RATES, Axis("latency, ms"), [line], guides=[Guide(100.0, "p99=100ms")])
    words = describe_chart(chart)
    assert (
        words == "latency, ms over offered rate, requests/s. p99: 20 to 50, 40 at the end. Marked: p99=100ms."
    )
    assert f'aria-label="{words}"' in draw(chart)
    runs = Series("p99", [(1.0, 20.0), (1.0, 50.0)], "c0", line=[(1.0, 30.0)])
    assert "p99: 20 to 50, 30 at the end." in describe_chart(Chart(RATES, Axis("latency, ms"), [runs]))
    bars = Chart(Axis("latency, ms", is_log=True), Axis("answers"), bars=[(10, 12, 5), (12, 15, 70)])
    assert describe_chart(bars).endswith("Highest bar: 70, from 12 to 15.")


def test_a_number_just_below_a_thousand_has_no_exponent() -> None:
    assert [number_text(value) for value in (0.0, 0.01234, 12.34, 999.7, 1234.5)] == [
        "0", "0.0123", "12.3", "1,000", "1,234",
    ]  # fmt: skip


def test_axis_labels_do_not_overlap() -> None:
    for high in (30.0, 200.0, 9_000.0, 3e6):
        axis = Axis("latency, ms", is_log=True)
        places = x_ticks(draw(Chart(axis, Axis("answers"), bars=[(9.0, 10.0, 5), (high, high * 1.2, 7)])))
        gaps = [right - left for left, right in itertools.pairwise(places)]
        assert gaps, high
        assert min(gaps) >= 0.99 * TICK_WIDTH, high


def test_a_single_rate_is_drawn_in_the_middle() -> None:
    svg = draw(Chart(RATES, Axis("ms", is_log=True), [Series("p50", [(8.5, 40.0), (8.5, 60.0)], "c0")]))
    places = {float(x) for x in re.findall(r'cx="([\d.]+)"', svg)}
    assert places == {(LEFT + WIDTH - RIGHT) / 2}


def point(rate: float, p99_ms: float, *, holds: bool) -> dict[str, Any]:
    return {"rate": rate, "holds": holds, "result": {"latency": {"percentiles": {"p99": p99_ms}}}}


def test_each_run_has_a_mark_and_the_line_goes_through_medians() -> None:
    points = [point(20, 90, holds=True), point(10, 30, holds=True), point(20, 300, holds=False)]
    points += [point(20, 100, holds=True), {"rate": 40, "holds": False, "result": {"latency": None}}]
    series = rate_series("p99", "c1", points, "p99")
    assert series.points == [(10, 30), (20, 90), (20, 100), (20, 300)]
    assert series.marks == [True, True, True, False]
    assert series.line == [(10, 30), (20, 100)]


def test_the_count_timeline_is_per_second_for_any_bin_length() -> None:
    moments = [
        {"from_s": 2.5 * n, "num_sent": sent, "num_ok": sent, "num_failed": 0}
        for n, sent in enumerate((50, 0, 25))
    ]
    svg = count_timeline({"timeline": moments, "duration_s": 7.5})
    assert "sent: 0 to 20, 10 at the end." in svg
