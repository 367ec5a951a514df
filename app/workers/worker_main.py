"""A worker process. It loads the model, then runs the engine's loop with messages over the server's socket."""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
from collections import deque
from collections.abc import Callable

import msgspec
import numpy as np

from app.decoding.search import new_search
from app.engine.core import EngineCore
from app.engine.messages import Cancel, Join, Message, Prioritize, Report, Stop, Submit
from app.engine.sequence import Sequence, SequenceResult
from app.errors import BundleError, SettingsError
from app.observability.logging import flush_log
from app.runtime.interface import Limits, Runner
from app.runtime.stop_condition import WakeFlag
from app.workers import framing, messages
from app.workers.shared_status import SharedWorkerStatus

logger = logging.getLogger(__name__)


class WorkerMain:
    """One worker process.

    Apart from the thread of `exit_when_closed`, everything runs on the thread that calls `run`.
    """

    def __init__(self, connection: socket.socket, status: SharedWorkerStatus, number: int) -> None:
        """connection: the socket to the server. status: memory shared with the server. number: this worker's number."""
        self._connection = connection
        self._status = status
        self._number = number
        self._num_busy = 0

    def run(self, load: Callable[[], Runner]) -> None:
        """Load, and run steps until the server stops this worker or is gone, or an error ends the engine.

        Sends BundleError and SettingsError of `load` to the server.
        """
        exit_when_closed(self._connection)
        self._send(messages.WorkerStarted(os.getpid()))
        try:
            runner = load()
        except (BundleError, SettingsError) as error:
            return self._send(messages.LoadFailed.of(error))
        self._send(messages.ModelLoaded(runner.limits))
        sequences = SequenceTable(runner.limits)
        inbox = SocketInbox(self._connection, sequences, self._status.wake_flags[self._number])
        start = inbox.get_start()
        if start is None:
            return None

        def on_step(started_at: float | None) -> None:
            was_idle = self._status.get(self._number) is None
            self._status.set(self._number, started_at)
            if was_idle != (started_at is None):
                # The others end their calls, so that each sets its new share of the threads at its next call.
                self._status.wake_others(self._number)
            if started_at is not None and (num_busy := self._status.num_busy()) != self._num_busy:
                self._num_busy = num_busy
                runner.share_cores(num_busy)

        core = EngineCore(
            runner,
            start.settings,
            report=lambda report: self._send(sequences.to_wire(report)),
            incoming=inbox,
            on_step=on_step,
        )
        has_died = True
        try:
            core.run()
            has_died = False
        except Exception:
            logger.exception("a worker of the engine has died")
            flush_log()  # the server may kill this process once it has read the next message
        self._send(messages.WorkerExited(has_died))
        return None

    def _send(self, message: messages.FromWorker) -> None:
        try:
            self._connection.sendall(framing.encode_frame(message))
        except OSError:
            os._exit(0)  # the server is gone


class SequenceTable:
    """The worker's sequences by the server's keys. Converts the socket's messages to the engine's and back."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_key: dict[int, Sequence] = {}
        self._keys: dict[Sequence, int] = {}

    def from_wire(self, message: messages.ToWorker) -> Message | None:
        """Return the engine's message, or None if the message is about a sequence that has ended here already."""
        if isinstance(message, messages.SubmitSequence):
            return Submit(self._add(message), streams=message.streams)
        if isinstance(message, messages.StopWorker | messages.StartWorker):
            return Stop()
        sequence = self._by_key.get(message.key)
        if sequence is None:
            return None
        if isinstance(message, messages.JoinSequence):
            return Join(
                sequence, message.caller, message.request_id, message.deadline, streams=message.streams
            )
        if isinstance(message, messages.PrioritizeSequence):
            return Prioritize(sequence)
        self._forget(sequence)
        return Cancel(sequence)

    def to_wire(self, report: Report) -> messages.WorkerReport:
        """Return a report with keys in place of sequences. Sequences that were cancelled meanwhile are left out."""
        deltas = [
            messages.Delta(self._keys[one.sequence], one.position, one.ids)
            for one in report.deltas
            if one.sequence in self._keys
        ]
        ended = [(self._forget(one), _encode_outcome(one)) for one in report.ended if one in self._keys]
        return messages.WorkerReport(ended, report.steps, deltas)

    def _add(self, message: messages.SubmitSequence) -> Sequence:
        limits, options = self._limits, message.options
        ids = np.frombuffer(message.source_ids, np.int32)
        search = new_search(options, bos_id=limits.bos_id, eos_id=limits.eos_id, source_ids=ids.tolist())
        sequence = Sequence(
            ids,
            options,
            message.request_id,
            message.caller,
            message.deadline,
            message.submitted_at,
            search,
        )
        self._by_key[message.key] = sequence
        self._keys[sequence] = message.key
        return sequence

    def _forget(self, sequence: Sequence) -> int:
        key = self._keys.pop(sequence)
        del self._by_key[key]
        return key


class SocketInbox:
    """The engine's inbox over a socket. When the server is gone, the next message is Stop."""

    def __init__(self, connection: socket.socket, sequences: SequenceTable, wake_flag: WakeFlag) -> None:
        self.wake_flag = wake_flag
        self._connection = connection
        self._sequences = sequences
        self._frames = framing.FrameReader()
        self._decoder = msgspec.msgpack.Decoder(messages.ToWorker)
        self._messages: deque[Message] = deque()

    def get_start(self) -> messages.StartWorker | None:
        """Wait for the first message. None when the server stops the worker instead, or is gone."""
        frames = self._frames.first(lambda: self._read(0))
        received = [self._decoder.decode(frame) for frame in frames]
        for other in received[1:]:
            self._append(other)
        return received[0] if received and isinstance(received[0], messages.StartWorker) else None

    def empty(self) -> bool:
        """Whether no message has arrived. Does not block."""
        if not self._messages:
            self._receive(socket.MSG_DONTWAIT)
        return not self._messages

    def get(self) -> Message:
        """Wait for the next message and return it."""
        while not self._messages:
            self._receive(0)
        return self._messages.popleft()

    def _receive(self, flags: int) -> None:
        try:
            data = self._read(flags)
        except BlockingIOError:
            return
        if not data:
            self._messages.append(Stop())
        for frame in self._frames.take(data):
            self._append(self._decoder.decode(frame))

    def _read(self, flags: int) -> bytes:
        """Return the bytes that have arrived, or no bytes when the server is gone.

        Raises BlockingIOError when nothing has arrived yet and MSG_DONTWAIT is set.
        """
        try:
            return self._connection.recv(framing.RECEIVE_BYTES, flags)
        except ConnectionError:
            return b""

    def _append(self, received: messages.ToWorker) -> None:
        message = self._sequences.from_wire(received)
        if message is not None:
            self._messages.append(message)


def _encode_outcome(sequence: Sequence) -> messages.Answer | messages.Failure:
    outcome = sequence.outcome
    assert outcome is not None
    if isinstance(outcome, SequenceResult):
        return messages.Answer(outcome)
    return messages.Failure(type(outcome).__name__, outcome.message)


def exit_when_closed(connection: socket.socket) -> None:
    """Start a thread that ends this process as soon as the other side of a connection has closed."""

    def watch() -> None:
        poll = select.poll()
        poll.register(connection, 0)  # poll always reports a hang-up
        poll.poll()
        os._exit(0)

    threading.Thread(target=watch, name="watch", daemon=True).start()
