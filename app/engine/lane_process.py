"""A lane's own process: the engine's loop over a runner that was loaded here, told and telling through a socket."""

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
from app.engine import wire
from app.engine.busy import BusyPage
from app.engine.core import EngineCore
from app.engine.messages import Cancel, Join, Message, Prioritize, Report, Stop, Submit
from app.engine.sequence import Sequence, SequenceResult
from app.errors import BundleError, SettingsError
from app.observability.logging import flush_log
from app.runtime.interface import Limits, Runner
from app.runtime.stop_condition import WakeFlag

logger = logging.getLogger(__name__)


class LaneProcess:
    """One lane: load, say so, step until told to stop. Everything runs on the thread that calls `run`."""

    def __init__(self, connection: socket.socket, page: BusyPage, number: int) -> None:
        """connection: to the engine. page: shared with it. number: the lane's own."""
        self._connection = connection
        self._page = page
        self._number = number
        self._num_busy = 0

    def run(self, load: Callable[[], Runner]) -> None:
        """Until the engine says stop or has gone. What keeps the model from loading is told to it."""
        end_with(self._connection)
        self._tell(wire.Begun(os.getpid()))
        try:
            runner = load()
        except (BundleError, SettingsError) as error:
            return self._tell(wire.NotLoaded.of(error))
        self._tell(wire.Loaded(runner.limits))
        sentences = Sentences(runner.limits)
        inbox = SocketInbox(self._connection, sentences, self._page.wake_flags[self._number])
        started = inbox.get_started()
        if started is None:
            return None

        def on_step(started_at: float | None) -> None:
            was_idle = self._page.get(self._number) is None
            self._page.set(self._number, started_at)
            if was_idle != (started_at is None):
                self._page.wake_others(self._number)  # whose threads are as many as lanes are idle
            if started_at is not None and (num_busy := self._page.num_busy()) != self._num_busy:
                self._num_busy = num_busy
                runner.share_cores(num_busy)

        core = EngineCore(
            runner,
            started.settings,
            report=lambda report: self._tell(sentences.reported(report)),
            incoming=inbox,
            on_step=on_step,
        )
        has_died = True
        try:
            core.run()
            has_died = False
        except Exception:
            logger.exception("a lane of the engine has died")
            flush_log()  # the engine may end this process once it has been told
        self._tell(wire.Exited(has_died))
        return None

    def _tell(self, message: wire.FromLane) -> None:
        try:
            self._connection.sendall(wire.frame(message))
        except OSError:
            os._exit(0)  # the engine has gone, and nobody waits for anything here


class Sentences:
    """The sentences of this lane by the engine's numbers, and what is said of them turned into messages and back."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_key: dict[int, Sequence] = {}
        self._keys: dict[Sequence, int] = {}

    def message(self, told: wire.ToLane) -> Message | None:
        """As the engine's loop takes it; None where it is of a sentence that has ended here already."""
        if isinstance(told, wire.Submitted):
            return Submit(self._add(told), listens=told.listens)
        if isinstance(told, wire.Stopped | wire.Started):
            return Stop()
        sequence = self._by_key.get(told.key)
        if sequence is None:
            return None
        if isinstance(told, wire.Joined):
            return Join(sequence, told.caller, told.request_id, told.deadline, listens=told.listens)
        if isinstance(told, wire.Prioritized):
            return Prioritize(sequence)
        self._forget(sequence)
        return Cancel(sequence)

    def reported(self, report: Report) -> wire.Reported:
        """As it goes over the wire. Who has left meanwhile is left out."""
        news = [
            wire.News(self._keys[one.sequence], one.position, one.ids)
            for one in report.news
            if one.sequence in self._keys
        ]
        ended = [(self._forget(one), _outcome(one)) for one in report.ended if one in self._keys]
        return wire.Reported(ended, report.steps, news)

    def _add(self, told: wire.Submitted) -> Sequence:
        limits = self._limits
        ids = np.frombuffer(told.source_ids, np.int32)
        search = new_search(told.options, bos_id=limits.bos_id, eos_id=limits.eos_id, source_ids=ids.tolist())
        sequence = Sequence(
            ids, told.options, told.request_id, told.caller, told.deadline, told.submitted_at, search
        )
        self._by_key[told.key] = sequence
        self._keys[sequence] = told.key
        return sequence

    def _forget(self, sequence: Sequence) -> int:
        key = self._keys.pop(sequence)
        del self._by_key[key]
        return key


class SocketInbox:
    """The engine's messages as its loop reads them. Where the engine has gone, the next one is Stop."""

    def __init__(self, connection: socket.socket, sentences: Sentences, wake_flag: WakeFlag) -> None:
        self.wake_flag = wake_flag
        self._connection = connection
        self._sentences = sentences
        self._frames = wire.Frames()
        self._decoder = msgspec.msgpack.Decoder(wire.ToLane)
        self._messages: deque[Message] = deque()

    def get_started(self) -> wire.Started | None:
        """The first message, awaited; None where the engine has gone or stops the lane instead."""
        frames = self._frames.first(lambda: self._read(0))
        told = [self._decoder.decode(found) for found in frames]
        for other in told[1:]:
            self._take(other)
        return told[0] if told and isinstance(told[0], wire.Started) else None

    def empty(self) -> bool:
        """Whether nothing has come. Never waits."""
        if not self._messages:
            self._receive(socket.MSG_DONTWAIT)
        return not self._messages

    def get(self) -> Message:
        """The next message, awaited."""
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
        for found in self._frames.take(data):
            self._take(self._decoder.decode(found))

    def _read(self, flags: int) -> bytes:
        """What has come; nothing where the engine has gone. Raises BlockingIOError where it would wait and may not."""
        try:
            return self._connection.recv(wire.RECEIVE_BYTES, flags)
        except ConnectionError:
            return b""

    def _take(self, told: wire.ToLane) -> None:
        message = self._sentences.message(told)
        if message is not None:
            self._messages.append(message)


def _outcome(sequence: Sequence) -> wire.Answer | wire.Failure:
    outcome = sequence.outcome
    assert outcome is not None
    if isinstance(outcome, SequenceResult):
        return wire.Answer(outcome)
    return wire.Failure(type(outcome).__name__, outcome.message)


def end_with(connection: socket.socket) -> None:
    """End this process as soon as the other side of a connection has gone, whatever it is doing."""

    def watch() -> None:
        poll = select.poll()
        poll.register(connection, 0)  # told of a hang-up all the same
        poll.poll()
        os._exit(0)

    threading.Thread(target=watch, name="watch", daemon=True).start()
