"""What the engine is meant to reach, and what the measured cases say to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Goal:
    """A figure of some of the rows of a result, with its bound: at least `least`, or at most `most`."""

    name: str
    rows: str
    is_meant: Callable[[Row], bool]
    figure: Callable[[Row], float | None]
    least: float | None = None
    most: float | None = None
    is_share: bool = False

    def is_met(self, value: float) -> bool:
        """Whether one figure is within the bound."""
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)


def _ratio(row: Row) -> float | None:
    ratio: float | None = row["ratio"]
    return ratio


def _python(row: Row) -> float:
    share: float = row["where"]["step_python_share"]
    return share


def _greedy(*sizes: int) -> Callable[[Row], bool]:
    return lambda row: row["beam_size"] == 1 and row["num_sentences"] in sizes and not _is_corpus(row)


def _is_corpus(row: Row) -> bool:
    return bool(row["case"].startswith("corpus"))


def _is_random(row: Row) -> bool:
    return bool(row["case"] == "25 to 30")


GOALS = (
    Goal("1 sentence, greedy", "cases", _greedy(1), _ratio, least=3.0),
    Goal("8 sentences, greedy", "cases", _greedy(8), _ratio, least=3.0),
    Goal("32 sentences, greedy", "cases", _greedy(32), _ratio, least=2.0),
    Goal("128 sentences, greedy", "cases", _greedy(128), _ratio, least=2.0),
    Goal(
        "whole corpus, greedy",
        "cases",
        lambda row: _is_corpus(row) and row["beam_size"] == 1,
        _ratio,
        least=2.0,
    ),
    Goal(
        "beam 4, any number at once",
        "cases",
        lambda row: row["beam_size"] == 4 and not _is_corpus(row),
        _ratio,
        least=2.0,
    ),
    Goal(
        "whole corpus, beam 4",
        "cases",
        lambda row: _is_corpus(row) and row["beam_size"] == 4,
        _ratio,
        least=2.0,
    ),
    Goal("arrivals, highest rate", "arrivals", lambda _: True, _ratio, least=2.0),
    Goal(
        "Python of a step, 1 row",
        "cases",
        lambda row: _is_random(row) and row["num_sentences"] == 1 and row["beam_size"] == 1,
        _python,
        most=0.10,
        is_share=True,
    ),
    Goal(
        "Python of a step, 32 rows",
        "cases",
        lambda row: _is_random(row) and row["num_sentences"] == 32 and row["beam_size"] == 1,
        _python,
        most=0.05,
        is_share=True,
    ),
)


def goal_lines(result: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """A line for each goal: its bound, the figures of each precision from least to most, how many meet it."""
    precisions = sorted({row["precision"] for row in result["cases"]}, key=lambda name: name != "int8")
    for goal in GOALS:
        rows = [row for row in result[goal.rows] if goal.is_meant(row)]
        found = [(row["precision"], value) for row in rows if (value := goal.figure(row)) is not None]
        bound = f"at least {goal.least:g}" if goal.most is None else f"at most {goal.most:.0%}"
        met = sum(goal.is_met(value) for _, value in found)
        cells = [
            _range([value for name, value in found if name == precision], is_share=goal.is_share)
            for precision in precisions
        ]
        yield (goal.name, bound, *cells, f"{met} of {len(found)}")


def goal_header(result: dict[str, Any]) -> tuple[str, ...]:
    """Of the table that goal_lines makes."""
    precisions = sorted({row["precision"] for row in result["cases"]}, key=lambda name: name != "int8")
    return ("", "goal", *precisions, "cases that reach it")


def _range(values: list[float], *, is_share: bool) -> str:
    if not values:
        return "not measured"
    shown = [f"{value:.1%}" if is_share else f"{value:.2f}" for value in (min(values), max(values))]
    return shown[0] if shown[0] == shown[1] else f"{shown[0]} to {shown[1]}"
