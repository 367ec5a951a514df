"""A Ray cluster that does not start. `ray` is a program of the test, so Ray need not be installed."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from benchmarks import ray_cluster
from benchmarks.ray_cluster import RayCluster


def test_a_start_that_fails_says_why_and_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, folder = tmp_path / "ray", tmp_path / "cluster"
    program.write_text("#!/bin/sh\necho no memory; exit 1\n", "ascii")
    program.chmod(0o700)
    folder.mkdir()
    monkeypatch.setattr(ray_cluster, "SCRIPTS", tmp_path)
    monkeypatch.setattr(tempfile, "mkdtemp", lambda **_: str(folder))
    with pytest.raises(AssertionError, match="no memory"), RayCluster() as cluster:
        cluster.deploy()
    assert not folder.exists()
