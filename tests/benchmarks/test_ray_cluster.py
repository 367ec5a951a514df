"""The start and the configuration of a Ray cluster. `ray` is a program of the test, so Ray need not be installed."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

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


def test_a_fixed_number_of_replicas_leaves_no_autoscaling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, script in (("ray", "echo Ray runtime started; exec sleep 600"), ("serve", "exit 0")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n", "ascii")
        (tmp_path / name).chmod(0o700)
    monkeypatch.setattr(ray_cluster, "SCRIPTS", tmp_path)

    def deployed(**fields: Any) -> dict[str, Any]:
        cluster.deploy(**fields)
        config = yaml.safe_load((cluster._folder / "serve.yaml").read_text("utf-8"))
        (deployment,) = config["applications"][0]["deployments"]
        return dict(deployment)

    scaling = {"max_replicas": 3}
    with RayCluster() as cluster:
        fixed = deployed(num_replicas=2, autoscaling_config=scaling)
        scaled = deployed(autoscaling_config=scaling)
    assert fixed["num_replicas"] == 2
    assert "autoscaling_config" not in fixed
    assert scaled["autoscaling_config"].items() > scaling.items()
