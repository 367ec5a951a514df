"""A server as a process of its own: started on chosen cores, awaited, weighed, ended with all its children."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import psutil

from benchmarks.machine import ROOT

HOST = "127.0.0.1"
START_LIMIT_S = 120.0
END_LIMIT_S = 10.0
POLL_S = 0.005
PREFIX = "TRANSDUCE_"
# Those that this process has before it pins itself.
ALL_CORES = frozenset(os.sched_getaffinity(0))
# Whatever proxies the environment names: this is the loopback.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class StartError(Exception):
    """A server that did not become ready; the message has its last lines."""


@dataclass(frozen=True)
class Command:
    """How a server is started: arguments by port, what its environment has beside ours, and where it says ready."""

    arguments: Callable[[int], list[str]]
    environment: Mapping[str, str] = field(default_factory=dict)
    ready_path: str = "/readyz"


@dataclass(frozen=True)
class Memory:
    """Of a process and its children, in 10^6 bytes. pss_mb: what is shared counts in parts, by who shares it."""

    rss_mb: float
    pss_mb: float


class ServerProcess:
    """Started and ready on entry, ended on exit. ready_s: from the process' start to a 200 on its ready path.

    cores: those that it may run on, None for all that this process has.
    """

    def __init__(self, command: Command, *, cores: frozenset[int] | None) -> None:
        self._command = command
        self._cores = cores
        self.ready_s = 0.0
        self.port = 0

    def __enter__(self) -> Self:
        self.port = free_port()
        # Our own settings, if any, are not the measured server's.
        environment = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        self._output = tempfile.TemporaryFile()  # closed in __exit__
        own_cores = os.sched_getaffinity(0)
        started_at = time.perf_counter()
        try:
            # A child inherits the cores of the thread that starts it, and counts them to choose its threads.
            os.sched_setaffinity(0, self._cores or ALL_CORES)
            self._process = psutil.Popen(
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
        tree = self._tree()
        with suppress(psutil.NoSuchProcess):
            self._process.terminate()
        _, alive = psutil.wait_procs(tree, END_LIMIT_S)
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        self._output.close()

    @property
    def url(self) -> str:
        """Its root."""
        return f"http://{HOST}:{self.port}"

    def get(self, path: str) -> bytes:
        """The body of a GET. Raises OSError, of which urllib's HTTPError is one."""
        with _OPENER.open(self.url + path, timeout=10) as answer:
            body: bytes = answer.read()
        return body

    def memory(self) -> Memory:
        """Now."""
        found = [process.memory_full_info() for process in self._tree()]
        return Memory(sum(each.rss for each in found) / 1e6, sum(each.pss for each in found) / 1e6)

    def cpu_time_s(self) -> float:
        """Processor time that the process and its children have used, in user and system mode."""
        times = [process.cpu_times() for process in self._tree()]
        return float(sum(each.user + each.system for each in times))

    def _tree(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            return [self._process, *self._process.children(recursive=True)]
        return []

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


def free_port() -> int:
    """A TCP port of the loopback that nobody listens on."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        port: int = listener.getsockname()[1]
    return port
