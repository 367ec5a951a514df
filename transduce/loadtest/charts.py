"""Charts as inline SVG: lines and bars on linear or logarithmic axes. Colours come from the page's style sheet."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 620, 290
LEFT, RIGHT, TOP, BOTTOM = 62, 16, 32, 46
NUM_TICKS = 6
LEGEND_CHARACTER = 6.9

Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """One line. colour: a class of the style sheet, c0 to c7. marks: for each point, whether it is filled."""

    name: str
    points: Sequence[Point]
    colour: str
    is_dashed: bool = False
    marks: Sequence[bool] | None = None


@dataclass(frozen=True)
class Axis:
    """One axis. label: with the unit. ticks: where given, (value, text) instead of round numbers."""

    label: str
    is_log: bool = False
    ticks: Sequence[tuple[float, str]] | None = None
    low: float | None = None


@dataclass(frozen=True)
class Guide:
    """A straight line across the chart at a value of the y axis, or of the x axis where is_upright."""

    value: float
    name: str
    is_upright: bool = False


@dataclass(frozen=True)
class Chart:
    """Everything that one chart shows. bars: (from, to, height), drawn behind the lines."""

    x: Axis
    y: Axis
    series: Sequence[Series] = ()
    bars: Sequence[tuple[float, float, float]] = ()
    guides: Sequence[Guide] = field(default=())
    height: int = HEIGHT


def draw(chart: Chart) -> str:
    """The chart as an <svg>; an empty text where there is nothing to show."""
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
    parts = [f'<svg viewBox="0 0 {WIDTH} {chart.height}" role="img" aria-label="{escape(chart.y.label)}">']
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
    parts += [_guide(to_x, to_y, bottom, guide) for guide in chart.guides]
    parts += [_line(to_x, to_y, series) for series in chart.series]
    parts.append(_legend(chart.series))
    return "".join(parts) + "</svg>"


Scale = Callable[[float], float]


def _scale(
    axis: Axis, values: Sequence[float], start: float, end: float, *, is_from_zero: bool = False
) -> tuple[Scale, list[tuple[float, str]]]:
    """Value to pixel, and where the ticks are."""
    low, high = min(values), max(values)
    if axis.low is not None:
        low = axis.low
    if axis.is_log:
        low, high = max(low, 1e-9), max(high, 1e-9)
        if axis.ticks is None:
            low, high = low / 1.15, high * 1.15
        span = math.log(high / low) or 1.0
        ticks = axis.ticks or _log_ticks(low, high)
        return lambda value: start + (end - start) * math.log(max(value, low) / low) / span, list(ticks)
    if is_from_zero:
        low = min(0.0, low)
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
    """1, 2 or 5 times a power of ten, so that there are about NUM_TICKS of it in the span."""
    rough = span / NUM_TICKS
    power: float = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))


def _log_ticks(low: float, high: float) -> list[tuple[float, str]]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if high / low < 1e3 else (1,)
    values = [factor * 10.0**power for power, factor in itertools.product(powers, factors)]
    return [(value, number_text(value)) for value in values if low <= value <= high]


def number_text(value: float) -> str:
    """Short, with thousands apart."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _bar(to_x: Scale, to_y: Scale, bottom: float, bar: tuple[float, float, float]) -> str:
    low, high, height = bar
    x, width = to_x(low), max(1.0, to_x(high) - to_x(low) - 1)
    y = to_y(height)
    title = f"{number_text(low)} to {number_text(high)}: {number_text(height)}"
    return (
        f'<rect class="bar" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{max(0.0, bottom - y):.1f}">'
        f"<title>{title}</title></rect>"
    )


def _guide(to_x: Scale, to_y: Scale, bottom: float, guide: Guide) -> str:
    if guide.is_upright:
        x = to_x(guide.value)
        anchor, offset = ("end", -5) if x > WIDTH / 2 else ("start", 5)
        return (
            f'<line class="guide" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>'
            f'<text class="note" x="{x + offset:.1f}" y="{TOP + 12}" text-anchor="{anchor}">{escape(guide.name)}</text>'
        )
    y = to_y(guide.value)
    return (
        f'<line class="guide" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="note" x="{LEFT + 6}" y="{y - 5:.1f}">{escape(guide.name)}</text>'
    )


def _line(to_x: Scale, to_y: Scale, series: Series) -> str:
    points = [(to_x(x), to_y(y)) for x, y in series.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashed = " dashed" if series.is_dashed else ""
    parts = [f'<polyline class="line {series.colour}{dashed}" points="{path}"/>']
    marks = series.marks or ([True] * len(points) if len(points) <= 40 else [])
    for (x, y), (value_x, value_y), is_filled in zip(points, series.points, marks, strict=False):
        title = f"{escape(series.name)}: {number_text(value_y)} at {number_text(value_x)}"
        filled = "" if is_filled else " hollow"
        parts.append(
            f'<circle class="mark {series.colour}{filled}" cx="{x:.1f}" cy="{y:.1f}" r="3.5">'
            f"<title>{title}</title></circle>"
        )
    return "".join(parts)


def _legend(all_series: Sequence[Series]) -> str:
    parts = []
    right: float = WIDTH - RIGHT
    for series in reversed(all_series):
        right -= len(series.name) * LEGEND_CHARACTER
        parts.append(f'<text class="note" x="{right:.1f}" y="16">{escape(series.name)}</text>')
        dashed = " dashed" if series.is_dashed else ""
        parts.append(
            f'<line class="line {series.colour}{dashed}" x1="{right - 22:.1f}" x2="{right - 5:.1f}" y1="12" y2="12"/>'
        )
        right -= 34
    return "".join(parts)
