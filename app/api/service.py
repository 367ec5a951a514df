"""The state that all routes share: the server's phase, its models and glossaries, and the requests in progress."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from enum import StrEnum
from typing import Any, TypeVar, cast

from app.engine.row_recorder import RowRecorder
from app.errors import NotReady
from app.observability.metrics import Metrics
from app.observability.tracing import Tracing
from app.runtime.memory import collect_if_grown
from app.stores.glossaries import GlossaryStore
from app.stores.usage import Usage
from app.translator import Models

T = TypeVar("T")
# Seconds without a request before garbage is collected. If shorter, a collection delays the next request more often. If
# longer, a busy server collects garbage less often.
IDLE_S = 0.5


class Phase(StrEnum):
    """The phases of the server: LOADING, READY, DRAINING. If the start fails, FAILED follows LOADING."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


class Service:
    """The state shared by all requests. Every method is called on the event loop."""

    def __init__(
        self,
        metrics: Metrics,
        glossaries: GlossaryStore,
        tracing: Tracing | None = None,
        usage: Usage | None = None,
    ) -> None:
        """tracing: None if requests are not traced. usage: the counts of each key; None to count without a store."""
        self.usage = Usage() if usage is None else usage
        self.metrics = metrics
        self.tracing = tracing
        self.glossaries = glossaries
        self.rows = RowRecorder()
        self.phase = Phase.LOADING
        self._models: Models | None = None
        self.num_inflight = 0
        metrics.readings.track_gauges(
            {
                "ready": ("1 while /readyz answers 200", lambda: self.why_not_ready() is None),
                "inflight_requests": ("Translation requests in progress", lambda: self.num_inflight),
            }
        )
        self._accepts_work = True
        self._collection: asyncio.TimerHandle | None = None
        self._no_inflight = asyncio.Event()
        self._on_close: set[Callable[[], None]] = set()

    @property
    def models(self) -> Models | None:
        """The models; None until they are loaded."""
        return self._models

    def become_ready(self, models: Models) -> None:
        """Accept requests: loading, golden check and warm-up are complete. A drain that has begun continues."""
        self._models = models
        if self.phase is Phase.LOADING:
            self.phase = Phase.READY

    def replace_models(self, models: Models) -> None:
        """Serve other models to all requests from now on."""
        self._models = models

    def become_failed(self) -> None:
        """Enter the phase FAILED, because the start failed."""
        self.phase = Phase.FAILED

    def start_draining(self, *, accepts_work: bool) -> None:
        """Enter the phase DRAINING, in which /readyz returns 503. accepts_work: whether requests are still accepted."""
        self.phase = Phase.DRAINING
        self._accepts_work = accepts_work
        if not accepts_work:
            for close in list(self._on_close):
                close()

    def check_open(self) -> Models:
        """Check that requests are accepted, and return the models. Raises NotReady."""
        is_open = self.phase is Phase.READY or (self.phase is Phase.DRAINING and self._accepts_work)
        if self._models is None or not is_open:
            raise NotReady(f"the server takes no requests: {self.phase}")
        return self._models

    def why_not_live(self) -> str | None:
        """Why this process should be replaced; None if it need not be. A full queue or a high load is no reason."""
        if self._models is None:
            return None
        health = self._models.health()
        if self.phase is not Phase.DRAINING and not health.is_alive:
            return "the engine has died"
        return "the engine has stalled" if health.is_stalled else None

    def why_not_ready(self) -> str | None:
        """Why this server should get no traffic; None while it is ready."""
        if self.phase is not Phase.READY:
            return str(self.phase)
        problem = self.why_not_live()
        if problem is None and self._models is not None and not self._models.health().has_worker:
            return "all workers of a model are being started again"
        return problem

    async def while_open(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work`, such as reading a body, and return its result.

        When the server stops accepting requests, it cancels the task of `work`. Then this raises NotReady.
        """
        task = cast("asyncio.Task[object]", asyncio.current_task())  # a coroutine always runs in a task
        is_closed = False

        def close() -> None:
            nonlocal is_closed
            if not is_closed:  # draining may begin twice, and each cancellation needs its own `uncancel`
                is_closed = True
                task.cancel()

        self._on_close.add(close)
        try:
            return await work
        except asyncio.CancelledError as error:
            if is_closed and task.uncancel() == 0:
                raise NotReady(f"the server takes no requests: {self.phase}") from error
            raise
        finally:
            self._on_close.discard(close)

    @contextlib.contextmanager
    def work(self) -> Iterator[Models]:
        """Count a translation request as in progress while the context lasts. A drain waits for it. Raises NotReady."""
        models = self.check_open()
        self.num_inflight += 1
        try:
            with models.held():
                yield models
        finally:
            self.num_inflight -= 1
            if not self.num_inflight:
                self._no_inflight.set()
                self._collect_when_idle()

    def _collect_when_idle(self) -> None:
        """Collect garbage once no request has been in progress for IDLE_S."""
        if self._collection is not None:
            self._collection.cancel()
        self._collection = asyncio.get_running_loop().call_later(IDLE_S, self._collect)

    def _collect(self) -> None:
        self._collection = None
        if not self.num_inflight:
            collect_if_grown()

    async def drained(self) -> None:
        """Wait until no request is in progress."""
        while self.num_inflight:
            self._no_inflight.clear()
            await self._no_inflight.wait()
