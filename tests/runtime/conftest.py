"""Fixtures of several tests of runners."""

from __future__ import annotations

from typing import Any

import pytest

from app.graphs import KernelChoice
from tests.export.tiny import TARGET_KERNELS
from tests.runtime.host_kernels import compile_for_host


@pytest.fixture(scope="session", params=TARGET_KERNELS)
def kernels(request: pytest.FixtureRequest) -> KernelChoice:
    """Standard kernels, and the native kernels of each target."""
    found: KernelChoice = request.param
    return found


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The project's CUDA kernels for this CPU."""
    return compile_for_host(tmp_path_factory.mktemp("kernels"))
