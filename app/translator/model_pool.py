"""Decides which models are in memory: loads a model when a request needs it, and unloads the least recently used ones.

The pool calls two functions to load and unload a model, and does not read bundles. Requests for a model that is being
loaded share that load. Loads get memory in the order in which they begin. A request for a pair without a model needs
two models (`app.translator.pivot`), and has one place in this order. A load that may exceed the budget does not wait
for the others.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from app.errors import ModelInUse, NotReady
from app.runtime.memory import release_frames
from app.translator.translator import Translator

T = TypeVar("T")
# Seconds after a failed load in which requests for the model are refused at once. If longer, a repaired model is served
# later. If shorter, loads of a broken model take more time from the others.
FAILURE_PAUSE_S = 30.0
# Seconds after which a client should repeat a request that got no memory for its model.
RETRY_S = 2.0


@dataclass(eq=False)
class PooledModel:
    """A model, loaded or not. The pool alone changes the fields that have defaults.

    num_bytes: estimated memory of the loaded model. load: returns this model ready for requests. Raises BundleError,
        SettingsError, ServiceError, and OSError or RuntimeError of a worker process.
    translator: None while the model is not loaded. loading: the load that is under way.
    waits_for_memory: whether that load waits for memory.
    num_users: requests that use the model or wait for it, and calls of `ModelPool.load` and blocks of `ModelPool.kept`
        that run. last_used: larger for a later use.
    refused_until: seconds of time.monotonic until which requests are refused after a failed load.
    """

    name: str
    num_bytes: int
    load: Callable[[PooledModel], Awaitable[Translator]]
    translator: Translator | None = None
    loading: asyncio.Task[Translator] | None = None
    waits_for_memory: bool = False
    num_users: int = 0
    last_used: int = 0
    refused_until: float = -math.inf


class PoolListener(Protocol):
    """Receives the pool's reports."""

    def model_loaded(self, model: PooledModel, seconds: float) -> None:
        """A model is loaded. seconds: the time of loading, without the wait for memory."""

    def model_unloaded(self, model: PooledModel) -> None:
        """A model's memory is free."""

    def model_failed(self, model: PooledModel, error: Exception) -> None:
        """A model cannot be loaded."""


