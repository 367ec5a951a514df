from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.server_process import ServerProcess

SERVE = [sys.executable, "-W", "error", "-m", "transduce", "serve"]


@pytest.fixture(scope="session")
def tiny_bundle(tiny: Path) -> Path:
    return tiny / "bundle"


@pytest.fixture(scope="module", params=["fp32-standard", "int8-standard", "int8-auto"])
def server(tiny_bundle: Path, request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """A server with ONNX Runtime's operators, and a server that chooses its operators."""
    precision, kernels = request.param.split("-")
    settings: dict[str, object] = {
        "bundle": tiny_bundle,
        "precision": precision,
        "kernels": kernels,
        "num_threads": 1,
    }
    with ServerProcess(SERVE, settings) as process:
        yield process.ready()
