"""Figures of training runs and of translated test sets: learning curves, BLEU by length."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sacrebleu.metrics.bleu import BLEU

from model.picture import Picture
from model.training_log import FIELDS, LOG

Scale = Literal["steps", "hours"]
# The lengths of sources, in words, at which a new group begins.
LENGTH_BOUNDS = (1, 6, 11, 16, 21, 31, 41, 61)


class FigureError(ValueError):
    """A file or sentences from which no figure can be drawn."""


@dataclass(frozen=True)
class Curves:
    """Measured values of a run, by name: points of (updates, seconds since the start, value)."""

    points: Mapping[str, tuple[tuple[float, float, float], ...]]

    def named(self, part: str) -> dict[str, tuple[tuple[float, float, float], ...]]:
        """Return the curves whose names contain `part`."""
        return {name: points for name, points in self.points.items() if part in name and points}


@dataclass(frozen=True)
class LengthGroup:
    """BLEU, 0 to 100, of the sentences whose sources have `low` to `high` words. high: None for no upper bound.

    The first group also has shorter sources.
    """

    low: int
    high: int | None
    num_sentences: int
    bleu: float

    @property
    def name(self) -> str:
        """Return the bounds as text."""
        return f"{self.low}+" if self.high is None else f"{self.low}-{self.high}"


def read_curves(path: Path) -> Curves:
    """Read the columns whose names contain `loss` or `bleu`. path: a train.csv, or the folder of a run that has one.

    Raises FigureError if the file does not exist, is no training log, or has no values yet.
    """
    file = path / LOG if path.is_dir() else path
    if not file.is_file():
        raise FigureError(f"{file} does not exist")
    points: dict[str, list[tuple[float, float, float]]] = {}
    try:
        with file.open(newline="", encoding="utf-8") as opened:
            for row in csv.DictReader(opened):
                step, elapsed_s = float(row["step"]), float(row.get("elapsed_s") or 0.0)
                for name, value in row.items():
                    if value and ("loss" in name or "bleu" in name):
                        points.setdefault(name, []).append((step, elapsed_s, float(value)))
    except (csv.Error, KeyError, TypeError, ValueError) as error:
        raise FigureError(f"{file} is no training log: {error!r}") from error
    if not points:
        raise FigureError(f"{file} has no loss and no BLEU yet")
    return Curves({name: tuple(values) for name, values in points.items()})


def curves_picture(runs: Mapping[str, Curves], *, over: Scale = "steps") -> Picture:
    """Draw losses, in nats a subword, and BLEU of each run, if any was measured, over updates or hours.

    Hours are those of the log's `elapsed_s`, which a resumed run continues.
    """
    has_bleu = any(curves.named("bleu") for curves in runs.values())
    figure = Figure(figsize=(13 if has_bleu else 8, 4.5), layout="constrained")
    panels = figure.subplots(1, 2 if has_bleu else 1, squeeze=False)[0]
    for axes, part, label in zip(panels, ("loss", "bleu"), ("nats a subword", "BLEU"), strict=False):
        for number, (run, curves) in enumerate(runs.items()):
            prefix = f"{run}: " if len(runs) > 1 else ""
            _draw_curves(
                axes, curves.named(part), prefix, color=f"C{number}" if len(runs) > 1 else None, over=over
            )
        axes.set(xlabel="updates" if over == "steps" else "hours", ylabel=label)
        axes.grid(alpha=0.3)
        if axes.lines:
            axes.legend(fontsize=8)
    return Picture(figure)


def draw(log: Path, picture: Path) -> None:
    """Draw losses and dev BLEU over the steps into the file `picture`. Losses of single domains are left out."""
    points = read_curves(log).points
    curves_picture({"": Curves({name: points[name] for name in FIELDS if name in points})}).save(picture)


def _draw_curves(
    axes: Axes,
    curves: Mapping[str, Sequence[tuple[float, float, float]]],
    prefix: str,
    *,
    color: str | None,
    over: Scale,
) -> None:
    """Draw curves. Curves of the same color take turns with four line styles."""
    for number, (name, points) in enumerate(sorted(curves.items())):
        x = [step if over == "steps" else elapsed_s / 3600 for step, elapsed_s, _ in points]
        style = ("-", "--", ":", "-.")[number % 4] if color else "-"
        label = prefix + name.replace("_", " ")
        axes.plot(x, [value for *_, value in points], style, color=color, marker=".", label=label)


def bleu_by_length(
    sources: Sequence[str],
    translations: Sequence[str],
    references: Sequence[str],
    bounds: Sequence[int] = LENGTH_BOUNDS,
) -> list[LengthGroup]:
    """Compute corpus BLEU (sacreBLEU) of groups of sentences by words of the source. Empty groups are left out.

    bounds: the lengths at which groups begin, ascending. The first group also has all shorter sources.
    Raises FigureError if the numbers of sentences differ.
    """
    if not len(sources) == len(translations) == len(references):
        raise FigureError(
            f"the numbers of sources ({len(sources)}), translations ({len(translations)}) and references "
            f"({len(references)}) differ"
        )
    groups = []
    for number, low in enumerate(bounds):
        high = bounds[number + 1] - 1 if number + 1 < len(bounds) else None
        chosen = [
            index
            for index, source in enumerate(sources)
            if (number == 0 or len(source.split()) >= low) and (high is None or len(source.split()) <= high)
        ]
        if chosen:
            references_of = [[references[index] for index in chosen]]
            score = BLEU().corpus_score([translations[index] for index in chosen], references_of).score
            groups.append(LengthGroup(low, high, len(chosen), score))
    return groups


def lengths_picture(systems: Mapping[str, Sequence[LengthGroup]]) -> Picture:
    """Draw BLEU of each system by length, as bars. The label of each group has its number of sentences."""
    groups = list(next(iter(systems.values())))
    figure = Figure(figsize=(max(7.0, 1.1 * len(groups)), 4.5), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(systems)
    for number, (name, found) in enumerate(systems.items()):
        middle = number - (len(systems) - 1) / 2
        bars = axes.bar(
            [index + middle * width for index in range(len(found))],
            [group.bleu for group in found],
            width,
            label=name,
        )
        axes.bar_label(bars, fmt="%.1f", fontsize=7)
    axes.set_xticks(range(len(groups)), [f"{group.name}\n({group.num_sentences})" for group in groups])
    axes.set(xlabel="words of the source (number of sentences)", ylabel="BLEU")
    axes.legend(fontsize=8)
    return Picture(figure)
