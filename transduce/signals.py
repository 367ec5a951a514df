"""Signals that end a command."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Make SIGTERM end the block as Ctrl-C does, so that the block undoes what it has changed outside this process."""

    def handle(_number: int, _frame: object) -> NoReturn:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
