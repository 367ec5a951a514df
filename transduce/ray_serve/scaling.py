"""How many replicas a queue needs: the policy by which Ray Serve scales the server."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Protocol

# What a replica reports: source subwords that it has accepted and not yet answered, as `transduce_queue_tokens`.
QUEUED_SUBWORDS = "queued_subwords"


class ScalingContext(Protocol):
    """What the policy reads of Ray's AutoscalingContext.

    aggregated_metrics: for each metric, its mean over the look-back period, by replica; None before the first report.
    """

    target_num_replicas: int
    aggregated_metrics: Mapping[str, Mapping[Hashable, float]] | None


class QueuedSubwordsPolicy:
    """A policy of Ray's autoscaler that keeps the queued subwords of each replica near a target.

    Ray copies this class by value into its controller, and applies delays, factors and bounds of `autoscaling_config`
    to the result.
    """

    def __init__(self, subwords_per_replica: float) -> None:
        """subwords_per_replica: the target. Raises ValueError if it is not above 0."""
        if not subwords_per_replica > 0:
            raise ValueError(f"subwords_per_replica is {subwords_per_replica}; it must be above 0")
        self._target = subwords_per_replica

    def __call__(self, context: ScalingContext) -> tuple[float, dict[str, Any]]:
        """The wanted number of replicas, which Ray rounds up, and no state. Without a report, the number stays."""
        queued = (context.aggregated_metrics or {}).get(QUEUED_SUBWORDS)
        if not queued:
            return context.target_num_replicas, {}
        return sum(queued.values()) / self._target, {}
