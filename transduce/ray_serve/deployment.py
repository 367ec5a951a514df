"""Builds the Serve application that deploy/ray/serve.yaml names."""

from __future__ import annotations

from ray import serve

from transduce.ray_serve.replica import Replica

NAME = "Transduce"
# Requests that a replica takes at once. Its own admission refuses work that would come too late. If smaller, requests
# wait in Ray's proxy, where the replica cannot batch them.
MAX_ONGOING_REQUESTS = 1000
# Seconds between two health checks, and the time limit of each. Ray replaces a replica after three failures.
HEALTH_CHECK_PERIOD_S = 5.0
HEALTH_CHECK_TIMEOUT_S = 10.0
# Seconds in which a replica that is to end answers its requests. Ray then kills it.
DRAIN_TIMEOUT_S = 30.0


def build(settings: dict[str, object]) -> serve.Application:
    """The Serve application of one server.

    settings: `args` of the application in the Serve config, by their names in `app.settings`.
    """
    deployment = serve.deployment(serve.ingress()(Replica))
    return deployment.options(
        name=NAME,
        max_ongoing_requests=MAX_ONGOING_REQUESTS,
        health_check_period_s=HEALTH_CHECK_PERIOD_S,
        health_check_timeout_s=HEALTH_CHECK_TIMEOUT_S,
        graceful_shutdown_timeout_s=DRAIN_TIMEOUT_S,
    ).bind(settings)
