"""Finds the control group of this process (cgroup v2).

A container, and a service of systemd, have a group of their own. It holds the server and all of its workers.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
OWN_GROUP = Path("/proc/self/cgroup")


def folder_of_group(root: Path = ROOT, own_group: Path = OWN_GROUP) -> Path:
    """The group's folder. Inside a container, or if the group is unknown, this is the root.

    root: where the groups are mounted. own_group: the file that names the group of this process.
    """
    try:
        lines = own_group.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return root
    return root / next((line.removeprefix("0::").strip("/") for line in lines if line.startswith("0::")), "")
