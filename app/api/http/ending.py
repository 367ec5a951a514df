"""Ends the process when the server has ended or takes too long to end, even if threads still run.

At exit Python joins every thread of an executor, however long its work takes. The functions here join no thread.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor


class UnjoinedExecutor(ThreadPoolExecutor):
    """An event loop's default executor whose shutdown joins no thread."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Cancel queued work and end the idle threads. A busy thread ends after its current work.

        wait and cancel_futures have no effect: they count as False and True.
        """
        super().shutdown(wait=False, cancel_futures=True)


def exit_within(seconds: float, exit_code: int) -> None:
    """End the process if it still runs after this many seconds, even if its event loop hangs."""

    def end() -> None:
        time.sleep(seconds)
        os._exit(exit_code)

    threading.Thread(target=end, name="end", daemon=True).start()


def exit_without_joining(exit_code: int) -> None:
    """End the process at once if it has another thread, which Python might join at exit. Without one, return."""
    if threading.active_count() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)
