"""Runs a server as a separate process and reads its log."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from tests.forked import ForkedProcess

ROOT = Path(__file__).resolve().parents[2]
# Seconds after which a test fails. Only a hang takes longer, even on a busy machine.
HANG_TIMEOUT_S = 120.0
NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
HEADERS = {"content-type": "application/json"}


class ServerProcess:
    """A server process. It starts on entry, on a free port. On exit it is killed if it still runs."""

    def __init__(self, command: Sequence[str], settings: dict[str, object] | None = None) -> None:
        """command: the absolute path of a program, or the name of a module of ours; then the arguments.

        A module runs in a forked process. settings: by their names in `app.settings`.
        """
        self._command = list(command)
        environment = {f"TRANSDUCE_{name.upper()}": str(value) for name, value in (settings or {}).items()}
        self._environment = {**os.environ, "TRANSDUCE_PORT": "0", **environment}
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.log: list[str] = []

    def __enter__(self) -> Self:
        self._process = self._start()
        self._readers = [
            threading.Thread(target=self._read_log, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        self.errors: list[str] = []
        for reader in self._readers:
            reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for(self, event: str) -> dict[str, Any]:
        """Wait for the next log line with this event. Returns the line; skips all lines before it."""
        until = time.monotonic() + HANG_TIMEOUT_S
        while True:
            line = self._events.get(timeout=max(0.0, until - time.monotonic()))
            assert line is not None, f"ended before {event!r}: {self.errors} {self.log[-5:]}"
            if line["event"] == event:
                return line

    def wait_for_request(self, request_id: str) -> dict[str, Any]:
        """Wait for the log line of a request. Returns the line; skips all lines before it."""
        while (line := self.wait_for("request"))["request_id"] != request_id:
            pass
        return line

    def listening(self) -> Self:
        """Wait until it listens."""
        self.port = int(self.wait_for("listening")["port"])
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    def ready(self) -> Self:
        """Wait until it is ready."""
        self.listening()
        self.wait_for("ready")
        return self

    def client(self, **options: Any) -> httpx.Client:
        # The client loads no certificates. To read the certificates of the machine takes longer than most tests take.
        return httpx.Client(
            base_url=self.url, trust_env=False, verify=NO_CERTIFICATES, timeout=HANG_TIMEOUT_S, **options
        )

    def connect(self) -> socket.socket:
        """A TCP connection to the server."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=HANG_TIMEOUT_S)

    def signal(self, number: int = signal.SIGTERM) -> None:
        self._process.send_signal(number)

    def ended(self) -> int:
        """Wait for the end and read all output. Returns the exit code."""
        code = self._process.wait(HANG_TIMEOUT_S)
        for reader in self._readers:
            reader.join()
        return code

    def metric(self, name: str) -> float:
        """The value of a sample of /metrics, or 0 if it is missing. name: the full name with labels."""
        with self.client() as client:
            lines = client.get("/metrics").text.splitlines()
        return next((float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name} ")), 0.0)

    def wait_until(self, name: str, value: float, timeout_s: float = HANG_TIMEOUT_S) -> None:
        """Wait until a metric has this value."""
        until = time.monotonic() + timeout_s
        while (found := self.metric(name)) != value:
            assert time.monotonic() < until, f"{name} is {found}, not {value}"
            time.sleep(0.02)

    def _start(self) -> subprocess.Popen[str] | ForkedProcess:
        if not Path(self._command[0]).is_absolute():
            return ForkedProcess(self._command, cwd=ROOT, env=self._environment)
        return subprocess.Popen(
            self._command,
            cwd=ROOT,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _read_log(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.log.append(line)
            self._events.put(json.loads(line))
        self._events.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self.errors += self._process.stderr
