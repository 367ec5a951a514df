"""Settings for all tests: one thread per library, no settings from the environment, GPU tests only with a GPU.

Hypothesis makes the same inputs in every run, except in `make fuzz`. So only a change of the code makes a test fail.

Each test is marked with its kind (tests/kinds.py), and a run ends with the count of each kind.
"""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Iterable
from pathlib import Path

import pytest
from hypothesis import settings

from tests.fuzz.examples import SECONDS
from tests.kinds import OUTCOMES, count_line, set_kinds
from tests.xdist_workers import XdistWorker

# Set before numpy, torch or onnxruntime is imported, because tests run in parallel.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

PREFIX = "TRANSDUCE_"
settings.register_profile("repeatable", derandomize=True)
# Without this profile, Hypothesis would repeat its inputs wherever it finds a CI system.
settings.register_profile("random", derandomize=False)
settings.load_profile("repeatable" if SECONDS is None else "random")


def has_gpu() -> bool:
    """Whether the NVIDIA driver is loaded: its version file exists, or `nvidia-smi` succeeds, as in the Makefile."""
    if Path("/proc/driver/nvidia/version").exists():
        return True
    program = shutil.which("nvidia-smi")
    if program is None:
        return False
    return subprocess.run([program, "-L"], capture_output=True, check=False).returncode == 0


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # pytest-xdist's worker
        config.pluginmanager.register(XdistWorker())


@pytest.hookimpl(tryfirst=True)  # before `-m` selects by the markers
def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    set_kinds(items, Path(__file__).parent)
    if has_gpu():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no NVIDIA driver"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude the tests' modules from garbage collections. With them, each collection takes half a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_runtest_teardown() -> None:
    """Set PyTorch back to one thread, if a test set more. PyTorch waits in busy loops for threads without a core."""
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    kinds: dict[str, tuple[str, str]] = {}  # by test, because a test whose teardown fails has two reports
    for outcome in OUTCOMES:
        for report in terminalreporter.getreports(outcome):
            if isinstance(report, pytest.TestReport):  # not the CollectReport of a file that fails
                kinds[report.nodeid] = (str(dict(report.user_properties)["kind"]), outcome)
    if kinds:
        terminalreporter.write_line(count_line(kinds.values()))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a valid `bundle` and its `checkpoint`, which no test may change."""
    from tests.export.tiny import write_tiny_bundle  # only here: it imports torch

    folder = tmp_path_factory.mktemp("tiny")
    write_tiny_bundle(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_ssru(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `tiny`, but the model has a decoder of SSRUs, and the bundle has no fp16 variant."""
    from tests.export.tiny import MAX_LENGTH, random_model, write_tiny_bundle

    folder = tmp_path_factory.mktemp("tiny-ssru")
    write_tiny_bundle(folder, random_model(max_length=MAX_LENGTH, decoder="ssru"))
    return folder


@pytest.fixture(autouse=True)
def no_settings_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(variable)
