"""Lets tasks take turns at work that keeps the event loop busy for milliseconds."""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

_LOCKS: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


async def take_turn() -> None:
    """Wait for this task's turn, in the order of the calls. At most one turn begins in an iteration of the event loop.

    An iteration runs every task that is ready. Without turns, sixteen large requests that arrive together would block
    all others for the time of sixteen pieces of work. The caller does its work, without an await, after this returns.
    """
    lock = _LOCKS.setdefault(asyncio.get_running_loop(), asyncio.Lock())
    async with lock:
        await asyncio.sleep(0)
