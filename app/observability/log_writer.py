"""Writes log lines from a thread, so that a slow reader of stdout delays nothing.

Lines wait in a bounded queue. Lines that do not fit or cannot be written whole are dropped and counted. An extra
line reports their number. It stands before the next line that is written, or at the end.

The server's processes write to the same pipe. The kernel mixes the bytes of two writes only if one of them is above
PIPE_BUF. So each write has whole lines that have at most PIPE_BUF bytes together. A single line of more than PIPE_BUF
bytes is written alone, and may mix with others.
"""

from __future__ import annotations

import itertools
import os
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Callable

# The maximum bytes of waiting lines, some thousands of lines. If smaller, lines of a burst are dropped although the
# reader keeps up. If larger, waiting lines take more memory.
MAX_WAITING_BYTES = 2_000_000
# Seconds between writes. If smaller, the thread wakes up more often, at most once a line. If larger, lines are delayed.
BATCH_S = 0.02
# The maximum seconds to write the remaining lines at exit.
CLOSE_TIMEOUT_S = 1.0


class LogWriter:
    """A queue of lines and the thread that writes them. Any thread may call `put`, which never waits for the reader.

    num_dropped: lines that were dropped.
    """

    def __init__(self, descriptor: int, *, format_dropped: Callable[[int], str]) -> None:
        """descriptor: file to write to. format_dropped: makes the line that reports a number of dropped lines."""
        self._descriptor = descriptor
        self._format_dropped = format_dropped
        self._lock = threading.Lock()  # held only for a few operations on the queue
        self._waiting: deque[bytes] = deque()
        self._num_bytes = 0  # bytes of waiting lines and of those being written
        self._has_work = threading.Event()
        self._is_closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._num_reported = 0
        self._is_cut = False  # whether the last line of the descriptor was written in part
        self.num_dropped = 0

    def start(self) -> None:
        """Start the thread. Lines wait until then, because a process that forks must not have threads yet."""
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        # The new thread inherits the blocked signals. If it did not block SIGTERM, an early SIGTERM would end the
        # process, although the main thread blocks SIGTERM until the event loop can handle it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def put(self, line: str) -> None:
        """Queue a line, or drop it if the queue is full."""
        data = line.encode("utf-8", "backslashreplace") + b"\n"
        with self._lock:
            if self._num_bytes + len(data) > MAX_WAITING_BYTES:
                self.num_dropped += 1
                return
            self._num_bytes += len(data)
            self._waiting.append(data)
        if not self._has_work.is_set():
            self._has_work.set()

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Write the waiting lines and the number of dropped ones, for at most `timeout_s`, and end the thread.

        Lines that are put later are not written. But if `timeout_s` is too short, the thread continues until no line
        waits, and also writes the lines that are put meanwhile.
        """
        self._is_closing.set()
        self._has_work.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def flush(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Wait until the waiting lines are written, for at most `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while self._thread is not None and self._num_bytes > 0 and time.monotonic() < deadline:
            time.sleep(BATCH_S)

    def _run(self) -> None:
        while True:
            self._has_work.wait()
            is_closing = self._is_closing.wait(BATCH_S)
            self._has_work.clear()
            with self._lock:
                batch, self._waiting = self._waiting, deque()
            self._write(batch)  # an empty batch reports dropped lines only
            if is_closing and not batch:
                return
            if self._is_closing.is_set():
                self._has_work.set()  # run once more for lines that arrived meanwhile

    def _write(self, batch: deque[bytes]) -> None:
        head = b"\n" if self._is_cut else b""
        num_dropped = self.num_dropped
        if num_dropped > self._num_reported:
            head += self._format_dropped(num_dropped - self._num_reported).encode() + b"\n"
        data = head + b"".join(batch)
        num_written = self._write_all(data)
        if num_written > 0:
            self._is_cut = not data[:num_written].endswith(b"\n")
        if num_written >= len(head):
            self._num_reported = num_dropped
        num_failed = sum(len(head) + end > num_written for end in itertools.accumulate(map(len, batch)))
        with self._lock:
            self.num_dropped += num_failed
            self._num_bytes -= len(data) - len(head)

    def _write_all(self, data: bytes) -> int:
        """Write whole lines, and wait while the descriptor accepts none.

        Returns how many bytes are written: fewer than all if the reader has closed the pipe, or the disk is full.
        """
        num_written = 0
        while num_written < len(data):
            end = data.rfind(b"\n", num_written, num_written + select.PIPE_BUF) + 1
            end = end or data.index(b"\n", num_written) + 1  # a line of more than PIPE_BUF bytes
            try:
                num_written += os.write(self._descriptor, memoryview(data)[num_written:end])
            except BlockingIOError:
                poll = select.poll()
                poll.register(self._descriptor, select.POLLOUT)
                poll.poll()
            except OSError:
                break
        return num_written
