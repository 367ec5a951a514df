"""Measures and stops a server together with its child processes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import psutil

from benchmarks.server_process import Process

# Seconds to wait for a server's children to end, and again after they are killed.
CHILDREN_LIMIT_S = 2.0


@dataclass(frozen=True)
class Memory:
    """Memory of a process and its children in 10^6 bytes. pss_mb: a page shared by n processes counts 1/n in each."""

    rss_mb: float
    pss_mb: float


class ProcessTree(Process):
    """A server process whose figures include its child processes."""

    def memory(self) -> Memory:
        """The current memory."""
        found = [process.memory_full_info() for process in self._tree()]
        return Memory(sum(each.rss for each in found) / 1e6, sum(each.pss for each in found) / 1e6)

    def cpu_time_s(self) -> float:
        """CPU seconds of the process and its running children, user and system."""
        times = [process.cpu_times() for process in self._tree()]
        return float(sum(each.user + each.system for each in times))

    def _end(self) -> None:
        children = self._tree()[1:]
        super()._end()
        _, alive = psutil.wait_procs(children, CHILDREN_LIMIT_S)
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(alive, CHILDREN_LIMIT_S)

    def _tree(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            server = psutil.Process(self.pid)
            return [server, *server.children(recursive=True)]
        return []
