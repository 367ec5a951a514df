"""The fixture `kernels` runs a test on standard kernels and on native kernels."""

from __future__ import annotations

import pytest

from app.runtime.kernels import Kernels
from tests.export.tiny import KERNELS


@pytest.fixture(scope="session", params=KERNELS)
def kernels(request: pytest.FixtureRequest) -> Kernels:
    found: Kernels = request.param
    return found
