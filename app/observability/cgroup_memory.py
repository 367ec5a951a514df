"""Memory of the control group of this process and its limit, as Linux counts them (cgroup v2).

Above the limit the kernel kills processes of the group.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from app.observability.control_group import OWN_GROUP, ROOT, folder_of_group


class CgroupMemory:
    """Reads the memory of one group. The files are pseudo files, which take microseconds to read."""

    def __init__(self, root: Path = ROOT, own_group: Path = OWN_GROUP) -> None:
        """root, own_group: as in `folder_of_group`."""
        self._folder = folder_of_group(root, own_group)

    def gauges(self) -> dict[str, tuple[str, Callable[[], float]]]:
        """The gauges of the used memory and of the limit, in the form that `Readings.track_gauges` takes."""
        return {
            "memory_bytes": (
                "Memory of the server and its processes, as their control group counts it; NaN if unknown",
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


def _inactive_file_bytes(statistics: str) -> int:
    fields = dict(line.split() for line in statistics.splitlines())
    return int(fields.get("inactive_file", 0))
