"""Starts a server process on chosen cores, waits until it is ready, queries it and stops it.

Imports only the standard library, so that it runs in an environment with only the server's dependencies.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.machine import ROOT
from transduce.local_server import PREFIX, environment_without_settings, free_port

HOST = "127.0.0.1"
START_LIMIT_S = 120.0
END_LIMIT_S = 10.0
POLL_S = 0.005
# The cores of this process before it pins itself.
ALL_CORES = frozenset(os.sched_getaffinity(0))
# Settings without the sentence cache and without coalescing, so that the server decodes every sentence.
NO_CACHE = {"sentence_cache_bytes": "0", "coalesce": "false"}
# Ignores the proxy settings of the environment, because requests go to the loopback.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class StartError(Exception):
    """A server did not become ready. The message has its last log lines."""


@dataclass(frozen=True)
class Command:
    """How to start a server. The command runs in the repository's root.

    arguments: returns the command line for a port. environment: variables that are added. ready_path: a GET of this
    path answers 200 as soon as the server is ready.
    """

    arguments: Callable[[int], list[str]]
    environment: Mapping[str, str] = field(default_factory=dict)
    ready_path: str = "/readyz"


def compile_sources(python: str) -> None:
    """Compile Transduce's sources to bytecode, as pip compiles a compared engine's library when it installs it."""
    subprocess.run([python, "-m", "compileall", "-q", "app", "transduce"], cwd=ROOT, check=True)


def serve_command(python: str, bundle: Path | None, settings: Mapping[str, str]) -> Command:
    """The command of `transduce serve`.

    python: the interpreter of an environment with Transduce. bundle: None for the default bundle. settings: values by
    their names in `app.settings`.
    """

    def arguments(port: int) -> list[str]:
        command = [python, "-m", "transduce", "serve", "--host", HOST, "--port", str(port)]
        return command if bundle is None else [*command, "--bundle", str(bundle.resolve())]

    return Command(arguments, {PREFIX + name.upper(): value for name, value in settings.items()})


class Process:
    """A server process. `with` starts it, waits until it is ready, and stops it at the end.

    ready_s: seconds from the start until the ready path answers 200. cores: the cores that the server may use; None
    for ALL_CORES.
    """

    def __init__(self, command: Command, *, cores: frozenset[int] | None = None) -> None:
        self._command = command
        self._cores = cores
        self.ready_s = 0.0
        self.port = 0

    def __enter__(self) -> Self:
        self.port = free_port()
        environment = environment_without_settings()
        self._output = tempfile.TemporaryFile()  # closed in __exit__
        own_cores = os.sched_getaffinity(0)
        started_at = time.perf_counter()
        try:
            # The server inherits the cores of the thread that starts it. The server starts one thread per core.
            os.sched_setaffinity(0, self._cores or ALL_CORES)
            self._process = subprocess.Popen(
                self._command.arguments(self.port),
                cwd=ROOT,
                env={**environment, **self._command.environment},
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
            )
        finally:
            os.sched_setaffinity(0, own_cores)
        try:
            self._wait_until_ready(started_at + START_LIMIT_S)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self.ready_s = time.perf_counter() - started_at
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        self._output.close()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def url(self) -> str:
        """The server's root URL."""
        return f"http://{HOST}:{self.port}"

    def get(self, path: str) -> bytes:
        """GET a path; returns the body. Raises OSError, which includes urllib's HTTPError."""
        with _OPENER.open(self.url + path, timeout=10) as answer:
            body: bytes = answer.read()
        return body

    def send_signal(self, number: int) -> None:
        """Send a signal to the process."""
        self._process.send_signal(number)

    def wait(self, timeout_s: float) -> int:
        """Wait until the process ends, and return its exit code. Raises subprocess.TimeoutExpired."""
        return self._process.wait(timeout_s)

    def cpu_time_s(self) -> float:
        """CPU seconds of the process without its children, user and system."""
        fields = Path(f"/proc/{self.pid}/stat").read_text("ascii").rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _end(self) -> None:
        """Terminate the process, and kill it if it does not end."""
        if self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait_until_ready(self, until: float) -> None:
        while True:
            try:
                self.get(self._command.ready_path)
                return
            except OSError as error:
                if isinstance(error, urllib.error.HTTPError):
                    error.close()
            if self._process.poll() is not None or time.perf_counter() > until:
                self._output.seek(0)
                last = self._output.read()[-2000:].decode(errors="replace")
                raise StartError(f"the server did not become ready:\n{last}")
            time.sleep(POLL_S)


@dataclass(frozen=True)
class ServeOptions:
    """Options of a `transduce serve` process.

    python, bundle: as in `serve_command`. precision: as in the setting. cores: as in `Process`. has_cache: whether
    the server has its sentence cache and coalesces equal sentences. settings: further settings, as in `serve_command`.
    """

    python: str
    bundle: Path | None
    precision: str = "auto"
    cores: frozenset[int] | None = None
    has_cache: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)


class ServerProcess(Process):
    """A `transduce serve` process. Reads its metrics and its memory."""

    def __init__(self, served: ServeOptions) -> None:
        cache = {} if served.has_cache else NO_CACHE
        settings = {"precision": served.precision, **cache, **served.settings}
        super().__init__(serve_command(served.python, served.bundle, settings), cores=served.cores)

    def metric(self, name: str) -> float:
        """The value of one sample in /metrics; 0 if it is missing. name: of the metric, with the sample's labels."""
        lines = self.get("/metrics").decode().splitlines()
        return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} ")), 0.0)

    def peak_memory_mb(self) -> float:
        """The peak physical memory of the process without its children (VmHWM), in 10^6 bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text("ascii")
        line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024 / 1e6