class ModelPool:
    """The loaded models of a server. All methods run on the event loop."""

    def __init__(
        self,
        max_bytes: int,
        *,
        unload: Callable[[Translator], Awaitable[None]],
        listener: PoolListener,
    ) -> None:
        """max_bytes: the budget, at least the `num_bytes` of each model. unload: ends a model that no request uses."""
        self._max_bytes = max_bytes
        self._unload = unload
        self._listener = listener
        self._num_bytes = 0  # of all models that are loaded, being loaded or being unloaded
        self._loaded: list[PooledModel] = []
        self._uses = itertools.count(1)
        # What waits for memory, in order: the tasks of loads, and an object for each request for two models.
        self._turns: list[object] = []
        self._changed = asyncio.Event()  # set when memory, a model or a turn may have become free
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def num_bytes(self) -> int:
        """Estimated memory of all models that are loaded, being loaded or being unloaded."""
        return self._num_bytes

    @property
    def num_loaded(self) -> int:
        """The number of loaded models."""
        return len(self._loaded)

    @asynccontextmanager
    async def held(self, model: PooledModel, deadline: float) -> AsyncIterator[Translator]:
        """Keep a model loaded while the block runs; load it first if it is not loaded.

        deadline: seconds of time.monotonic. Raises NotReady if the model is not loaded by then or cannot be loaded.
        """
        model.num_users += 1
        try:
            yield model.translator or await self._load_by(model, deadline)
        finally:
            self._release(model)

    @asynccontextmanager
    async def both_held(
        self, first: PooledModel, last: PooledModel, deadline: float
    ) -> AsyncIterator[tuple[Translator, Translator]]:
        """As `held`, for two models, which may be the same one.

        The request holds no model while it waits for its turn. In its turn it holds both, and their loads get memory
        before all others. Otherwise there could be a deadlock: the request holds one model and waits for the load of
        the other, which waits behind a load that needs the memory of the held model. Raises NotReady at once if one of
        the two must be loaded and the budget does not hold both.
        """
        models, turn = (first, last), object()
        if any(map(_lacks_memory, models)) and sum(model.num_bytes for model in {*models}) > self._max_bytes:
            raise NotReady(
                f"the models {first.name} and {last.name} do not fit in memory together: "
                "TRANSDUCE_MODEL_MEMORY is too small for this pair",
                retry_after_s=FAILURE_PAUSE_S,
            )
        with ExitStack() as held:
            self._turns.append(turn)
            try:
                await self._wait_for_turn_by(turn, models, deadline)
                held.enter_context(self.kept(models))
                missing = [model for model in models if model.translator is None]
                for model in missing:
                    self._check_pause(model)
                for model in reversed(missing):
                    self._start(model, goes_first=True)
            finally:
                self._leave(turn)
            translators = [model.translator or await self._load_by(model, deadline) for model in models]
            yield translators[0], translators[1]

    async def load(
        self, model: PooledModel, *, may_exceed: bool = False, timeout_s: float | None = None
    ) -> None:
        """Load a model if it is not loaded, even soon after a failed load. Raises NotReady and errors of `model.load`.

        may_exceed: if requests use all loaded models, exceed the budget and do not wait. If the model's load is already
        under way, it may wait all the same. timeout_s: seconds; None for no limit.
        """
        model.num_users += 1
        try:
            if model.translator is None:
                await self._load_within(model, timeout_s, may_exceed=may_exceed)
        finally:
            self._release(model)

    @contextmanager
    def kept(self, models: Collection[PooledModel]) -> Iterator[None]:
        """While the block runs, do not unload these models, whether they are loaded or not."""
        for model in models:
            model.num_users += 1
        try:
            yield
        finally:
            for model in models:
                self._release(model)

    async def unload(self, model: PooledModel) -> None:
        """Unload a model, if it is loaded. Raises ModelInUse if it is loading, or a request or a reload needs it."""
        if model.num_users or model.loading is not None:
            raise ModelInUse(
                f"the model {model.name} loads, or a request or a reload uses it: try again later"
            )
        if model.translator is not None:
            await self._unload_now(model)

    async def retire(self, model: PooledModel) -> None:
        """Unload a model that gets no more requests, once its last request has ended."""
        while model.num_users or model.loading is not None:
            await (self._wait_for_change() if model.loading is None else asyncio.wait([model.loading]))
        await self.unload(model)

    async def close(self) -> None:
        """Cancel all loads and unloads. Requests that wait for a load get NotReady."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _load_by(self, model: PooledModel, deadline: float) -> Translator:
        """Wait for a model's load, and start it if none is under way. Raises NotReady."""
        self._check_pause(model)
        try:
            return await self._load_within(model, deadline - time.monotonic())
        except NotReady:
            raise
        except Exception as error:
            raise NotReady(_cannot_load(model), retry_after_s=FAILURE_PAUSE_S) from error

    def _check_pause(self, model: PooledModel) -> None:
        """Raise NotReady if no load is under way and the last one failed less than FAILURE_PAUSE_S ago."""
        remaining_s = model.refused_until - time.monotonic()
        if model.loading is None and remaining_s > 0:
            raise NotReady(_cannot_load(model), retry_after_s=remaining_s)

    async def _load_within(
        self, model: PooledModel, timeout_s: float | None, *, may_exceed: bool = False
    ) -> Translator:
        """Wait for the load that is under way, or start one. Raises NotReady after timeout_s, and the load's errors."""
        task = self._start(model, may_exceed=may_exceed)
        await asyncio.wait([task], timeout=None if timeout_s is None else max(0.0, timeout_s))
        if not task.done():
            reason = (
                "other requests use all models that fit in memory"
                if model.waits_for_memory
                else "it is loading"
            )
            raise NotReady(f"the model {model.name} is not loaded yet: {reason}", retry_after_s=RETRY_S)
        if task.cancelled():
            raise NotReady("the server is shutting down")
        return task.result()

    def _start(
        self, model: PooledModel, *, may_exceed: bool = False, goes_first: bool = False
    ) -> asyncio.Task[Translator]:
        """Return the load that is under way, or start one. goes_first: it is the next load to get memory."""
        task = model.loading
        if task is None:
            task = model.loading = self._spawn(self._load(model, may_exceed=may_exceed))
            model.waits_for_memory = True
            if not may_exceed:
                self._turns.append(task)
                task.add_done_callback(self._leave)
        if goes_first and task in self._turns:
            self._turns.remove(task)
            self._turns.insert(0, task)
        return task

    async def _load(self, model: PooledModel, *, may_exceed: bool) -> Translator:
        try:
            await self._reserve(model.num_bytes, may_exceed=may_exceed)
            model.waits_for_memory = False
            started = time.monotonic()
            try:
                translator = await model.load(model)
            except BaseException:
                self._free(model.num_bytes)
                raise
            model.translator = translator
            model.refused_until = -math.inf
            self._loaded.append(model)
            self._changed.set()  # if the model's requests have left, a load that waits may unload it
            self._listener.model_loaded(model, time.monotonic() - started)
            return translator
        except Exception as error:
            model.refused_until = time.monotonic() + FAILURE_PAUSE_S
            self._listener.model_failed(model, error)
            release_frames(error)
            raise
        finally:
            if model.loading is asyncio.current_task():
                model.loading = None

    async def _reserve(self, num_bytes: int, *, may_exceed: bool) -> None:
        """Take memory from the budget. Unload idle models until it suffices; wait while no model is idle.

        may_exceed: wait neither for memory nor for other loads that wait for memory.
        """
        task = asyncio.current_task()
        while not may_exceed and self._turns[0] is not task:
            await self._wait_for_change()
        while self._num_bytes + num_bytes > self._max_bytes:
            idle = [model for model in self._loaded if not model.num_users]
            if idle:
                await asyncio.shield(self._unload_now(min(idle, key=lambda model: model.last_used)))
            elif may_exceed:
                break
            else:
                await self._wait_for_change()
        self._num_bytes += num_bytes
        self._leave(task)

    async def _wait_for_turn_by(
        self, turn: object, models: tuple[PooledModel, PooledModel], deadline: float
    ) -> None:
        """Wait until it is the turn of a request for these models, or both have memory. Raises NotReady."""
        missing = models[0]
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                while self._turns[0] is not turn and any(map(_lacks_memory, models)):
                    missing = next(filter(_lacks_memory, models))
                    await self._wait_for_change()
        except TimeoutError as error:
            message = f"the model {missing.name} is not loaded yet: other requests wait for their models"
            raise NotReady(message, retry_after_s=RETRY_S) from error

    async def _wait_for_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _leave(self, turn: object) -> None:
        """End a turn, or the wait for it. Does nothing if it has ended already."""
        if turn in self._turns:
            self._turns.remove(turn)
            self._changed.set()

    def _free(self, num_bytes: int) -> None:
        self._num_bytes -= num_bytes
        self._changed.set()

    def _release(self, model: PooledModel) -> None:
        """End a use of a model. A load that waits for memory is cancelled if no request waits for it."""
        model.num_users -= 1
        model.last_used = next(self._uses)
        if not model.num_users:
            self._changed.set()
            if model.loading is not None and model.waits_for_memory:
                model.loading.cancel()
                model.loading = None

    def _unload_now(self, model: PooledModel) -> asyncio.Task[None]:
        """Mark an idle model as not loaded at once. Returns the task that ends it and frees its memory."""
        translator, model.translator = model.translator, None
        assert translator is not None
        self._loaded.remove(model)

        async def unload() -> None:
            try:
                await self._unload(translator)
            finally:
                self._free(model.num_bytes)
                self._listener.model_unloaded(model)

        return self._spawn(unload())

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task, and keep it until it ends."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Marks the error as retrieved.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task


def _lacks_memory(model: PooledModel) -> bool:
    """Whether the model has no memory yet."""
    return model.translator is None and (model.loading is None or model.waits_for_memory)


def _cannot_load(model: PooledModel) -> str:
    return f"the model {model.name} cannot be loaded; the server's log says why"
