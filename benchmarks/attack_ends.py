"""The attacks that try to keep a server from ending, each on a server of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from benchmarks.attack_cases import SLOW_MARKDOWN, post
from benchmarks.files import send
from benchmarks.machine import ROOT
from benchmarks.server_process import (
    NO_CACHE,
    Process,
    serve_command,
)
from transduce.local_server import environment_without_settings, free_port

NUM_REQUESTS = 1000
END_LIMIT_S = 60.0
SECOND_SIGNAL_S = 1.2  # a signal within one second of the first is ignored
BODY = {"text": "The house is green."}


def unread_log() -> str:
    """Write the log to a pipe that is not read."""
    port = free_port()
    command = serve_command(sys.executable, None, {**NO_CACHE, "log_level": "debug"})
    environment = environment_without_settings()
    process = subprocess.Popen(
        command.arguments(port),
        cwd=ROOT,
        env={**environment, **command.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_until_ready(port)
        num_answered = sum(post(port, BODY) == 200 for _ in range(NUM_REQUESTS))
        process.send_signal(signal.SIGTERM)
        return f"{num_answered:,} of {NUM_REQUESTS:,} requests are answered; {_describe_end(process.wait)}"
    finally:
        process.kill()
        process.wait()


def _wait_until_ready(port: int) -> None:
    until = time.monotonic() + END_LIMIT_S
    while time.monotonic() < until:
        with suppress(OSError):
            if post(port, BODY) == 200:
                return
        time.sleep(0.1)
    raise TimeoutError("the server did not become ready")


def _describe_end(wait: Callable[[float], int]) -> str:
    started_at = time.perf_counter()
    code = wait(END_LIMIT_S)
    return f"ended {time.perf_counter() - started_at:.1f} s after the signal, exit code {code}"


def _end_while_busy(*, is_signalled_twice: bool) -> str:
    """End a server that reads two files that are slow to parse."""
    settings = {"files_enabled": "true", "drain_timeout_s": "5", "drain_delay_s": "0"}
    with Process(serve_command(sys.executable, None, settings)) as server:

        def upload() -> None:
            with suppress(OSError):
                send(server, "md", SLOW_MARKDOWN)

        for _ in range(2):
            threading.Thread(target=upload, daemon=True).start()
        time.sleep(1.5)
        server.send_signal(signal.SIGTERM)
        if is_signalled_twice:
            time.sleep(SECOND_SIGNAL_S)
            server.send_signal(signal.SIGTERM)
        return _describe_end(server.wait)


# The attack, what stops it, and the function that attacks.
ENDS: tuple[tuple[str, str, Callable[[], str]], ...] = (
    ("a log that is not read", "a bounded queue; drops are counted", unread_log),
    (
        "SIGTERM while two files that are slow to parse are read",
        "`DRAIN_TIMEOUT_S` (here 5 s)",
        lambda: _end_while_busy(is_signalled_twice=False),
    ),
    ("a second SIGTERM meanwhile", "3 s", lambda: _end_while_busy(is_signalled_twice=True)),
)
