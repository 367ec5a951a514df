"""Measures and stops a server together with its child processes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from uuid import uuid4

import psutil

from benchmarks.server_process import Command, Process

# Seconds to wait for a server's children to end, and again after they are killed.
CHILDREN_LIMIT_S = 2.0
# A variable in the environment of a server. The server's children inherit it, so they can be found after its death.
MARK = "BENCHMARKED_SERVER"


@dataclass(frozen=True)
class Memory:
    """Memory of a process and its children in 10^6 bytes. pss_mb: a page shared by n processes counts 1/n in each."""

    rss_mb: float
    pss_mb: float


class ProcessTree(Process):
    """A server process whose figures include its child processes."""

    def __init__(self, command: Command, *, cores: frozenset[int] | None = None) -> None:
        self._mark = uuid4().hex
        super().__init__(replace(command, environment={**command.environment, MARK: self._mark}), cores=cores)

    def memory(self) -> Memory:
        """The current memory. Raises psutil.NoSuchProcess if the server has ended."""
        found = [process.memory_full_info() for process in self._tree()]
        return Memory(sum(each.rss for each in found) / 1e6, sum(each.pss for each in found) / 1e6)

    def cpu_time_s(self) -> float:
        """CPU seconds of the process and its running children, user and system.

        Raises psutil.NoSuchProcess if the server has ended.
        """
        times = [process.cpu_times() for process in self._tree()]
        return float(sum(each.user + each.system for each in times))

    def _end(self) -> None:
        children: set[psutil.Process] = set()
        with suppress(psutil.NoSuchProcess):
            children.update(self._tree()[1:])
        super()._end()
        children.update(self._marked())
        _, alive = psutil.wait_procs(children, CHILDREN_LIMIT_S)
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(alive, CHILDREN_LIMIT_S)

    def _tree(self) -> list[psutil.Process]:
        """The server and its children. Raises psutil.NoSuchProcess if the server has ended."""
        server = psutil.Process(self.pid)
        if server.status() == psutil.STATUS_ZOMBIE:
            raise psutil.ZombieProcess(self.pid)
        return [server, *server.children(recursive=True)]

    def _marked(self) -> list[psutil.Process]:
        """The running processes that have inherited this server's mark."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if process.environ().get(MARK) == self._mark:
                    found.append(process)
        return found
