"""The engine's performance goals, and whether the measured cases meet them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]

# Seconds. An engine sustains a rate of arrivals if the 95th percentile of the latency is at most LIMIT_S.
LIMIT_S = 1.0
# The minimum length in seconds of a trial of arrivals. At the end of a shorter trial, a growing queue is still short.
LEAST_TRIAL_S = 10 * LIMIT_S


@dataclass(frozen=True)
class Goal:
    """A bound on one figure of some result rows.

    If `most` is set, the figure must not exceed it. Otherwise the figure is a ratio, which is above 1 if Transduce is
    faster. In fp32 it must be at least LEAST_FP32, and in int8 at least the value of LEAST_RATIOS for `kind`.

    rows: the key of the rows in a result. applies_to: whether the goal applies to a row.
    """

    name: str
    rows: str
    applies_to: Callable[[Row], bool]
    figure: Callable[[Row], float | None]
    kind: str = ""
    most: float | None = None


def _ratio(row: Row) -> float | None:
    ratio: float | None = row["ratio"]
    return ratio


def _python_share(row: Row) -> float:
    share: float = row["where"]["step_python_share"]
    return share


def _greedy(*sizes: int) -> Callable[[Row], bool]:
    return lambda row: row["beam_size"] == 1 and row["num_sentences"] in sizes and not _is_corpus(row)


def _is_corpus(row: Row) -> bool:
    return bool(row["case"].startswith("corpus"))


def _is_random(row: Row) -> bool:
    return bool(row["case"] == "25 to 30")


# The minimum ratio in int8, by the processor's instructions and then by kind of case.
LEAST_RATIOS: dict[str, dict[str, float]] = {
    "tile registers": {"one": 3.0, "few": 3.0, "some": 3.0, "many": 3.0, "beam": 3.0},
    "AVX-512 VNNI": {"one": 5.0, "few": 3.0, "some": 2.0, "many": 2.0, "beam": 2.0},
    "AVX2": {"one": 2.5, "few": 2.5, "some": 1.5, "many": 1.5, "beam": 1.8},
}
# The minimum ratio in fp32, on all processors and for all kinds of cases.
LEAST_FP32 = 1.5


def instructions_of(result: dict[str, Any]) -> str:
    """The key of LEAST_RATIOS for a result. A run that is limited to AVX-VNNI has the goals of AVX2."""
    cpu = result["machine"]["cpu"]
    if result["plan"].get("target"):
        return "AVX2"
    if "tile registers" in cpu:
        return "tile registers"
    # `cpu` names only the two widest kinds of instructions. Of a processor with AVX-512 VNNI, it does not name AVX2. Of
    # a processor with AVX-512 but without VNNI, it names AVX2, and the kernels of AVX2 are the ones that run there.
    return "AVX2" if "AVX2" in cpu else "AVX-512 VNNI"


def least_ratio(kind: str, precision: str, result: dict[str, Any]) -> float:
    """The minimum ratio that cases of this kind should have. kind: `Goal.kind`."""
    return LEAST_FP32 if precision == "fp32" else LEAST_RATIOS[instructions_of(result)][kind]


GOALS = (
    Goal("1 sentence, greedy", "cases", _greedy(1), _ratio, "one"),
    Goal("8 sentences, greedy", "cases", _greedy(8), _ratio, "few"),
    Goal("32 sentences, greedy", "cases", _greedy(32), _ratio, "some"),
    Goal("128 sentences, greedy", "cases", _greedy(128), _ratio, "many"),
    Goal(
        "whole corpus, greedy",
        "cases",
        lambda row: _is_corpus(row) and row["beam_size"] == 1,
        _ratio,
        "many",
    ),
    Goal(
        "beam 4, any number at once",
        "cases",
        lambda row: row["beam_size"] == 4 and not _is_corpus(row),
        _ratio,
        "beam",
    ),
    Goal(
        "whole corpus, beam 4",
        "cases",
        lambda row: _is_corpus(row) and row["beam_size"] == 4,
        _ratio,
        "beam",
    ),
    Goal("arrivals, highest rate", "arrivals", lambda _: True, _ratio, "many"),
    Goal(
        "Python of a step, 1 row",
        "cases",
        lambda row: _is_random(row) and row["num_sentences"] == 1 and row["beam_size"] == 1,
        _python_share,
        most=0.10,
    ),
    Goal(
        "Python of a step, 32 rows",
        "cases",
        lambda row: _is_random(row) and row["num_sentences"] == 32 and row["beam_size"] == 1,
        _python_share,
        most=0.05,
    ),
)


def valid_arrivals(result: dict[str, Any]) -> list[Row]:
    """The rows of arrivals whose trials are long enough. Rows of earlier versions lack the length, and are left out."""
    return [row for row in result["arrivals"] if row.get("trial_s", 0.0) >= LEAST_TRIAL_S]


GOAL_HEADER = ("", "goal", "figures", "cases that meet it", "cases that miss it (their limits)")


def goal_lines(result: dict[str, Any], precision: str) -> Iterator[tuple[str, ...]]:
    """A line for each goal that has a case in the precision, with the columns of GOAL_HEADER."""
    for goal in GOALS:
        candidates = valid_arrivals(result) if goal.rows == "arrivals" else result[goal.rows]
        rows = [row for row in candidates if goal.applies_to(row) and row["precision"] == precision]
        measured = [(row, value) for row in rows if (value := goal.figure(row)) is not None]
        if not measured:
            continue
        # One digit more, if a missed figure would be shown as the goal itself.
        if goal.most is not None:
            missed = [(row, value) for row, value in measured if value > goal.most]
            is_close = any(round(value, 3) == goal.most for _, value in missed)
            bound, form = f"at most {goal.most:.0%}", "{:.2%}" if is_close else "{:.1%}"
        else:
            least = least_ratio(goal.kind, precision, result)
            missed = [(row, value) for row, value in measured if value < least]
            is_close = any(float(f"{value:.2f}") == least for _, value in missed)
            bound, form = f"at least {least:g}", "{:.3f}" if is_close else "{:.2f}"
        lowest, highest = (form.format(extreme(value for _, value in measured)) for extreme in (min, max))
        yield (
            goal.name,
            bound,
            lowest if lowest == highest else f"{lowest} to {highest}",
            f"{len(measured) - len(missed)} of {len(measured)}",
            "; ".join(
                f"{_name_of(row, measured)}: {form.format(value)}{_limit_of(row, goal)}"
                for row, value in missed
            ),
        )


def _limit_of(row: Row, goal: Goal) -> str:
    """The ratio of an engine that only computes a case's products and reads its data; empty for other figures."""
    if goal.most is not None or "floor" not in row:
        return ""
    return f" ({row['peer_ms'] / 1e3 * row['num_groups'] / row['floor']['seconds']:.2f})"


def _name_of(row: Row, measured: Sequence[tuple[Row, float]]) -> str:
    """The row's model, with its number of sentences and its beam size where the rows of this model differ in it."""
    name: str = row["model"]
    for field, form in (("num_sentences", "{} x {}"), ("beam_size", "{}, beam {}")):
        if len({one.get(field) for one, _ in measured if one["model"] == row["model"]}) > 1:
            name = form.format(name, row[field])
    return name
