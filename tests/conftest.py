"""Settings for all tests: one thread per library, no settings from the environment, GPU tests only with a GPU."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.xdist_workers import XdistWorker

# Set before numpy, torch or onnxruntime is imported, because tests run in parallel.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

PREFIX = "TRANSDUCE_"


def has_gpu() -> bool:
    """Whether this machine has an NVIDIA driver, by the Makefile's rule."""
    return Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # pytest-xdist's worker
        config.pluginmanager.register(XdistWorker(Path(config.cache.mkdir("turns"))))


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    if has_gpu():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no NVIDIA driver"))


@pytest.fixture(autouse=True)
def no_settings_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(variable)
