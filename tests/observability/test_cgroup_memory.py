"""The memory of the process's control group, read from files that stand for the kernel's pseudo files."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from app.observability.cgroup_memory import CgroupMemory


@pytest.fixture
def group(tmp_path: Path) -> Path:
    folder = tmp_path / "fs" / "system.slice" / "transduce.service"
    folder.mkdir(parents=True)
    (folder / "memory.current").write_text("1000\n", "ascii")
    (folder / "memory.stat").write_text("anon 700\nfile 300\ninactive_file 200\nactive_file 100\n", "ascii")
    (folder / "memory.max").write_text("4000\n", "ascii")
    (tmp_path / "own").write_text("1:name=systemd:/other\n0::/system.slice/transduce.service\n", "utf-8")
    return folder


@pytest.fixture
def memory(group: Path, tmp_path: Path) -> CgroupMemory:
    return CgroupMemory(tmp_path / "fs", tmp_path / "own")


def test_unused_pages_of_files_do_not_count(memory: CgroupMemory) -> None:
    assert memory.used_bytes() == 800
    assert memory.limit_bytes() == 4000


def test_used_memory_is_never_negative(memory: CgroupMemory, group: Path) -> None:
    """The kernel counts the pages of files a moment after the sum."""
    (group / "memory.current").write_text("100\n", "ascii")
    assert memory.used_bytes() == 0


def test_a_container_sees_its_own_group_at_the_root(group: Path, tmp_path: Path) -> None:
    (tmp_path / "own").write_text("0::/\n", "utf-8")
    assert CgroupMemory(group, tmp_path / "own").used_bytes() == 800


def test_a_group_whose_name_is_not_utf_8_is_found(group: Path, tmp_path: Path) -> None:
    group.rename(os.fsdecode(os.fsencode(group.parent) + b"/caf\xe9"))
    (tmp_path / "own").write_bytes(b"0::/system.slice/caf\xe9\n")
    assert CgroupMemory(tmp_path / "fs", tmp_path / "own").used_bytes() == 800


def test_the_limit_is_infinite_if_its_file_says_max(memory: CgroupMemory, group: Path) -> None:
    (group / "memory.max").write_text("max\n", "ascii")
    assert memory.limit_bytes() == math.inf


def test_memory_and_limit_are_unknown_without_the_files(tmp_path: Path) -> None:
    memory = CgroupMemory(tmp_path / "none", tmp_path / "none")
    assert math.isnan(memory.used_bytes())
    assert math.isnan(memory.limit_bytes())
