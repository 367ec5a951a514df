"""The number of cores that the process may use, from files that stand for the kernel's pseudo files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.runtime.machine import num_usable_cores


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this process's control group (cgroup), on a machine of 16 cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: range(16), raising=False)
    folder = tmp_path / "fs" / "system.slice" / "transduce.service"
    folder.mkdir(parents=True)
    (tmp_path / "own").write_text("0::/system.slice/transduce.service\n", "utf-8")
    return folder


def num_cores(group: Path) -> int:
    root = group.parent.parent
    return num_usable_cores(root, root.parent / "own")


@pytest.mark.parametrize(
    ("own", "outer", "cores"),  # own, outer: a quota and its period in microseconds, as in cpu.max
    [
        ("200000 100000", "max 100000", 2),
        ("max 100000", "max 100000", 16),
        ("max 100000", "400000 100000", 4),
        ("800000 100000", "400000 100000", 4),
        ("200000 100000", "400000 100000", 2),
        ("50000 100000", "max 100000", 1),
        ("250000 100000", "max 100000", 2),
        ("9900000 100000", "max 100000", 16),
    ],
)
def test_the_smallest_quota_of_the_group_and_its_outer_group_decides(
    group: Path, own: str, outer: str, cores: int
) -> None:
    (group / "cpu.max").write_text(own + "\n", "ascii")
    (group.parent / "cpu.max").write_text(outer + "\n", "ascii")
    assert num_cores(group) == cores


@pytest.mark.parametrize("own_group", ["0::/\n", "0::/../elsewhere\n", "1:cpu:/other\n", ""])
def test_a_container_sees_its_own_group_at_the_root(group: Path, tmp_path: Path, own_group: str) -> None:
    (tmp_path / "own").write_text(own_group, "utf-8")
    (tmp_path / "fs" / "cpu.max").write_text("300000 100000\n", "ascii")
    (group / "cpu.max").write_text("200000 100000\n", "ascii")  # belongs to another group
    assert num_cores(group) == 3


def test_without_the_files_the_affinity_decides(tmp_path: Path, group: Path) -> None:
    assert num_cores(group) == 16
    assert num_usable_cores(tmp_path / "none", tmp_path / "none") == 16
