"""`transduce serve` as a process of its own, and what the system tells of it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
START_LIMIT_S = 60.0
END_LIMIT_S = 10.0
POLL_S = 0.005
PREFIX = "TRANSDUCE_"
# Whatever proxies the environment names: this is the loopback.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class StartError(Exception):
    """The server did not become ready; the message has its last lines."""


@dataclass(frozen=True)
class Served:
    """How the server is started.

    python: of an environment with Transduce. bundle: None is the server's own choice. precision: as the
    setting. cores: those that the process may run on, None for all. keeps_sentences: whether sentences that are known
    or in flight are not decoded again; off, since what is measured is the decoding.
    """

    python: str
    bundle: Path | None
    precision: str = "auto"
    cores: frozenset[int] | None = None
    keeps_sentences: bool = False


class ServerProcess:
    """Started and ready on entry, ended on exit. start_to_ready_s: from the process' start to /readyz's 200."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self.start_to_ready_s = 0.0

    def __enter__(self) -> Self:
        self.port = _free_port()
        command = [self._served.python, "-m", "transduce", "serve", "--host", HOST, "--port", str(self.port)]
        if self._served.bundle is not None:
            command += ["--bundle", str(self._served.bundle.resolve())]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        environment[f"{PREFIX}PRECISION"] = self._served.precision
        if not self._served.keeps_sentences:
            environment |= {f"{PREFIX}SENTENCE_CACHE_BYTES": "0", f"{PREFIX}COALESCE": "false"}
        self._output = tempfile.TemporaryFile()  # closed in __exit__
        own_cores = os.sched_getaffinity(0)
        started_at = time.perf_counter()
        try:
            # A child inherits the cores of the thread that starts it, and counts them to choose its threads.
            os.sched_setaffinity(0, self._served.cores or own_cores)
            self._process = subprocess.Popen(
                command, env=environment, stdout=self._output, stderr=subprocess.STDOUT
            )
        finally:
            os.sched_setaffinity(0, own_cores)
        try:
            self._wait_until_ready(started_at + START_LIMIT_S)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self.start_to_ready_s = time.perf_counter() - started_at
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(END_LIMIT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._output.close()

    def get(self, path: str) -> bytes:
        """The body of a GET. Raises OSError, of which urllib's HTTPError is one."""
        with _OPENER.open(f"http://{HOST}:{self.port}{path}", timeout=10) as answer:
            body: bytes = answer.read()
        return body

    def metric(self, name: str) -> float:
        """A sample of /metrics without labels; 0 where there is none."""
        lines = self.get("/metrics").decode().splitlines()
        return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} ")), 0.0)

    def peak_memory_mb(self) -> float:
        """The most physical memory that the process has had (VmHWM), in 10^6 bytes."""
        status = Path(f"/proc/{self._process.pid}/status").read_text("ascii")
        line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024 / 1e6

    def cpu_time_s(self) -> float:
        """Processor time that the process has used, in user and system mode."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text("ascii").rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _wait_until_ready(self, until: float) -> None:
        while True:
            try:
                self.get("/readyz")
                return
            except OSError as error:
                if isinstance(error, urllib.error.HTTPError):
                    error.close()
            if self._process.poll() is not None or time.perf_counter() > until:
                self._output.seek(0)
                last = self._output.read()[-2000:].decode(errors="replace")
                raise StartError(f"the server did not become ready:\n{last}")
            time.sleep(POLL_S)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        port: int = listener.getsockname()[1]
    return port
