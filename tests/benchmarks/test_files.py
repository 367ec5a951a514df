"""The benchmark of files: a probe that fails counts with its time, and the next one has a new connection."""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from benchmarks.files import Sampler
from benchmarks.server_process import HOST

TIMEOUT_S = 20.0


def test_a_probe_that_fails_counts_with_its_time() -> None:
    has_answered = threading.Event()

    def serve() -> None:
        """Send no status to the first connection after 0.2 s, and answer all requests of the second."""
        with listener.accept()[0] as first:
            first.recv(4096)
            time.sleep(0.2)
            first.sendall(b"no status\r\n")
        with suppress(OSError), listener.accept()[0] as second:
            while second.recv(4096):
                second.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                has_answered.set()

    with socket.create_server((HOST, 0)) as listener:
        server: Any = SimpleNamespace(pid=os.getpid(), port=listener.getsockname()[1])
        thread = threading.Thread(target=serve)
        thread.start()
        with Sampler(server) as watch:
            assert has_answered.wait(TIMEOUT_S)
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert watch.livez_ms[0] > 190
