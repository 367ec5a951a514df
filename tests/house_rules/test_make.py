"""`make` and .ci/run find their Python and run the right commands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house_rules.project import ROOT

FIND_PYTHON = str(ROOT / ".ci" / "find-python")


def find_python(path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run .ci/find-python. The PATH has only the folder `path` and a folder with the system's `tail`."""
    tools = path / "tools"
    tools.mkdir(exist_ok=True)
    if not (tools / "tail").exists():
        (tools / "tail").symlink_to("/usr/bin/tail")
    return subprocess.run(
        ["/bin/sh", FIND_PYTHON],
        check=False,
        env={"PATH": f"{path}:{tools}", **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def put(path: Path, name: str, *, program: str = f'exec {sys.executable} "$@"') -> None:
    """Write an executable `name` into the folder `path`."""
    file = path / name
    file.write_text(f"#!/bin/sh\n{program}\n")
    file.chmod(0o755)


def announcing(name: str) -> str:
    """The shell program of a working Python that prints `name` as its own path."""
    return f'[ "$1" = -c ] && echo {name} || exec {sys.executable} "$@"'


def test_the_newest_python_is_found(tmp_path: Path) -> None:
    for name in ("python3.11", "python3.13", "python3.12", "python3"):
        put(tmp_path, name, program=announcing(name))
    assert find_python(tmp_path).stdout == "python3.13\n"


def test_a_python_that_cannot_build_an_environment_is_skipped(tmp_path: Path) -> None:
    put(tmp_path, "python3.14", program="exit 1")
    put(tmp_path, "python3.11", program=announcing("python3.11"))
    assert find_python(tmp_path).stdout == "python3.11\n"


def test_the_python_that_a_shim_runs_is_printed(tmp_path: Path) -> None:
    put(tmp_path, "python3.12")
    assert find_python(tmp_path).stdout == f"{sys.executable}\n"


def test_the_callers_choice_comes_first(tmp_path: Path) -> None:
    put(tmp_path, "python3.13", program=announcing("python3.13"))
    put(tmp_path, "mine", program=announcing("mine"))
    assert find_python(tmp_path, PYTHON=str(tmp_path / "mine")).stdout == "mine\n"


def test_the_error_names_a_python_that_is_too_old_and_the_needed_versions(tmp_path: Path) -> None:
    old = '[ "$1" = -c ] && exit 1; echo Python 3.9.2'
    put(tmp_path, "python3", program=old)
    done = find_python(tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"{tmp_path}/python3: Python 3.9.2" in done.stderr
    assert "3.11 to 3.14" in done.stderr


def test_without_any_python_the_error_lists_the_names_searched_for(tmp_path: Path) -> None:
    done = find_python(tmp_path)
    assert done.returncode == 1
    assert "None of these is on the PATH" in done.stderr


def make(*arguments: str, **environment: str) -> str:
    """The commands that `make -n` prints. It does not see the variables of a make that runs these tests."""
    own = {
        name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    }
    done = subprocess.run(
        ["make", "--dry-run", *arguments],
        check=True,
        cwd=ROOT,
        env={**own, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout


@pytest.mark.parametrize("runtime", ["cpu", "gpu"])
def test_serve_installs_one_runtime_by_hash(runtime: str) -> None:
    commands = make("serve", f"RUNTIME={runtime}", "--always-make")
    assert f"--require-hashes -r requirements/{runtime}.txt" in commands
    assert ({"cpu": "gpu", "gpu": "cpu"}[runtime] + ".txt") not in commands
    assert "rm -rf .venv;" in commands, "an old environment with the other runtime would then have both"


def test_serve_listens_on_loopback_by_default() -> None:
    """HOST is a common shell variable, so make takes it from its command line, and not from the environment."""
    assert "exec .venv/bin/transduce serve --host 127.0.0.1 --port 8000" in make(
        "serve", HOST="0.0.0.0", PORT="1"
    )
    assert "--host 0.0.0.0 --port 9" in make("serve", "HOST=0.0.0.0", "PORT=9")


@pytest.mark.parametrize("runtime", ["cpu", "gpu"])
def test_audit_checks_the_packages_of_the_servers_environment(tmp_path: Path, runtime: str) -> None:
    """A copy of the script runs with a fake Python."""
    last = make("audit", f"RUNTIME={runtime}").splitlines()[-1]
    script, _, server, *lock = last.split()
    put(tmp_path, "python", program='echo "$@" >>"$LOG"')
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / script, tmp_path / ".ci")
    log = tmp_path / "log"
    command = [str(tmp_path / script), str(tmp_path / "python"), server, *lock]
    subprocess.run(command, check=False, env={**os.environ, "LOG": str(log)}, capture_output=True, timeout=60)
    assert f"-m pip_audit --requirement requirements/{runtime}.txt " in log.read_text()


def test_the_number_of_test_workers_is_an_option() -> None:
    assert "-m pytest -n 3 " in make("test")
    assert "-m pytest -n 0 --dist loadfile --no-loadscope-reorder -x" in make(
        "test", "WORKERS=0", "PYTEST_ARGS=-x"
    )


def test_house_rules_run_once_in_ci() -> None:
    """CI runs `make lint`, which has no house rules, and `make test`, which runs all tests, but not `make check`."""
    assert make("check").endswith(" -m pytest -q tests/house_rules\n")
    assert "pytest" not in make("lint")
    assert make("check").startswith(make("lint"))


def test_ci_runs_each_target_to_the_end(tmp_path: Path) -> None:
    """A fake make fails for all targets but `test`, and prints a summary for `test`. All targets run, and CI fails.

    The output of each target is printed once.
    """
    put(
        tmp_path,
        "make",
        program='echo "$1" >>"$LOG"; [ "$1" = test ] && { echo "1 passed"; exit 0; }; echo "output of $1"; exit 2',
    )
    put(tmp_path, "apt-get", program="exit 100")  # the tests run without a browser
    log = tmp_path / "log"
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "LOG": str(log)}
    command = [str(ROOT / ".ci" / "run")]
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=60)
    first, *others, last = log.read_text().splitlines()
    assert (first, last) == (".venv-dev/ready", "test")
    assert sorted(others) == ["check-native", "envoy", "gpu-stub", "lint"]
    assert all(done.stdout.count(f"output of {target}\n") == 1 for target in (first, *others))
    assert done.stdout.endswith("1 passed\n")
    assert done.returncode == 1


def test_clean_removes_every_environment() -> None:
    text = (ROOT / "Makefile").read_text("utf-8")
    built = set(re.findall(r"^(\.venv[\w-]*)/ready", text, re.MULTILINE))
    assert ".venv-dev" in built
    assert built <= set(text.partition("\nclean:")[2].partition("\n\n")[0].split())


def test_ci_fails_when_a_test_does(tmp_path: Path) -> None:
    put(
        tmp_path,
        "make",
        program='[ "$1" = test ] || exit 0; echo "1 failed"; echo "make: *** [Makefile:1: test] Error 1" >&2; exit 2',
    )
    put(tmp_path, "apt-get", program="exit 100")
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = [str(ROOT / ".ci" / "run")]
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.endswith("1 failed\n")
    assert done.returncode == 1
