"""Alternating load testers: the comparison cancels the machine's changes of speed."""

from __future__ import annotations

import pytest

from benchmarks.loadtest_alternation import compare_other_passes, compare_own_passes, median_of

# Factors of the latencies of eleven passes on a machine whose speed drifts. The first pass is ours, the second is the
# other tester's, the third is ours, and so on.
PACE = (1.0, 1.1, 1.2, 1.4, 1.5, 1.6, 1.5, 1.3, 1.2, 1.0, 0.9)


def passes(factor: float, paces: tuple[float, ...]) -> list[dict[str, float]]:
    return [{"p50": 20.0 * pace, "p99": 50.0 * pace * factor} for pace in paces]


def test_testers_that_agree_still_agree_while_the_machine_drifts() -> None:
    own, others = passes(1.0, PACE[::2]), passes(1.0, PACE[1::2])
    compared = compare_other_passes(others, own)
    assert compared.agrees
    assert compared.ratios["p50"] == pytest.approx(1.0, abs=0.03)
    assert compare_own_passes(own).agrees
    # A median over all passes includes the drift: it is a fifth above the 20 ms of the first pass.
    assert median_of(own)["p50"] == pytest.approx(24.0)


def test_a_tester_with_other_latencies_disagrees() -> None:
    compared = compare_other_passes(passes(1.2, PACE[1::2]), passes(1.0, PACE[::2]))
    assert not compared.agrees
    assert compared.ratios["p99"] == pytest.approx(1.2, abs=0.03)
    low, high = compared.ranges["p99"]
    assert low < compared.ratios["p99"] < high


def test_an_unsteady_machine_gives_no_verdict() -> None:
    jumping = passes(1.0, (1.0, 1.5, 1.5, 1.0, 1.5, 1.5))
    assert not compare_own_passes(jumping).agrees


def test_each_pass_of_the_other_tester_needs_ours_before_and_after_it() -> None:
    with pytest.raises(ValueError, match="3 other passes need 4"):
        compare_other_passes(passes(1.0, (1.0,) * 3), passes(1.0, (1.0,) * 3))
