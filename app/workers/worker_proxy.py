"""The server's side of a worker process. Sends it messages, reads its reports, and notices its end.

A worker in a process of its own does not hold the GIL of the event loop. The fork server forks it. The server reaches
it through a pair of sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import math
import signal
import socket
import sys
import termios
import time
from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from app import errors
from app.engine.limits import EngineLimits
from app.engine.messages import Cancel, Join, Message, Prioritize, Report, Submit, wakes
from app.engine.sequence import Sequence, SequenceResult
from app.engine.token_deltas import TokenDelta
from app.engine.worker import WorkerExit, WorkerListener
from app.errors import ServiceError, WorkerEnded
from app.runtime.interface import Limits
from app.workers import framing, messages
from app.workers.fork_server import END_TIMEOUT_S, ChildProcess, ForkServer
from app.workers.shared_status import SharedWorkerStatus

# Seconds that the successor of a dead worker may take for each message of its start, WorkerStarted and ModelLoaded.
# If smaller, large models are not loaded on a busy machine. If larger, a start that hangs is noticed later.
LOAD_TIMEOUT_S = 120.0
# The end of a process that the kernel kills for lack of memory, and what the message then adds.
KILLED = f"signal {int(signal.SIGKILL)}"
LACK_OF_MEMORY = "; the usual cause is too little memory"


class WorkerProxy:
    """A worker in a process.

    `load` and `successor` may run on any thread, and so may `close` before `start`. All other methods, and `close`
    after `start`, run on the event loop.
    """

    def __init__(
        self, fork_server: ForkServer, connection: socket.socket, status: SharedWorkerStatus, number: int
    ) -> None:
        """connection: the server's end of a socket pair. status: shared by all workers. number: this worker's."""
        self._fork_server = fork_server
        self._child: ChildProcess | None = None  # until its first message
        self._connection = connection
        self._status = status
        self._number = number
        self._unread: deque[bytes] = deque()  # received frames, while the worker loads
        self._decoder = msgspec.msgpack.Decoder(messages.FromWorker)
        self._frames = framing.FrameReader()
        self._limits: Limits | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listener: WorkerListener | None = None
        self._unsent = bytearray()
        self._num_keys = 0
        self._by_key: dict[int, Sequence] = {}
        self._keys: dict[Sequence, int] = {}
        # When the last report arrived or, if that is later, when the worker got a message while it had no work.
        # In seconds of time.monotonic.
        self._due_since = -math.inf
        self._stop_waiting: Callable[[], None] = lambda: None  # for the end of a process that has died

    def load(self) -> None:
        """Wait until the worker has loaded its model.

        Raises BundleError and SettingsError as loading does, and WorkerEnded when the process ends meanwhile. For a
        worker from `successor`, also raises TimeoutError after LOAD_TIMEOUT_S without a message.
        """
        message = self._next_message()
        if isinstance(message, messages.WorkerStarted):
            message = self._next_message()
        if isinstance(message, messages.LoadFailed):
            self.close()
            raise message.error()
        assert isinstance(message, messages.ModelLoaded)
        self._limits = message.limits
        with contextlib.suppress(TimeoutError):
            self._fork_server.wait()

    def _next_message(self) -> messages.FromWorker:
        """Wait for the next message. Raises WorkerEnded when the process has ended instead."""
        if not self._unread:
            self._unread += self._frames.first(lambda: self._connection.recv(framing.RECEIVE_BYTES))
        if not self._unread:
            end = self._exit_code()
            hint = LACK_OF_MEMORY if end == KILLED else ""
            raise WorkerEnded(f"an engine process ended while it loaded, with {end}{hint}")
        message: messages.FromWorker = self._decoder.decode(self._unread.popleft())
        if isinstance(message, messages.WorkerStarted):
            self._child = ChildProcess(message.process_id)
        return message

    @property
    def limits(self) -> Limits:
        """As `Worker.limits`, once the model is loaded."""
        assert self._limits is not None
        return self._limits

    @property
    def process_id(self) -> int:
        """The process's id, once the model is loaded."""
        assert self._child is not None
        return self._child.process_id

    @property
    def step_started_at(self) -> float | None:
        """As `Worker.step_started_at`. For an idle worker with work, the time from which a report is due."""
        if not self.is_alive:
            return None
        started_at = self._status.get(self._number)
        return self._due_since if started_at is None and self._has_work() else started_at

    @property
    def is_alive(self) -> bool:
        """As `Worker.is_alive`."""
        return self._listener is not None

    def start(self, settings: EngineLimits, listener: WorkerListener) -> None:
        """As `Worker.start`."""
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._connection.setblocking(False)
        self._loop.add_reader(self._connection.fileno(), self._on_readable)
        self._due_since = time.monotonic()
        self._send(messages.StartWorker(settings))

    def put(self, message: Message) -> None:
        """As `Worker.put`."""
        if self.is_alive and not self._has_work():
            self._due_since = time.monotonic()
        self._send_as_frame(message)
        if wakes(message):
            self._status.wake_flags[self._number].set()

    def _send_as_frame(self, message: Message) -> None:
        if isinstance(message, Submit):
            self._send(self._add(message))
        elif not isinstance(message, Join | Prioritize | Cancel):
            self._send(messages.StopWorker())
        elif (key := self._keys.get(message.sequence)) is not None:
            if isinstance(message, Join):
                request = message.caller, message.request_id, message.deadline, message.streams
                self._send(messages.JoinSequence(key, *request))
            elif isinstance(message, Prioritize):
                self._send(messages.PrioritizeSequence(key))
            else:
                self._forget(key)
                self._send(messages.CancelSequence(key))

    def successor(self, fork_server: ForkServer, spec: bytes) -> WorkerProxy:
        """Return a new worker in the place of this one, which has died. The new worker begins to load.

        Any thread may call it. fork_server: has no model yet. spec: the model. Raises OSError, and then leaves no
        process.
        """
        (worker,) = _start(fork_server, spec, self._status, [self._number])
        worker._connection.settimeout(LOAD_TIMEOUT_S)
        return worker

    def close(self) -> None:
        """As `Worker.close`. Kills a process that has not ended yet."""
        self._stop_reading()
        self._stop_waiting()
        self._fork_server.close()
        if self._child is None:
            # The fork server has ended. Either this worker exists and sends its first message, or there is no worker.
            with contextlib.suppress(OSError, WorkerEnded):
                self._connection.settimeout(END_TIMEOUT_S)
                self._next_message()
        self._connection.close()
        if self._child is not None:
            self._child.kill()
            with contextlib.suppress(TimeoutError):
                self._child.wait()

    # ---- to the process

    def _add(self, message: Submit) -> messages.SubmitSequence:
        sequence = message.sequence
        self._num_keys += 1
        key = self._keys[sequence] = self._num_keys
        self._by_key[key] = sequence
        return messages.SubmitSequence(
            key,
            sequence.source_ids.tobytes(),
            sequence.options,
            sequence.request_id,
            sequence.caller,
            sequence.deadline,
            sequence.submitted_at,
            message.streams,
        )

    def _has_work(self) -> bool:
        """Whether the worker has sequences, or messages that it has not read, such as those of cancelled sequences."""
        if self._by_key or self._unsent:
            return True
        num_unread = fcntl.ioctl(self._connection.fileno(), termios.TIOCOUTQ, bytes(4))
        return int.from_bytes(num_unread, sys.byteorder) > 0

    def _forget(self, key: int) -> Sequence:
        sequence = self._by_key.pop(key)
        del self._keys[sequence]
        return sequence

    def _send(self, message: messages.ToWorker) -> None:
        """Write the bytes that the socket takes now. The rest is written when it takes more."""
        if not self.is_alive:
            return
        data = framing.encode_frame(message)
        if not self._unsent:
            data = data[self._write(data) :]
        if data and self.is_alive:
            assert self._loop is not None
            if not self._unsent:
                self._loop.add_writer(self._connection.fileno(), self._on_writable)
            self._unsent += data

    def _write(self, data: bytes | bytearray) -> int:
        """Write, and return the number of bytes. For a broken pipe, which the reading side notices, it is all bytes."""
        try:
            return self._connection.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            return len(data)

    def _on_writable(self) -> None:
        del self._unsent[: self._write(self._unsent)]
        self._status.wake_flags[self._number].set()
        if not self._unsent and self._loop is not None:
            self._loop.remove_writer(self._connection.fileno())

    # ---- from the process

    def _on_readable(self) -> None:
        try:
            data = self._connection.recv(framing.RECEIVE_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        for frame in self._frames.take(data):
            message = self._decoder.decode(frame)
            if isinstance(message, messages.WorkerReport):
                self._on_report(message)
            elif isinstance(message, messages.WorkerExited):
                return self._on_exit(has_died=message.has_died)
        if not data:
            self._on_exit(has_died=True)
        return None

    def _on_report(self, message: messages.WorkerReport) -> None:
        """Pass a report on to the listener, without sequences that were cancelled meanwhile."""
        self._due_since = time.monotonic()
        deltas = [
            TokenDelta(self._by_key[one.key], one.position, one.ids)
            for one in message.deltas
            if one.key in self._by_key
        ]
        ended = []
        for key, outcome in message.ended:
            if key in self._by_key:
                sequence = self._forget(key)
                sequence.outcome = _to_outcome(outcome)
                ended.append(sequence)
        if self._listener is not None:
            self._listener.on_report(Report(ended, message.steps, deltas))

    def _on_exit(self, *, has_died: bool) -> None:
        listener = self._listener
        self._stop_reading()
        if listener is None:
            return
        if not has_died:
            listener.on_exit(WorkerExit(has_died=False))
            return
        assert self._child is not None
        assert self._loop is not None
        # A process ends some time after its socket has closed. The event loop must not wait for it.
        self._stop_waiting = self._child.when_ended(self._loop, lambda: self._on_death(listener))

    def _on_death(self, listener: WorkerListener) -> None:
        step_started_at = self._status.get(self._number)
        self._status.set(self._number, None)
        self._status.wake_others(self._number)  # each worker's share of threads is set again
        listener.on_exit(WorkerExit(True, self._exit_code(timeout_s=0.0), step_started_at))

    def _stop_reading(self) -> None:
        if self._listener is not None and self._loop is not None:
            self._listener = None
            self._loop.remove_reader(self._connection.fileno())
            self._loop.remove_writer(self._connection.fileno())

    def _exit_code(self, timeout_s: float = END_TIMEOUT_S) -> str:
        """Describe the end of the process that closed its side of the connection."""
        try:
            code = self._fork_server.wait(timeout_s)
            if self._child is not None:
                code = self._child.wait(timeout_s)
        except TimeoutError:
            return "no exit in time"
        return f"signal {-code}" if code < 0 else f"exit code {code}"


def start_workers(fork_server: ForkServer, num_workers: int, spec: bytes = b"") -> list[WorkerProxy]:
    """Return the workers of one engine, which begin to load. Raises OSError, and then leaves no process.

    spec: the model that they load.
    """
    with contextlib.ExitStack() as unless_created:
        unless_created.callback(fork_server.close)
        status = SharedWorkerStatus.create(num_workers)
        unless_created.pop_all()
    return _start(fork_server, spec, status, range(num_workers))


def _start(
    fork_server: ForkServer, spec: bytes, status: SharedWorkerStatus, numbers: Iterable[int]
) -> list[WorkerProxy]:
    """Fork workers with these numbers. Raises OSError, and then leaves no process.

    status: shared by all workers of the engine, of which some may run already.
    """
    workers: dict[int, WorkerProxy] = {}
    descriptors = {}
    with contextlib.ExitStack() as child_ends, contextlib.ExitStack() as unless_started:
        unless_started.callback(fork_server.close)
        for number in numbers:
            server_end, child_end = socket.socketpair()
            unless_started.enter_context(server_end)
            descriptors[number] = child_ends.enter_context(child_end).fileno()
            workers[number] = WorkerProxy(fork_server, server_end, status, number)
        fork_server.fork_workers(spec, status, descriptors)
        unless_started.pop_all()
    return [*workers.values()]


def _to_outcome(outcome: messages.Answer | messages.Failure) -> SequenceResult | ServiceError:
    if isinstance(outcome, messages.Answer):
        return outcome.result
    kind: type[ServiceError] = getattr(errors, outcome.kind)
    return kind(outcome.message)
