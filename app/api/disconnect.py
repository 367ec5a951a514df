"""Work that ends when nobody waits for it any more."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

from starlette.requests import Request

from app.errors import RequestCancelled

T = TypeVar("T")


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The work's result. Where the caller leaves first, cancels the work and raises RequestCancelled.

    The work runs in the request's own task. The request's body must have been read: what comes after it is only the
    news that the caller has left.
    """
    task = cast("asyncio.Task[object]", asyncio.current_task())  # a coroutine runs in one
    has_left = False

    async def watch() -> None:
        nonlocal has_left
        while (await request.receive())["type"] != "http.disconnect":
            pass
        has_left = True
        task.cancel()

    watcher = asyncio.ensure_future(watch())
    try:
        return await work
    except asyncio.CancelledError as error:
        # Somebody else may have cancelled the request as well: then that is what it is.
        if has_left and task.uncancel() == 0:
            raise RequestCancelled("the caller left before the answer") from error
        raise
    finally:
        watcher.cancel()
