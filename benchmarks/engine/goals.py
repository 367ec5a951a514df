"""The engine's performance goals, and whether the measured cases meet them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Goal:
    """A bound on one figure of some result rows: at least `least`, or at most `most`.

    rows: the key of the rows in a result. applies_to: whether the goal applies to a row. is_share: whether to print the
    figure as a percentage.
    """

    name: str
    rows: str
    applies_to: Callable[[Row], bool]
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


GOAL_HEADER = ("", "goal", "lowest", "highest", "cases", "cases that meet it")


def goal_lines(result: dict[str, Any], precision: str) -> Iterator[tuple[str, ...]]:
    """A line for each goal that has a case in the precision, with the columns of GOAL_HEADER."""
    for goal in GOALS:
        rows = [row for row in result[goal.rows] if goal.applies_to(row) and row["precision"] == precision]
        values = [value for row in rows if (value := goal.figure(row)) is not None]
        if values:
            bound = f"at least {goal.least:g}" if goal.most is None else f"at most {goal.most:.0%}"
            shown = [
                f"{value:.1%}" if goal.is_share else f"{value:.2f}" for value in (min(values), max(values))
            ]
            yield (goal.name, bound, *shown, str(len(values)), str(sum(map(goal.is_met, values))))
