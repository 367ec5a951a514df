"""The kinds of tests: the kind of a test, what `-m` selects, the count at the end of a run, and when GPU tests run."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.conftest import has_gpu
from tests.house_rules.project import ROOT
from tests.kinds import FOLDERS, KINDS, REST, count_line, kind_of

CONFTEST = """
    from tests.conftest import pytest_collection_modifyitems, pytest_terminal_summary

    def pytest_configure(config):
        for name in ("gpu", "gpu_stub", "browser", "load", "training", "server", "native", "house_rules"):
            config.addinivalue_line("markers", name)
"""
TESTS = """
    import pytest

    def test_passes():
        pass

    def test_fails():
        assert False

    @pytest.mark.training
    def test_trains():
        pass

    @pytest.mark.training
    def test_skips():
        pytest.skip("no reason")

    @pytest.fixture
    def broken():
        raise ValueError

    @pytest.fixture
    def bad_end():
        yield
        raise ValueError

    def test_passes_and_ends_badly(bad_end):
        pass

    @pytest.mark.server
    def test_has_no_server(broken):
        pass
"""


@pytest.mark.parametrize(
    ("path", "markers", "kind"),
    [
        ("web/test_a.py", [], "browser"),
        ("runtime/native/test_a.py", ["parametrize"], "native"),
        ("runtime/test_a.py", [], REST),
        ("runtime/test_a.py", ["gpu"], "gpu"),
        ("api/test_a.py", ["slow", "load"], "load"),
        ("engine/test_a.py", ["server", "load"], "load"),
    ],
)
def test_a_marker_decides_before_the_folder(path: str, markers: list[str], kind: str) -> None:
    assert kind_of(Path(path), markers) == kind


def test_each_folder_is_there_and_has_a_known_kind() -> None:
    for folder, kind in FOLDERS.items():
        assert list((ROOT / "tests" / folder).glob("test_*.py")), folder
        assert kind in KINDS


def test_the_line_counts_each_kind() -> None:
    reports = [
        ("gpu", "skipped"),
        ("gpu", "skipped"),
        ("native", "passed"),
        ("native", "failed"),
        (REST, "error"),
    ]
    assert count_line(reports) == (
        "tests that ran: 0 gpu (2 skipped), 0 gpu_stub, 0 browser, 0 ray, 0 load, 0 training, 0 server, 2 native, "
        "0 house_rules, 1 other"
    )


def run_pytest(folder: Path, *options: str) -> str:
    (folder / "conftest.py").write_text(textwrap.dedent(CONFTEST))
    (folder / "test_some.py").write_text(textwrap.dedent(TESTS))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-p",
            "xdist",
            "--import-mode=importlib",
            *options,
            str(folder),
        ],
        cwd=folder,
        # Without this, pytest would import the other installed plugins.
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.stdout


@pytest.mark.server
@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_run_ends_with_the_count(tmp_path: Path, num_workers: int) -> None:
    """With a worker, the tests run in another process than the one that counts them."""
    lines = run_pytest(tmp_path, "-n", str(num_workers)).splitlines()
    assert (
        "tests that ran: 0 gpu, 0 gpu_stub, 0 browser, 0 ray, 0 load, 1 training (1 skipped), 1 server, 0 native, "
        "0 house_rules, 3 other"
    ) in lines
    assert "3 passed" in lines[-1], "pytest's summary stays last"


@pytest.mark.server
def test_kinds_select_tests(tmp_path: Path) -> None:
    assert "1 passed, 1 skipped, 4 deselected" in run_pytest(tmp_path, "-m", "training")


@pytest.mark.skipif(Path("/proc/driver/nvidia/version").exists(), reason="the NVIDIA driver is loaded")
@pytest.mark.parametrize("exit_code", [0, 9])
def test_without_a_loaded_driver_nvidia_smi_must_succeed(
    exit_code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\nexit {exit_code}\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert has_gpu() == (exit_code == 0)
