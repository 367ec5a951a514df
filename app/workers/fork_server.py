"""The process that an engine's workers come of, as the server sees it, and a worker's process.

It loads what all workers have in common, and each worker is a copy of it: they share all memory that nobody writes to,
which is Python, the libraries and the weights. It is started with a command of its own and has one thread, so that it
can be copied whatever threads its server has. Once the workers are there it ends, and they are the server's children.
Linux only.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import app

# In which a process that said that it ends, or was killed, is gone.
END_TIMEOUT_S = 2.0
# A terminal's Ctrl-C and a supervisor's SIGTERM go to every process: the server says when a worker is to end.
SERVERS_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Of prctl: children of a child that has ended are this process's.
ADOPT_ORPHANS = 36
LENGTH_BYTES = 4


class ForkServer:
    """A process that was started and has yet to become workers. Its methods are for any thread, one after another."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start it. command: is given the descriptor by which it is told. Raises OSError."""
        control, theirs = socket.socketpair()
        with contextlib.ExitStack() as unless_started:
            unless_started.enter_context(control)
            with theirs, _without_signals():
                self._process = subprocess.Popen(
                    [*command, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    env={**os.environ, "PYTHONPATH": _path_with_this_package()},
                )
            unless_started.pop_all()
        self._control = control

    @property
    def process_id(self) -> int:
        """Of the process."""
        return self._process.pid

    def fork_workers(self, given: bytes, descriptors: Sequence[int]) -> None:
        """Have it load and become workers. A process that has ended is told of by `exit_code`.

        given: what to load. descriptors: of the page that the workers share, and of each worker's connection.
        """
        import ctypes  # not before it is needed: this module is imported first of all

        ctypes.CDLL(None).prctl(ADOPT_ORPHANS, 1, 0, 0, 0)
        with contextlib.suppress(OSError):
            socket.send_fds(self._control, [len(given).to_bytes(LENGTH_BYTES, "little")], list(descriptors))
            self._control.sendall(given)

    def exit_code(self) -> int:
        """Once it has ended, which it is about to. Raises TimeoutError where it does not in time."""
        try:
            return self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError from error

    def close(self) -> None:
        """End it, if it has not ended."""
        self._control.close()
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_TIMEOUT_S)


class ChildProcess:
    """A worker's process, known by its number: a child of this process once its fork_server has ended."""

    def __init__(self, process_id: int) -> None:
        self.process_id = process_id
        self._exit_code: int | None = None

    def kill(self) -> None:
        """Whatever it is doing."""
        if self._exit_code is None:  # else the number may be another's
            os.kill(self.process_id, signal.SIGKILL)

    def wait(self, timeout_s: float = END_TIMEOUT_S) -> int:
        """Its exit code, negative for a signal's. Raises TimeoutError where it does not end in time."""
        if self._exit_code is None:
            handle = os.pidfd_open(self.process_id)
            try:
                poll = select.poll()
                poll.register(handle, select.POLLIN)
                if not poll.poll(timeout_s * 1000):
                    raise TimeoutError
            finally:
                os.close(handle)
            self._exit_code = os.waitstatus_to_exitcode(os.waitpid(self.process_id, 0)[1])
        return self._exit_code


@contextlib.contextmanager
def _without_signals() -> Iterator[None]:
    """Whoever is started meanwhile has the server's signals wait, until it ignores them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SERVERS_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_signals() -> None:
    """Those that are the server's, in a process that an ForkServer started: also what has come by now."""
    for one in SERVERS_SIGNALS:
        signal.signal(one, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SERVERS_SIGNALS)


def _path_with_this_package() -> str:
    """PYTHONPATH by which the process finds the very code that runs here."""
    package = str(Path(app.__file__).resolve().parents[1])
    others = os.environ.get("PYTHONPATH")
    return f"{package}{os.pathsep}{others}" if others else package
