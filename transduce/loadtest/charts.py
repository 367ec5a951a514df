"""Charts as inline SVG: lines and bars on linear or logarithmic axes. The page's style sheet sets the colours."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

from transduce.loadtest.tables import page_number

WIDTH, HEIGHT = 560, 270
LEFT, RIGHT, TOP, BOTTOM = 70, 16, 36, 48
NUM_TICKS = 6
# Minimum distance of ticks on a horizontal and a vertical logarithmic axis, in pixels. The larger letters of narrow
# screens must fit.
TICK_WIDTH, TICK_HEIGHT = 58, 23
# Margin on both sides of an axis that does not start at 0, as a share of its range.
MARGIN = 0.05
# A line with more points than this has no marks if `Series.marks` is None.
MAX_MARKS = 40

Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """One line. colour: a class of the style sheet, c0 to c7.

    marks: for each point, whether its mark is filled; empty for no marks; None for filled ones if there are at most
    MAX_MARKS points. line: the points that the line connects, if they are not `points`.
    """

    name: str
    points: Sequence[Point]
    colour: str
    is_dashed: bool = False
    marks: Sequence[bool] | None = None
    line: Sequence[Point] | None = None


@dataclass(frozen=True)
class Axis:
    """One axis. label: with its unit.

    ticks: (value, text) instead of round numbers, if set. low: its lower end instead of the smallest value, if set.
    """

    label: str
    is_log: bool = False
    ticks: Sequence[tuple[float, str]] | None = None
    low: float | None = None


@dataclass(frozen=True)
class Guide:
    """A straight line across the chart at a value of the y axis, or of the x axis if is_upright."""

    value: float
    name: str
    is_upright: bool = False


@dataclass(frozen=True)
class Chart:
    """The content of one chart. bars: (from, to, height), drawn behind the lines."""

    x: Axis
    y: Axis
    series: Sequence[Series] = ()
    bars: Sequence[tuple[float, float, float]] = ()
    guides: Sequence[Guide] = field(default=())
    height: int = HEIGHT


def draw(chart: Chart) -> str:
    """The chart as an <svg> with its legend above it; an empty string without data."""
    xs = [x for series in chart.series for x, _ in series.points] + [
        x for low, high, _ in chart.bars for x in (low, high)
    ]
    ys = [y for series in chart.series for _, y in series.points] + [height for _, _, height in chart.bars]
    if not xs:
        return ""
    xs += [guide.value for guide in chart.guides if guide.is_upright]
    ys += [guide.value for guide in chart.guides if not guide.is_upright]
    to_x, x_ticks = _scale(chart.x, xs, LEFT, WIDTH - RIGHT)
    to_y, y_ticks = _scale(chart.y, ys, chart.height - BOTTOM, TOP, is_from_zero=not chart.y.is_log)
    bottom = chart.height - BOTTOM
    parts = [
        legend([(one.name, one.colour, one.is_dashed) for one in chart.series]),
        f'<svg viewBox="0 0 {WIDTH} {chart.height}" role="img" aria-label="{escape(describe_chart(chart))}">',
    ]
    for value, text in y_ticks:
        y = to_y(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    for value, text in x_ticks:
        x = to_x(value)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{text}</text>')
    parts.append(
        f'<text class="label" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{chart.height - 6}" '
        f'text-anchor="middle">{escape(chart.x.label)}</text>'
    )
    parts.append(f'<text class="label" x="{LEFT}" y="16">{escape(chart.y.label)}</text>')
    parts += [_bar(to_x, to_y, bottom, bar) for bar in chart.bars]
    guides = [_guide(to_x, to_y, bottom, guide) for guide in chart.guides]
    parts += [line for line, _ in guides]
    parts += [_line(to_x, to_y, series) for series in chart.series]
    parts += [name for _, name in guides]
    return "".join(parts) + "</svg>"


Scale = Callable[[float], float]


def _scale(
    axis: Axis, values: Sequence[float], start: float, end: float, *, is_from_zero: bool = False
) -> tuple[Scale, list[tuple[float, str]]]:
    """A function from value to pixel, and the ticks."""
    low, high = min(values), max(values)
    if axis.low is not None:
        low = axis.low
    if axis.is_log:
        low, high = max(low, 1e-9), max(high, 1e-9)
        if axis.ticks is None:
            low, high = low / 1.15, high * 1.15
        span = math.log(high / low) or 1.0
        room = TICK_WIDTH if start < end else TICK_HEIGHT
        ticks = axis.ticks or _log_ticks(low, high, abs(end - start) / room)
        return lambda value: start + (end - start) * math.log(max(value, low) / low) / span, list(ticks)
    if is_from_zero:
        low = min(0.0, low)
    elif axis.low is None:
        margin = MARGIN * (high - low or abs(high))
        low, high = low - margin, high + margin
    if high == low:
        high = low + 1.0
    step = _step(high - low)
    if is_from_zero:
        high = math.ceil(high / step - 1e-9) * step
    count = int((high - low) / step + 1e-9)
    first = math.ceil(low / step - 1e-9) * step
    ticks = axis.ticks or [
        (first + number * step, number_text(first + number * step)) for number in range(count + 1)
    ]
    ticks = [(value, text) for value, text in ticks if low - 1e-9 <= value <= high + 1e-9]
    return lambda value: start + (end - start) * (value - low) / (high - low), ticks


def _step(span: float) -> float:
    """The smallest 1, 2 or 5 times a power of ten with which the span has at most NUM_TICKS steps."""
    rough = span / NUM_TICKS
    power: float = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))


def _log_ticks(low: float, high: float, max_gaps: float) -> list[tuple[float, str]]:
    """Powers of ten, and 2 and 5 times them if there is room. max_gaps: the number of gaps between ticks that fit."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    # The narrowest gaps, from 1 to 2 and from 5 to 10, are a factor of 2.
    factors = (1, 2, 5) if math.log10(high / low) / math.log10(2) <= max_gaps else (1,)
    values = [factor * 10.0**power for power, factor in itertools.product(powers, factors)]
    return [(value, number_text(value)) for value in values if low <= value <= high]


