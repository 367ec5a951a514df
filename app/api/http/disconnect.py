"""Cancels a request's work when its caller closes the connection."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

from starlette.requests import Request

from app.api.http.protocol import READER
from app.errors import RequestCancelled

T = TypeVar("T")


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the work's result. If the caller disconnects first, cancel the work and raise RequestCancelled.

    The work runs in the request's own task. The request's body must have been read before, because the only message
    after it is the disconnect. `BoundedProtocol` reports the disconnect by a callback. Under any other protocol a task
    waits for that message.
    """
    task = cast("asyncio.Task[object]", asyncio.current_task())  # a coroutine runs in one
    has_left = False

    def leave() -> None:
        nonlocal has_left
        if not has_left and not is_done:
            has_left = True
            task.cancel()

    is_done, stop = False, _watch(request, leave)
    try:
        return await work
    except asyncio.CancelledError as error:
        # If another task has cancelled the request too, it stays cancelled.
        if has_left and task.uncancel() == 0:
            raise RequestCancelled("the caller left before the answer") from error
        raise
    finally:
        is_done = True
        stop()


def _watch(request: Request, on_leave: Callable[[], None]) -> Callable[[], None]:
    """Call `on_leave` once the caller has disconnected. Returns the function that ends the watch."""
    reader = request.scope.get("extensions", {}).get(READER)
    if reader is not None:
        set_callback = reader["on_leave"]
        set_callback(on_leave)
        return functools.partial(set_callback, None)

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        on_leave()

    watcher = asyncio.ensure_future(watch())

    def stop() -> None:
        watcher.cancel()

    return stop
