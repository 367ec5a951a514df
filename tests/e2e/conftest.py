from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.server_process import ServerProcess
from tests.bundles.copies import copy_bundle
from tests.e2e.small_models import MODELS

# `transduce serve` for ServerProcess: in a fork, which starts sooner, and in a new interpreter.
SERVE_BY_FORK = ["transduce", "serve"]
SERVE = [sys.executable, "-W", "error", "-m", *SERVE_BY_FORK]


@pytest.fixture(scope="session")
def tiny_bundle(tiny: Path) -> Path:
    return tiny / "bundle"


@pytest.fixture(scope="module", params=["fp32-standard", "int8-standard", "int8-auto"])
def server(tiny_bundle: Path, request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """Servers with ONNX Runtime's operators in fp32 and in int8, and an int8 server that chooses its operators.

    They have no cache of sentences, so that each request is decoded.
    """
    precision, kernels = request.param.split("-")
    settings: dict[str, object] = {
        "bundle": tiny_bundle,
        "precision": precision,
        "kernels": kernels,
        "num_threads": 1,
        "sentence_cache_bytes": 0,
    }
    with ServerProcess(SERVE_BY_FORK, settings) as process:
        yield process.ready()


@pytest.fixture
def bundles(tiny_bundle: Path, tmp_path: Path) -> Path:
    """A folder with a copy of the tiny bundle for each of MODELS, in a folder m-NAME."""
    for name, pair in MODELS.items():
        copy_bundle(tiny_bundle, tmp_path / f"m-{name}", name=name, pairs=[pair])
    return tmp_path
