"""The server's handles of the fork server and of a worker process.

The fork server imports the modules, loads a model of native operators, and forks once for each worker. The workers
therefore share all memory that is not written: Python, the libraries and the weights. A model of other operators is
loaded by each worker. The fork server is a separate command with one thread, so that it can fork safely while the
server has threads. It ends when it has forked all workers, which become children of the server. Before it gets a model,
it can be copied: a copy has imported all modules already. Linux only.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import app

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from app.workers.shared_status import SharedWorkerStatus

# Seconds to wait for a process that was killed or is about to end.
END_TIMEOUT_S = 2.0
# Seconds that a fork server may take to copy itself. If smaller, a fork server that still imports its modules on a busy
# machine is replaced. If larger, all loads wait longer for a fork server that hangs.
COPY_TIMEOUT_S = 30.0
# A terminal's Ctrl-C and a supervisor's SIGTERM or SIGHUP reach every process of the group. Only the server handles
# them.
SERVERS_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# PR_SET_CHILD_SUBREAPER of prctl(2): children of a child that has ended become this process's children.
ADOPT_ORPHANS = 36
# Before the spec: its number of bytes, the number of workers that share the status, and the number of the first worker
# to fork.
HEADER = struct.Struct("<III")
# Sent in place of HEADER. It makes the process copy itself, and the process answers with the copy's id.
COPY = HEADER.pack(0, 0, 0)
PROCESS_ID = struct.Struct("<I")


class ForkServer:
    """A process that waits for a model.

    Any thread may call its methods, one call at a time. Only `close` may come during another call.
    """

    def __init__(self, process: ChildProcess, control: socket.socket) -> None:
        """control: the server's end of the process's socket."""
        self._process = process
        self._control = control

    @classmethod
    def start(cls, command: Sequence[str]) -> ForkServer:
        """Start a process. command: without its last argument, the socket's descriptor. Raises OSError."""
        control, child_end = socket.socketpair()
        with contextlib.ExitStack() as unless_started:
            unless_started.enter_context(control)
            with child_end:
                child_end.set_inheritable(True)
                process_id = os.posix_spawn(
                    command[0],
                    [*command, str(child_end.fileno())],
                    {**os.environ, "PYTHONPATH": _path_with_this_package()},
                    file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)],
                    setsigmask=SERVERS_SIGNALS,  # blocked until the process ignores them
                )
            unless_started.pop_all()
        return cls(ChildProcess(process_id), control)

    @property
    def process_id(self) -> int:
        """The process's id."""
        return self._process.process_id

    def copy(self) -> ForkServer:
        """Make the process fork a copy of itself, which becomes a child of this process.

        Waits until the process has imported its modules. Raises OSError if it has ended or does not answer.
        """
        control, child_end = socket.socketpair()
        with contextlib.ExitStack() as unless_copied:
            unless_copied.enter_context(control)
            with child_end:
                _adopt_orphans()
                self._control.settimeout(COPY_TIMEOUT_S)
                socket.send_fds(self._control, [COPY], [child_end.fileno()])
            answer = self._control.recv(PROCESS_ID.size, socket.MSG_WAITALL)
            if len(answer) < PROCESS_ID.size:
                raise ConnectionError("the fork server has ended")
            unless_copied.pop_all()
        return ForkServer(ChildProcess(*PROCESS_ID.unpack(answer)), control)

    def fork_workers(self, spec: bytes, status: SharedWorkerStatus, connections: Mapping[int, int]) -> None:
        """Make the process fork the workers, which share or load the model. Does nothing if it has ended.

        `wait` tells how it ended. spec: the model. status: of all workers of the engine, of which some may run already.
        connections: the descriptor of each worker's connection, by consecutive numbers.
        """
        _adopt_orphans()
        with contextlib.suppress(OSError):
            header = HEADER.pack(len(spec), status.num_workers, min(connections))
            socket.send_fds(self._control, [header], [status.descriptor, *connections.values()])
            self._control.sendall(spec)

    def wait(self, timeout_s: float = END_TIMEOUT_S) -> int:
        """Wait for the process to end, and return its exit code. Raises TimeoutError."""
        code = self._process.wait(timeout_s)
        self._control.close()
        return code

    def close(self) -> None:
        """Kill the process if it has not ended."""
        self._control.close()
        self._process.kill()
        with contextlib.suppress(TimeoutError):
            self._process.wait()


class ChildProcess:
    """A child process by its id. A worker is a child of this process once the fork server has ended.

    Any thread may call `kill` and `wait`. A load's thread waits for the fork server. If the server ends meanwhile, the
    server's main thread kills the fork server.
    """

    def __init__(self, process_id: int) -> None:
        self.process_id = process_id
        self._exit_code: int | None = None
        # Held while the id is used. After `waitpid` another process may get the id.
        self._lock = threading.Lock()

    def kill(self) -> None:
        """Send SIGKILL, unless `wait` has returned the exit code."""
        with self._lock:
            if self._exit_code is None:
                os.kill(self.process_id, signal.SIGKILL)

    def when_ended(self, loop: AbstractEventLoop, call: Callable[[], None]) -> Callable[[], None]:
        """Call a function on the event loop once the process has ended, or after END_TIMEOUT_S.

        Returns a function that cancels this.
        """
        if self._exit_code is not None:
            return loop.call_soon(call).cancel
        handle = os.pidfd_open(self.process_id)
        is_waiting = True

        def cancel() -> None:
            nonlocal is_waiting
            if is_waiting:  # afterwards another file may have the descriptor's number
                is_waiting = False
                timer.cancel()
                loop.remove_reader(handle)
                os.close(handle)

        def on_end() -> None:
            cancel()
            call()

        timer = loop.call_later(END_TIMEOUT_S, on_end)
        loop.add_reader(handle, on_end)
        return cancel

    def wait(self, timeout_s: float = END_TIMEOUT_S) -> int:
        """Wait for the end, and return the exit code, or the negative number of a signal. Raises TimeoutError."""
        with self._lock:
            if self._exit_code is not None:
                return self._exit_code
            handle = os.pidfd_open(self.process_id)
        try:
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            if not poll.poll(timeout_s * 1000):
                raise TimeoutError
        finally:
            os.close(handle)
        with self._lock:
            if self._exit_code is None:
                self._exit_code = os.waitstatus_to_exitcode(os.waitpid(self.process_id, 0)[1])
            return self._exit_code


def _adopt_orphans() -> None:
    """Make this process the parent of its descendants whose own parents end."""
    import ctypes  # imported late: the server imports this module first of all

    ctypes.CDLL(None).prctl(ADOPT_ORPHANS, 1, 0, 0, 0)


def ignore_signals() -> None:
    """Ignore the server's signals in the fork server, including those that are pending. Workers inherit it."""
    for one in SERVERS_SIGNALS:
        signal.signal(one, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SERVERS_SIGNALS)


def _path_with_this_package() -> str:
    """Return a PYTHONPATH with which the process imports the same files as this one."""
    package = str(Path(app.__file__).resolve().parents[1])
    others = os.environ.get("PYTHONPATH")
    return f"{package}{os.pathsep}{others}" if others else package
