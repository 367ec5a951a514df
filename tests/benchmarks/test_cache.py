"""The percentiles of latencies are nearest ranks, so that the p99 of 100 values is not their maximum."""

from __future__ import annotations

from benchmarks.cache import summary


def test_the_percentiles_are_nearest_ranks() -> None:
    found = summary(range(100, 0, -1))
    assert found == {"num": 100, "p50_ms": 50.5, "p95_ms": 95, "p99_ms": 99, "max_ms": 100}
    assert summary([7.0]) == {"num": 1, "p50_ms": 7.0, "p95_ms": 7.0, "p99_ms": 7.0, "max_ms": 7.0}
