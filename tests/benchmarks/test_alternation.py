"""Alternating load testers: their difference is separated from the machine's changes of speed."""

from __future__ import annotations

import pytest

from benchmarks.loadtest_alternation import beside, control, median_of

# The machine's drifting speed at the times of eleven passes: ours, the other's, ours, ...
PACE = (1.0, 1.1, 1.2, 1.4, 1.5, 1.6, 1.5, 1.3, 1.2, 1.0, 0.9)


def passes(factor: float, paces: tuple[float, ...]) -> list[dict[str, float]]:
    return [{"p50": 20.0 * pace, "p99": 50.0 * pace * factor} for pace in paces]


def test_testers_that_agree_do_so_while_the_machine_drifts() -> None:
    own, others = passes(1.0, PACE[::2]), passes(1.0, PACE[1::2])
    compared = beside(others, own)
    assert compared.agrees
    assert compared.ratios["p50"] == pytest.approx(1.0, abs=0.03)
    assert control(own).agrees
    # Medians over all passes would hide it: the machine was a third slower for half of the time.
    assert median_of(own)["p50"] == pytest.approx(24.0)


def test_one_that_measures_something_else_is_found_out() -> None:
    compared = beside(passes(1.2, PACE[1::2]), passes(1.0, PACE[::2]))
    assert not compared.agrees
    assert compared.ratios["p99"] == pytest.approx(1.2, abs=0.03)
    low, high = compared.ranges["p99"]
    assert low < compared.ratios["p99"] < high


def test_an_unsteady_machine_gives_no_verdict() -> None:
    jumping = passes(1.0, (1.0, 1.5, 1.5, 1.0, 1.5, 1.5))
    assert not control(jumping).agrees


def test_each_pass_of_the_other_stands_between_two_of_ours() -> None:
    with pytest.raises(ValueError, match="3 passes stand between 4"):
        beside(passes(1.0, (1.0,) * 3), passes(1.0, (1.0,) * 3))