def describe_chart(chart: Chart) -> str:
    """A description of the chart for screen readers."""
    parts = [f"{chart.y.label} over {chart.x.label}."]
    for series in chart.series:
        if series.points:
            values = [y for _, y in series.points]
            last = f"{number_text((series.line or series.points)[-1][1])} at the end"
            spread = f"{number_text(min(values))} to {number_text(max(values))}"
            parts.append(f"{series.name}: {spread}, {last}.")
    if chart.bars:
        low, high, height = max(chart.bars, key=lambda bar: bar[2])
        parts.append(f"Highest bar: {number_text(height)}, from {number_text(low)} to {number_text(high)}.")
    parts += [f"Marked: {guide.name}." for guide in chart.guides]
    return " ".join(parts)


def legend(entries: Sequence[tuple[str, str, bool]]) -> str:
    """The legend: name, colour and whether the line is dashed."""
    keys = "".join(
        f'<span><i class="{colour}{" dash" if is_dashed else ""}"></i>{escape(name)}</span>'
        for name, colour, is_dashed in entries
    )
    return f"<div class=legend>{keys}</div>"


def number_text(value: float) -> str:
    """A number with three significant digits and thousands separators."""
    return page_number(value, 3)


def _bar(to_x: Scale, to_y: Scale, bottom: float, bar: tuple[float, float, float]) -> str:
    low, high, height = bar
    x, width = to_x(low), max(1.0, to_x(high) - to_x(low) - 1)
    y = to_y(height)
    title = f"{number_text(low)} to {number_text(high)}: {number_text(height)}"
    return (
        f'<rect class="bar" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{max(0.0, bottom - y):.1f}">'
        f"<title>{title}</title></rect>"
    )


def _guide(to_x: Scale, to_y: Scale, bottom: float, guide: Guide) -> tuple[str, str]:
    """The line, and its label, which is drawn above everything else."""
    if guide.is_upright:
        x = to_x(guide.value)
        anchor, at = ("end", x - 5) if x > WIDTH / 2 else ("start", x + 5)
        return (
            f'<line class="guide" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>',
            f'<text class="note" x="{at:.1f}" y="{TOP + 12}" text-anchor="{anchor}">{escape(guide.name)}</text>',
        )
    y = to_y(guide.value)
    return (
        f'<line class="guide" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>',
        f'<text class="note" x="{LEFT + 6}" y="{y - 6:.1f}">{escape(guide.name)}</text>',
    )


def _line(to_x: Scale, to_y: Scale, series: Series) -> str:
    points = [(to_x(x), to_y(y)) for x, y in series.points]
    through = points if series.line is None else [(to_x(x), to_y(y)) for x, y in series.line]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in through)
    dashed = " dashed" if series.is_dashed else ""
    parts = [f'<polyline class="line {series.colour}{dashed}" points="{path}"/>']
    marks = [True] * len(points) if series.marks is None and len(points) <= MAX_MARKS else series.marks or ()
    for (x, y), (value_x, value_y), is_filled in zip(points, series.points, marks, strict=False):
        title = f"{escape(series.name)}: {number_text(value_y)} at {number_text(value_x)}"
        filled = "" if is_filled else " hollow"
        parts.append(
            f'<circle class="mark {series.colour}{filled}" cx="{x:.1f}" cy="{y:.1f}" r="3.5">'
            f"<title>{title}</title></circle>"
        )
    return "".join(parts)
