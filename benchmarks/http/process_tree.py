"""A server with all its children: weighed and ended together, since some of the peers start processes of their own."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import psutil

from benchmarks.server_process import Process

# For what a server that has ended leaves behind to end by itself, and to be gone once it was killed.
CHILDREN_LIMIT_S = 2.0


@dataclass(frozen=True)
class Memory:
    """Of a process and its children, in 10^6 bytes. pss_mb: what is shared counts in parts, by who shares it."""

    rss_mb: float
    pss_mb: float


class ProcessTree(Process):
    """As `Process`, with its children."""

    def memory(self) -> Memory:
        """Now."""
        found = [process.memory_full_info() for process in self._tree()]
        return Memory(sum(each.rss for each in found) / 1e6, sum(each.pss for each in found) / 1e6)

    def cpu_time_s(self) -> float:
        """Processor time that the process and its children have used, in user and system mode."""
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
            own = psutil.Process(self.pid)
            return [own, *own.children(recursive=True)]
        return []
