"""The process ends when the server has ended, whatever its threads do.

Python waits at its end for every thread of an executor, however long that works. Nothing here waits for one.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor


class UnjoinedExecutor(ThreadPoolExecutor):
    """An event loop's default executor whose end waits for no thread."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads that have no work, and leave the others to the end of the process."""
        super().shutdown(wait=False, cancel_futures=True)


def exit_within(seconds: float, exit_code: int) -> None:
    """End the process after so many seconds, if it still runs then, even where its event loop hangs."""

    def end() -> None:
        time.sleep(seconds)
        os._exit(exit_code)

    threading.Thread(target=end, name="end", daemon=True).start()


def exit_without_joining(exit_code: int) -> None:
    """End the process here where it has another thread: Python would wait for it, or it for the interpreter."""
    if threading.active_count() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)
