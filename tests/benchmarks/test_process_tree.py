"""A measured server's child processes when the server itself has died."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

import psutil
import pytest

from benchmarks.http import process_tree
from benchmarks.http.process_tree import ProcessTree
from benchmarks.server_process import Command
from tests.api.processes import have_ended
from tests.benchmarks.test_server_process import WITH_CHILD

pytestmark = pytest.mark.server
LIMIT_S = 20.0


@pytest.fixture(autouse=True)
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the wait for the children to end. The children of these tests do not end by themselves."""
    monkeypatch.setattr(process_tree, "CHILDREN_LIMIT_S", 0.2)


@pytest.fixture
def command() -> Command:
    return Command(lambda port: [sys.executable, "-c", WITH_CHILD, str(port)], ready_path="/")


@pytest.mark.parametrize("is_reaped", [False, True])
def test_the_children_of_a_dead_server_are_ended(command: Command, is_reaped: bool) -> None:
    with ProcessTree(command) as tree:
        child = psutil.Process(int(tree.get("/")))
        kill(tree, is_reaped=is_reaped)
        assert not have_ended([child])
    assert have_ended([child])


def test_only_the_children_of_the_same_server_are_ended(command: Command) -> None:
    with ProcessTree(command) as other:
        child = psutil.Process(int(other.get("/")))
        with ProcessTree(command) as tree:
            kill(tree, is_reaped=True)
        assert not have_ended([child])
        assert other.get("/") == str(child.pid).encode()


@pytest.mark.parametrize("is_reaped", [False, True])
@pytest.mark.parametrize("measure", [ProcessTree.memory, ProcessTree.cpu_time_s])
def test_the_figures_of_a_dead_server_are_an_error(
    command: Command, measure: Callable[[ProcessTree], object], is_reaped: bool
) -> None:
    with ProcessTree(command) as tree:
        kill(tree, is_reaped=is_reaped)
        with pytest.raises(psutil.NoSuchProcess):
            measure(tree)


def kill(tree: ProcessTree, *, is_reaped: bool) -> None:
    """Kill a server. Wait until it is a zombie or, if is_reaped, until it is gone."""
    if is_reaped:
        tree.send_signal(signal.SIGKILL)
        tree.wait(LIMIT_S)
    else:
        os.kill(tree.pid, signal.SIGKILL)
        os.waitid(os.P_PID, tree.pid, os.WEXITED | os.WNOWAIT)
