"""An xdist worker, as `make test` starts several of them, runs tests that record their order."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.house_rules.project import ROOT

CONFTEST = """
    from pathlib import Path
    import pytest
    from tests.xdist_workers import XdistWorker

    def pytest_configure(config):
        config.addinivalue_line("markers", "slow")
        config.pluginmanager.register(XdistWorker())

    @pytest.fixture
    def recorded(request):
        with (Path(__file__).parent / "order").open("a") as order:
            print(request.node.name, file=order)
"""
PLAIN = """
    import logging
    def test_plain(recorded):
        logging.warning("half a character: " + chr(0xD800))
"""
SLOW = """
    import pytest
    def test_beside_a_slow_one(recorded):
        pass
    @pytest.mark.slow
    def test_slow(recorded):
        pass
"""


@pytest.mark.server
def test_files_with_a_slow_test_run_first_and_a_lone_surrogate_is_logged(tmp_path: Path) -> None:
    texts = (PLAIN, PLAIN, PLAIN, SLOW)
    files = {"conftest": CONFTEST, **{f"test_{number}": text for number, text in enumerate(texts)}}
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
    options = ["-p", "no:cacheprovider", "--import-mode=importlib", "-n", "1", "--dist", "loadfile"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--no-loadscope-reorder", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    order = (tmp_path / "order").read_text().split()
    assert order == ["test_beside_a_slow_one", "test_slow", *["test_plain"] * 3]
