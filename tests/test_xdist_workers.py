"""Several xdist workers, as `make test` starts them, on tests that record when they ran."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from tests.house_rules.project import ROOT
from tests.xdist_workers import turn

HANG_TIMEOUT_S = 60.0
CONFTEST = """
    import time
    from pathlib import Path
    import pytest
    from tests.xdist_workers import XdistWorker

    FOLDER = Path(__file__).parent

    def pytest_configure(config):
        for name in ("slow", "alone"):
            config.addinivalue_line("markers", name)
        config.pluginmanager.register(XdistWorker(FOLDER))

    @pytest.fixture
    def noted(request):
        with (FOLDER / "notes").open("a") as notes:
            print(request.node.name, file=notes, flush=True)
            yield
            print(request.node.name, file=notes, flush=True)

    @pytest.fixture
    def met(request, noted):
        # Wait until a second test with this fixture runs.
        (FOLDER / f"{request.node.name}.here").touch()
        until = time.monotonic() + 60
        while len(list(FOLDER.glob("*.here"))) < 2:
            assert time.monotonic() < until
            time.sleep(0.01)
"""
ALONE = """
    import time, pytest
    @pytest.mark.alone
    @pytest.mark.parametrize("number", range(3))
    def test_alone(noted, number):
        time.sleep(0.1)
"""
PLAIN = """
    def test_plain(met):
        pass
"""
SHORT = """
    import logging
    def test_short(noted):
        logging.warning("half a character: " + chr(0xD800))
"""
SLOW = """
    import pytest
    @pytest.mark.slow
    def test_slow(met):
        pass
"""


@pytest.mark.server
def test_slow_tests_run_first_and_alone_tests_run_alone(tmp_path: Path) -> None:
    texts = (ALONE, ALONE, PLAIN, SHORT, SLOW)
    files = {"conftest": CONFTEST, **{f"test_{number}": text for number, text in enumerate(texts)}}
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
    options = ["-p", "no:cacheprovider", "--import-mode=importlib", "-n", "2"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *options,
            "--dist",
            "loadfile",
            "--no-loadscope-reorder",
            str(tmp_path),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    notes = (tmp_path / "notes").read_text().splitlines()
    assert set(notes[:2]) == {"test_plain", "test_slow"}, "the slow test is among the first"
    assert len(notes) == 2 * 9
    alone = [number for number, name in enumerate(notes) if name.startswith("test_alone")]
    assert len(alone) == 2 * 6
    begins, ends = alone[::2], alone[1::2]
    assert ends == [begin + 1 for begin in begins], "no test begins or ends while one is alone"
    assert [notes[begin] for begin in begins] == [notes[end] for end in ends]


def test_no_test_overtakes_an_alone_test(tmp_path: Path) -> None:
    """Two tests may run at once. An `alone` test waits for a running test, and a later test for the `alone` one."""
    entered: list[str] = []

    def enter(name: str, *, is_alone: bool) -> None:
        with turn(tmp_path, is_alone=is_alone):
            entered.append(name)

    alone = threading.Thread(target=enter, args=("alone",), kwargs={"is_alone": True})
    last = threading.Thread(target=enter, args=("last",), kwargs={"is_alone": False})
    with turn(tmp_path, is_alone=False):
        enter("beside", is_alone=False)
        alone.start()
        wait_until_locked(tmp_path / "queue.lock")
        last.start()
        assert entered == ["beside"]
    for thread in (alone, last):
        thread.join(HANG_TIMEOUT_S)
    assert entered == ["beside", "alone", "last"]


def wait_until_locked(path: Path) -> None:
    until = time.monotonic() + HANG_TIMEOUT_S
    while True:
        with path.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
        assert time.monotonic() < until
        time.sleep(0.01)
