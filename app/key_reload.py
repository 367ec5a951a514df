"""Reads the file of API keys again, after SIGHUP or when it has changed. A bad file changes nothing."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from app.api.http.auth import NamedKeys
from app.errors import SettingsError
from app.file_signature import POLL_S, Signature, signature_of
from app.observability.logging import log_event

logger = logging.getLogger("app.main")


class KeyReload:
    """Replaces the keys of a server. Every method is called on the event loop.

    outcomes: how many reloads are `done`, and how many have `failed`.
    """

    def __init__(
        self,
        read: Callable[[], Sequence[NamedKeys]],
        replace: Callable[[Sequence[NamedKeys]], None],
        *,
        path: Path | None,
    ) -> None:
        """Call it before the keys are first read, so that the watch sees every later change of the file.

        read: returns all keys; raises SettingsError; a thread calls it. path: the file; None without one.
        """
        self._read = read
        self._replace = replace
        self.outcomes = Counter(done=0, failed=0)
        self._path = path
        self._reading = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        # The signature of the file before it was last read.
        self._seen: Signature = () if path is None else signature_of([path])

    def reload(self) -> None:
        """Read the file again, and log the result. Does nothing without a file."""
        if self._path is not None:
            self._spawn(self._reload(self._path))

    def watch(self) -> None:
        """Reload whenever the file has changed and then stays the same for POLL_S."""
        if self._path is not None:
            self._spawn(self._watch(self._path))

    async def close(self) -> None:
        """End the watch and all reloads."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reload(self, path: Path) -> None:
        async with self._reading:  # so that older keys never replace newer ones
            self._seen = await asyncio.to_thread(signature_of, [path])
            try:
                keys = await asyncio.to_thread(self._read)
            except SettingsError as error:
                self.outcomes["failed"] += 1
                log_event(logger, logging.ERROR, "keys_reload_failed", fields={"problem": str(error)})
                return
            self._replace(keys)
        self.outcomes["done"] += 1
        log_event(logger, logging.INFO, "keys_reloaded", fields={"names": len(keys)})

    async def _watch(self, path: Path) -> None:
        before = self._seen
        while True:
            await asyncio.sleep(POLL_S)
            now = await asyncio.to_thread(signature_of, [path])
            if now != self._seen and now == before and now:
                await self._reload(path)
            before = now
