"""Measures from outside how long a server's event loop computes without a pause, also on a busy machine. Linux only."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from pathlib import Path

PROBE = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n"
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class LoopProbe:
    """Requests /livez all the time, and reads the CPU time of the server's first thread after each answer.

    Between two answers, the event loop computes for at most the difference of the two times. How long it waits for a
    core does not count.
    """

    def __init__(self, pid: int, port: int) -> None:
        self._stat = Path(f"/proc/{pid}/task/{pid}/stat")
        self._connection = socket.create_connection(("127.0.0.1", port))
        self._ends, self._answered = threading.Event(), threading.Event()
        self._max_cpu_s, self._recording = 0.0, threading.Lock()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> LoopProbe:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        self._connection.close()

    def take_max_cpu_s(self) -> float:
        """The maximum CPU time between two answers since the last call, in seconds, in steps of 10 ms.

        Waits for one more answer, and begins a new maximum. Raises ConnectionError if the server has stopped answering.
        """
        self._answered.clear()
        while not self._answered.wait(0.1):
            if not self._thread.is_alive():
                raise ConnectionError("the server does not answer the probe")
        with self._recording:
            found, self._max_cpu_s = self._max_cpu_s, 0.0
        return found

    def _cpu_s(self) -> float:
        user, system = self._stat.read_text("ascii").rpartition(") ")[2].split()[11:13]
        return (int(user) + int(system)) * TICK_S

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # the server has ended
            before = self._cpu_s()
            while not self._ends.wait(0.002):
                self._connection.sendall(PROBE)
                while not (answer := self._connection.recv(4096)).endswith(b"}"):
                    if not answer:
                        return
                now = self._cpu_s()
                with self._recording:
                    self._max_cpu_s = max(self._max_cpu_s, now - before)
                before = now
                self._answered.set()
