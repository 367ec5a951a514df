"""The fixture `kernels` runs a test on standard kernels and on the native kernels of each target."""

from __future__ import annotations

import pytest

from app.graphs import KernelChoice
from tests.export.tiny import TARGET_KERNELS


@pytest.fixture(scope="session", params=TARGET_KERNELS)
def kernels(request: pytest.FixtureRequest) -> KernelChoice:
    found: KernelChoice = request.param
    return found
