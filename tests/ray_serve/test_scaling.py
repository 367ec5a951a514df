"""The number of replicas that the queued subwords need."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import pytest

from transduce.ray_serve.scaling import QUEUED_SUBWORDS, QueuedSubwordsPolicy


@dataclass
class Context:
    target_num_replicas: int
    aggregated_metrics: Mapping[str, Mapping[Hashable, float]] | None


@pytest.mark.parametrize(
    ("queued", "wanted"), [([0.0], 0.0), ([2000.0], 1.0), ([3000.0, 1500.0], 2.25), ([9000.0, 0.0, 0.0], 4.5)]
)
def test_the_queues_of_all_replicas_are_summed_up(queued: list[float], wanted: float) -> None:
    context = Context(len(queued), {QUEUED_SUBWORDS: dict(enumerate(queued))})
    assert QueuedSubwordsPolicy(2000)(context) == (wanted, {})


@pytest.mark.parametrize("reported", [None, {}, {QUEUED_SUBWORDS: {}}, {"other": {1: 5.0}}])
def test_without_a_report_the_number_of_replicas_stays(
    reported: Mapping[str, Mapping[Hashable, float]] | None,
) -> None:
    assert QueuedSubwordsPolicy(2000)(Context(3, reported)) == (3, {})


@pytest.mark.parametrize("target", [0, -1, float("nan")])
def test_a_target_that_is_not_above_0_is_refused(target: float) -> None:
    with pytest.raises(ValueError, match="subwords_per_replica"):
        QueuedSubwordsPolicy(target)
