"""Memory of the control group of this process and its limit, as Linux counts them (cgroup v2).

A container, and a service of systemd, have a group of their own. It holds the server and all of its workers. Above the
limit the kernel kills processes of the group.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
OWN_GROUP = Path("/proc/self/cgroup")


class CgroupMemory:
    """Reads the memory of one group. The files are pseudo files, which take microseconds to read."""

    def __init__(self, root: Path = ROOT, own_group: Path = OWN_GROUP) -> None:
        """root: where the groups are mounted. own_group: the file that names the group of this process."""
        self._folder = root / _group_of(own_group)

    def gauges(self) -> dict[str, tuple[str, Callable[[], float]]]:
        """The gauges of both figures, as in `Readings.track_gauges`."""
        return {
            "memory_bytes": (
                "Memory of the server and its processes by their control group; NaN if unknown",
                self.used_bytes,
            ),
            "memory_limit_bytes": (
                "The control group's limit; +Inf without one, NaN if unknown",
                self.limit_bytes,
            ),
        }

    def used_bytes(self) -> float:
        """Bytes that the kernel cannot free by dropping unused pages of files: the working set. NaN if unknown."""
        try:
            current = int((self._folder / "memory.current").read_text("ascii"))
            inactive = _inactive_file_bytes((self._folder / "memory.stat").read_text("ascii"))
        except (OSError, ValueError):
            return math.nan
        return max(0, current - inactive)

    def limit_bytes(self) -> float:
        """The group's limit in bytes: infinite without one, NaN if unknown. Limits of outer groups are not read."""
        try:
            limit = (self._folder / "memory.max").read_text("ascii").strip()
            return math.inf if limit == "max" else int(limit)
        except (OSError, ValueError):
            return math.nan


def _group_of(own_group: Path) -> str:
    """The path of the process's group below the root. "" for the root, inside a container, and if it is unknown."""
    try:
        lines = own_group.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return ""
    return next((line.removeprefix("0::").strip("/") for line in lines if line.startswith("0::")), "")


def _inactive_file_bytes(statistics: str) -> int:
    fields = dict(line.split() for line in statistics.splitlines())
    return int(fields.get("inactive_file", 0))
