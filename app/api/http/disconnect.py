"""Cancels the processing of a request when the client closes the connection."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

from starlette.requests import Request

from app.api.http.closing import CONNECTION
from app.errors import RequestCancelled

T = TypeVar("T")


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Await `work` and return its result. If the client disconnects first, cancel `work` and raise RequestCancelled.

    `work` runs in the task of the request. The caller of this function must have read the request's body. Then the next
    ASGI message is `http.disconnect`.
    """
    # A coroutine always runs in a task, so the result is not None.
    task = cast("asyncio.Task[object]", asyncio.current_task())
    is_disconnected = False
    is_done = False

    def cancel_work() -> None:
        nonlocal is_disconnected
        if not is_disconnected and not is_done:
            is_disconnected = True
            task.cancel()

    stop_watching = _watch_disconnect(request, cancel_work)
    try:
        return await work
    except asyncio.CancelledError as error:
        # A count above 0 means that other code has cancelled the task, too. The CancelledError is then raised again.
        if is_disconnected and task.uncancel() == 0:
            raise RequestCancelled("the client disconnected before the response") from error
        raise
    finally:
        is_done = True
        stop_watching()


def _watch_disconnect(request: Request, on_disconnect: Callable[[], None]) -> Callable[[], None]:
    """Call `on_disconnect` when the client disconnects. Returns a function that stops watching.

    `BoundedProtocol` adds the extension CONNECTION to the scope and calls `on_disconnect`. Under any other protocol, a
    task waits for `http.disconnect`.
    """
    connection = request.scope.get("extensions", {}).get(CONNECTION)
    if connection is not None:
        set_callback = connection["on_disconnect"]
        set_callback(on_disconnect)
        return functools.partial(set_callback, None)

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        on_disconnect()

    watcher = asyncio.ensure_future(watch())

    def stop_watching() -> None:
        watcher.cancel()

    return stop_watching
