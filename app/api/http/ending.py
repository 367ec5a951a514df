"""Ends the process once the server has ended, even if threads still run.

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
        """End the idle threads. The others run until the process ends. wait and cancel_futures have no effect."""
        super().shutdown(wait=False, cancel_futures=True)


def exit_within(seconds: float, exit_code: int) -> None:
    """End the process if it still runs after this many seconds, even if its event loop hangs."""

    def end() -> None:
        time.sleep(seconds)
        os._exit(exit_code)

    threading.Thread(target=end, name="end", daemon=True).start()


def exit_without_joining(exit_code: int) -> None:
    """End the process at once if it has another thread. Python would join that thread at exit."""
    if threading.active_count() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)
