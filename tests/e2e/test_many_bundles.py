"""`transduce serve --bundles FOLDER` with two real bundles, in worker processes, over sockets."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.api.server_process import ROOT, ServerProcess
from tests.bundles.copies import copy_bundle
from tests.e2e.conftest import SERVE_BY_FORK
from tests.forked import run_transduce

BUNDLED = ROOT / "bundles" / "en-de"
TEXT = "The station is near the old bridge."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled model, and a copy of it with another name."""
    folder = tmp_path_factory.mktemp("bundles")
    shutil.copytree(BUNDLED, folder / "first")
    copy_bundle(BUNDLED, folder / "second", name="copy", version="7")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServerProcess]:
    settings: dict[str, object] = {"num_threads": 2, "num_lanes": 2, "device": "cpu", "precision": "int8"}
    with ServerProcess([*SERVE_BY_FORK, "--bundles", str(folder)], settings) as process:
        yield process.ready()


def test_both_models_of_the_same_weights_give_the_same_translation(server: ServerProcess) -> None:
    body = {"text": TEXT, "source": "en", "target": "de"}
    with server.client() as client:
        names = [model["name"] for model in client.get("/v1/models").json()["models"]]
        first = client.post("/v1/translate", json=body).json()
        second = client.post("/v1/translate", json={**body, "model": "copy"}).json()
    assert names == [first["model"]["name"], "copy"]
    assert second["model"] == {"name": "copy", "version": "7"}
    assert first["translations"] == second["translations"]


def test_the_end_leaves_no_process(folder: Path) -> None:
    settings: dict[str, object] = {"num_threads": 2, "num_lanes": 2, "device": "cpu"}
    with ServerProcess([*SERVE_BY_FORK, "--bundles", str(folder)], settings) as process:
        workers = psutil.Process(process.ready().pid).children(recursive=True)
        assert len(workers) >= 4, "two workers for each model"
        process.signal()
        assert process.ended() == 0
        _, alive = psutil.wait_procs(workers, timeout=30)
        assert not alive


def test_two_models_of_one_name_are_refused(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder / "first", tmp_path / "copy")
    done = run_transduce("serve", "--bundles", folder, "--bundles", copy, "--port", 0)
    assert done.returncode == 78
    assert "rename one of them" in done.stderr
