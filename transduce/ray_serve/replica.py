"""A replica: the server without its listener, in an actor of Ray."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

import ray

from app.main import EXIT_ENGINE, Application
from app.observability.logging import close_log, configure_logging
from transduce.ray_serve.routes import ReplicaRoutes
from transduce.ray_serve.scaling import QUEUED_SUBWORDS
from transduce.ray_serve.settings import replica_settings


class Replica:
    """One server, with its models and workers. Ray calls every method on the event loop of the actor's user code.

    Its constructor returns when the server is ready, so Ray sends no request before. The constructor fails with the
    reason if the server cannot start.
    """

    async def __init__(self, settings: Mapping[str, object]) -> None:
        """settings: by their names in `app.settings`. Raises SettingsError, BundleError, ServiceError."""
        cpus = ray.get_runtime_context().get_assigned_resources().get("CPU", 1)
        checked = replica_settings(settings, num_cpus=int(cpus))
        configure_logging(checked.log_level)
        self._application = application = Application(checked)
        ready = asyncio.get_running_loop().create_future()
        application.on_ready = lambda: ready.set_result(None)
        application.on_failure = lambda error: ready.done() or ready.set_exception(error)
        self._lifespan = application.lifespan()
        await self._lifespan.__aenter__()
        try:
            await ready
        except BaseException:
            await self._lifespan.__aexit__(None, None, None)
            raise
        application.on_failure = _end

    def __serve_build_asgi_app__(self) -> ReplicaRoutes:  # noqa: PLW3201 - the name is Ray's
        """The ASGI application of this replica."""
        return ReplicaRoutes(self._application.app)

    async def check_health(self) -> None:
        """Raise RuntimeError while the server is not ready. Ray replaces the replica after three failures in a row."""
        problem = self._application.service.why_not_ready()
        if problem is not None:
            raise RuntimeError(problem)

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """What the autoscaler's policy needs to know of this replica."""
        value = self._application.metrics.registry.get_sample_value("transduce_queue_tokens")
        return {QUEUED_SUBWORDS: value or 0.0}

    async def __del__(self) -> None:
        """End the server. Ray awaits this after the last request, or when graceful_shutdown_timeout_s has passed."""
        await self._lifespan.__aexit__(None, None, None)


def _end(_error: Exception) -> None:
    """End the process of a replica whose engine has died. Ray starts a new replica."""
    close_log()
    os._exit(EXIT_ENGINE)
