"""A lane in a process of its own: its steps share neither a core nor Python's lock with the event loop.

The process comes of another that has loaded what all lanes share (`app.engine.origin`) and is told through a pair of
sockets. It ends when the engine says so or is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
import time
from collections import deque

import msgspec

from app import errors
from app.engine import wire
from app.engine.busy import BusyPage
from app.engine.lane import Listener
from app.engine.limits import EngineLimits
from app.engine.messages import Cancel, Join, Message, Prioritize, Report, Submit, wakes
from app.engine.origin import END_TIMEOUT_S, LaneChild, Origin
from app.engine.sequence import Sequence, SequenceResult
from app.engine.token_news import TokenNews
from app.errors import ServiceError
from app.observability.logging import log_event
from app.runtime.interface import Limits

logger = logging.getLogger(__name__)


class ProcessLane:
    """A lane over a runner that its process loads. `load` is for any thread, all else for the event loop's."""

    def __init__(self, origin: Origin, connection: socket.socket, page: BusyPage, number: int) -> None:
        """Take the side of a connection whose other side the process has, or will have.

        origin: which the process comes of. page: shared by the engine's lanes. number: of this one.
        """
        self._origin = origin
        self._child: LaneChild | None = None  # while it has not said which
        self._connection = connection
        self._page = page
        self._number = number
        self._unread: deque[bytes] = deque()  # frames, while it loads
        self._decoder = msgspec.msgpack.Decoder(wire.FromLane)
        self._frames = wire.Frames()
        self._limits: Limits | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listener: Listener | None = None
        self._unsent = bytearray()
        self._num_keys = 0
        self._by_key: dict[int, Sequence] = {}
        self._keys: dict[Sequence, int] = {}
        self._heard_at = -math.inf  # seconds of time.monotonic: its last report

    def load(self) -> None:
        """Wait until its model is there.

        Raises BundleError and SettingsError as its runner's loading, and RuntimeError where the process has ended.
        """
        told = self._awaited()
        if isinstance(told, wire.Begun):
            told = self._awaited()
        if isinstance(told, wire.NotLoaded):
            self.leave()
            raise told.error()
        assert isinstance(told, wire.Loaded)
        self._limits = told.limits
        with contextlib.suppress(TimeoutError):
            self._origin.exit_code()

    def _awaited(self) -> wire.FromLane:
        """The next frame, awaited. Raises RuntimeError where the process has ended instead."""
        if not self._unread:
            self._unread += self._frames.first(lambda: self._connection.recv(wire.RECEIVE_BYTES))
        if not self._unread:
            raise RuntimeError(f"an engine process ended while it loaded, with {self._exit_code()}")
        told: wire.FromLane = self._decoder.decode(self._unread.popleft())
        if isinstance(told, wire.Begun):
            self._child = LaneChild(told.process_id)
        return told

    @property
    def limits(self) -> Limits:
        """As `Lane.limits`, once it is loaded."""
        assert self._limits is not None
        return self._limits

    @property
    def process_id(self) -> int:
        """Of the lane's process, once it is loaded."""
        assert self._child is not None
        return self._child.process_id

    @property
    def step_started_at(self) -> float | None:
        """As `Lane.step_started_at`; where its process does not take up what it was told, since when it is silent."""
        if not self.is_alive:
            return None
        started_at = self._page.get(self._number)
        if started_at is None and self._by_key:
            oldest = next(iter(self._by_key.values()))
            return max(oldest.submitted_at, self._heard_at)
        return started_at

    @property
    def is_alive(self) -> bool:
        """As `Lane.is_alive`."""
        return self._listener is not None

    def start(self, settings: EngineLimits, listener: Listener) -> None:
        """As `Lane.start`."""
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._connection.setblocking(False)
        self._loop.add_reader(self._connection.fileno(), self._on_readable)
        self._tell(wire.Started(settings))

    def put(self, message: Message) -> None:
        """As `Lane.put`."""
        self._say(message)
        if wakes(message):
            self._page.wake_flags[self._number].set()

    def _say(self, message: Message) -> None:
        if isinstance(message, Submit):
            self._tell(self._submitted(message))
        elif not isinstance(message, Join | Prioritize | Cancel):
            self._tell(wire.Stopped())
        elif (key := self._keys.get(message.sequence)) is not None:
            if isinstance(message, Join):
                told = message.caller, message.request_id, message.deadline, message.listens
                self._tell(wire.Joined(key, *told))
            elif isinstance(message, Prioritize):
                self._tell(wire.Prioritized(key))
            else:
                self._forget(key)
                self._tell(wire.Cancelled(key))

    def leave(self) -> None:
        """As `Lane.leave`: a process that has not ended yet is killed, whatever it is doing: it has nothing to keep."""
        self._end_reading()
        self._origin.leave()
        if self._child is None:
            # No more of them come: either this one says at once which it is, or there is none.
            with contextlib.suppress(OSError, RuntimeError):
                self._connection.settimeout(END_TIMEOUT_S)
                self._awaited()
        self._connection.close()
        if self._child is not None:
            self._child.kill()
            with contextlib.suppress(TimeoutError):
                self._child.wait()

    # ---- to the process

    def _submitted(self, message: Submit) -> wire.Submitted:
        sequence = message.sequence
        self._num_keys += 1
        key = self._keys[sequence] = self._num_keys
        self._by_key[key] = sequence
        return wire.Submitted(
            key,
            sequence.source_ids.tobytes(),
            sequence.options,
            sequence.request_id,
            sequence.caller,
            sequence.deadline,
            sequence.submitted_at,
            message.listens,
        )

    def _forget(self, key: int) -> Sequence:
        sequence = self._by_key.pop(key)
        del self._keys[sequence]
        return sequence

    def _tell(self, message: wire.ToLane) -> None:
        """Write what can be written now, and keep the rest until more can."""
        if not self.is_alive:
            return
        data = wire.frame(message)
        if not self._unsent:
            data = data[self._send(data) :]
        if data and self.is_alive:
            assert self._loop is not None
            if not self._unsent:
                self._loop.add_writer(self._connection.fileno(), self._on_writable)
            self._unsent += data

    def _send(self, data: bytes | bytearray) -> int:
        """How many bytes were taken. What ended the process is told when reading finds it gone."""
        try:
            return self._connection.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            return len(data)

    def _on_writable(self) -> None:
        del self._unsent[: self._send(self._unsent)]
        self._page.wake_flags[self._number].set()
        if not self._unsent and self._loop is not None:
            self._loop.remove_writer(self._connection.fileno())

    # ---- from the process

    def _on_readable(self) -> None:
        try:
            data = self._connection.recv(wire.RECEIVE_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        for found in self._frames.take(data):
            told = self._decoder.decode(found)
            if isinstance(told, wire.Reported):
                self._on_reported(told)
            elif isinstance(told, wire.Exited):
                return self._on_exit(has_died=told.has_died)
        if not data:
            self._on_exit(has_died=True)
        return None

    def _on_reported(self, told: wire.Reported) -> None:
        """Hand on a report of this process's own sentences. Who has left meanwhile is left out."""
        self._heard_at = time.monotonic()
        news = [
            TokenNews(self._by_key[one.key], one.position, one.ids)
            for one in told.news
            if one.key in self._by_key
        ]
        ended = []
        for key, outcome in told.ended:
            if key in self._by_key:
                sequence = self._forget(key)
                sequence.outcome = _outcome(outcome)
                ended.append(sequence)
        if self._listener is not None:
            self._listener.on_report(Report(ended, told.steps, news))

    def _on_exit(self, *, has_died: bool) -> None:
        listener = self._listener
        self._end_reading()
        if has_died:
            exit_code = self._exit_code()
            log_event(
                logger,
                logging.CRITICAL,
                "engine_process_died",
                fields={"lane": self._number, "exit": exit_code},
            )
        if listener is not None:
            listener.on_exit(has_died)

    def _end_reading(self) -> None:
        if self._listener is not None and self._loop is not None:
            self._listener = None
            self._loop.remove_reader(self._connection.fileno())
            self._loop.remove_writer(self._connection.fileno())

    def _exit_code(self) -> str:
        """Of the process that closed its side of the connection."""
        try:
            code = self._origin.exit_code()
            if self._child is not None:
                code = self._child.wait()
        except TimeoutError:
            return "no exit in time"
        return f"signal {-code}" if code < 0 else f"exit code {code}"


def start_lanes(origin: Origin, num_lanes: int, given: bytes = b"") -> list[ProcessLane]:
    """The lanes of one engine, which begin to load what is given. Where that fails none is left. Raises OSError."""
    lanes: list[ProcessLane] = []
    with contextlib.ExitStack() as theirs, contextlib.ExitStack() as unless_started:
        unless_started.callback(origin.leave)
        page = BusyPage.of(num_lanes)
        theirs.callback(page.close_descriptor)
        descriptors = [page.descriptor]
        for number in range(num_lanes):
            ours, other = socket.socketpair()
            unless_started.enter_context(ours)
            descriptors.append(theirs.enter_context(other).fileno())
            lanes.append(ProcessLane(origin, ours, page, number))
        origin.divide(given, descriptors)
        unless_started.pop_all()
    return lanes


def _outcome(told: wire.Answer | wire.Failure) -> SequenceResult | ServiceError:
    if isinstance(told, wire.Answer):
        return told.result
    kind: type[ServiceError] = getattr(errors, told.kind)
    return kind(told.message)
