"""Runs a module of this repository as a process that a fork server has prepared.

The fork server of `multiprocessing` has imported what the server imports, and also what training imports if PyTorch was
imported when it started. So the start of a process takes one to five seconds of CPU time less than with `python -m`.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parents[1]
CONTEXT = multiprocessing.get_context("forkserver")
# No module here may run as `__main__`, because runpy warns if the module that it runs is imported already.
OF_THE_SERVER = [
    "app.main",
    "app.text.detection",
    "tests.api.echo",
    "tests.forked",
    "transduce.loadtest.command",
    "transduce.serve",
]
OF_TRAINING = [
    "model.evaluate",
    "model.run_figures",
    "model.train_cli",
    "model.trainer",
    "torch._dynamo",  # an optimizer imports it
    "torch.utils.tensorboard",
    "matplotlib.backends.backend_agg",
]


def start_fork(target: Callable[..., None], *arguments: object) -> ForkServerProcess:
    """Start a process that calls a function of a module. The arguments are pickled."""
    CONTEXT.set_forkserver_preload([*OF_THE_SERVER, *(OF_TRAINING if "torch" in sys.modules else ())])
    process = CONTEXT.Process(target=target, args=arguments)
    process.start()
    return process


class ForkedProcess:
    """`python -W error -m MODULE ARGUMENTS...` in a fork, with part of the interface of a text-mode `Popen`.

    An import that the fork server has already made gives no warning, and so no error.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path = ROOT,
        env: Mapping[str, str] | None = None,
        warnings_action: str = "error",
    ) -> None:
        """command: a module and its arguments. warnings_action: what is done with each warning, as in `warnings`."""
        (stdout, child_stdout), (stderr, child_stderr) = (
            CONTEXT.Pipe(duplex=False),
            CONTEXT.Pipe(duplex=False),
        )
        environment = dict(os.environ if env is None else env)
        arguments = (list(command), str(cwd), environment, warnings_action, child_stdout, child_stderr)
        self._process = start_fork(run_module, *arguments)
        child_stdout.close()
        child_stderr.close()
        self.stdout, self.stderr = text_of(stdout), text_of(stderr)

    @property
    def pid(self) -> int:
        pid = self._process.pid
        assert pid is not None
        return pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0.0)
        return code

    def communicate(self) -> tuple[str, str]:
        """Wait for the end. Returns both outputs, and closes them."""
        with ThreadPoolExecutor(2) as pool, self.stdout, self.stderr:
            stdout, stderr = pool.map(lambda stream: stream.read(), (self.stdout, self.stderr))
        self.wait()
        return stdout, stderr

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()


def run_transduce(
    *arguments: object, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `python -m transduce ARGUMENTS...` in a fork, to its end."""
    return run_forked("transduce", *arguments, env=env, warnings_action="default")


def run_forked(
    *command: object, cwd: Path = ROOT, env: Mapping[str, str] | None = None, warnings_action: str = "error"
) -> subprocess.CompletedProcess[str]:
    """Run a module with arguments in a fork, to its end."""
    words = [str(word) for word in command]
    process = ForkedProcess(words, cwd=cwd, env=env, warnings_action=warnings_action)
    stdout, stderr = process.communicate()
    return subprocess.CompletedProcess(words, process.wait(), stdout, stderr)


def text_of(connection: Connection) -> TextIO:
    """The text that arrives on a pipe."""
    with connection:
        return os.fdopen(os.dup(connection.fileno()), encoding="utf-8")


def run_module(
    command: list[str],
    folder: str,
    environment: Mapping[str, str],
    warnings_action: str,
    stdout: Connection,
    stderr: Connection,
) -> None:
    """Run a module as `python -m` does, in this process. Its outputs go to the pipes."""
    gc.freeze()  # a collection would copy the memory that is shared with the fork server
    for number, connection in enumerate((stdout, stderr), start=1):
        os.dup2(connection.fileno(), number)
        connection.close()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # TMPDIR may differ from the fork server's
    warnings.simplefilter(warnings_action)  # type: ignore[arg-type]
    sys.argv = command
    runpy.run_module(command[0], run_name="__main__", alter_sys=True)
