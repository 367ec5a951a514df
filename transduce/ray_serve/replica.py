"""A replica: the server without its listener, in an actor of Ray."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping

import ray

from app.main import EXIT_ENGINE, Application
from app.observability.logging import close_log, configure_logging
from transduce.ray_serve.routes import ReplicaRoutes
from transduce.ray_serve.scaling import QUEUED_SUBWORDS
from transduce.ray_serve.settings import replica_settings


class Replica:
    """One server, with its models and workers. Ray calls every method on the actor's event loop for user code.

    Ray first calls the constructor, then `__serve_build_asgi_app__`, and sends requests when both have returned.
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        """settings: by their names in `app.settings`. Raises SettingsError."""
        cpus = ray.get_runtime_context().get_assigned_resources().get("CPU", 1)
        checked = replica_settings(settings, num_cpus=int(cpus))
        configure_logging(checked.log_level)
        self._application = Application(checked)
        self._lifespan = contextlib.AsyncExitStack()

    async def __serve_build_asgi_app__(self) -> ReplicaRoutes:
        """Start the server, and return its ASGI application once it is ready. The name is Ray's.

        Raises the error that keeps the server from serving (`Application.on_failure`), such as BundleError.
        """
        application, ready = self._application, asyncio.get_running_loop().create_future()

        def on_failure(error: Exception) -> None:
            if not ready.done():
                ready.set_exception(error)

        application.on_ready = lambda: ready.set_result(None)
        application.on_failure = on_failure
        await self._lifespan.enter_async_context(application.lifespan())
        await ready
        application.on_failure = _end
        return ReplicaRoutes(application.app)

    async def check_health(self) -> None:
        """Raise RuntimeError while the server is not ready. Ray replaces the replica after three failures in a row."""
        problem = self._application.service.why_not_ready()
        if problem is not None:
            raise RuntimeError(problem)

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """The figures of this replica that the autoscaler's policy reads."""
        value = self._application.metrics.registry.get_sample_value("transduce_queue_tokens")
        return {QUEUED_SUBWORDS: value or 0.0}

    async def __del__(self) -> None:
        """End the server. Ray awaits this after the last request, or when graceful_shutdown_timeout_s has passed."""
        await self._lifespan.aclose()


def _end(_error: Exception) -> None:
    """End the process of a replica whose engine has died. Ray starts a new replica."""
    close_log()
    os._exit(EXIT_ENGINE)
