"""What an engine and a lane in another process write to each other: frames of MessagePack over a pair of sockets.

Sentences are known by a number that the engine gives them. Times are of time.monotonic, which on Linux counts the same
in all processes.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from app.decoding.options import DecodingOptions
from app.engine.limits import EngineLimits
from app.engine.sequence import SequenceResult
from app.engine.stats import StepStats
from app.errors import BundleError, SettingsError
from app.runtime.interface import Limits

# Before each frame its length in bytes.
LENGTH_BYTES = 4
RECEIVE_BYTES = 1 << 18


class Submitted(msgspec.Struct, tag="submit", array_like=True):
    """As `messages.Submit`. source_ids: int32 in the machine's order."""

    key: int
    source_ids: bytes
    options: DecodingOptions
    request_id: str
    caller: str
    deadline: float
    submitted_at: float
    listens: bool


class Joined(msgspec.Struct, tag="join", array_like=True):
    """As `messages.Join`."""

    key: int
    caller: str
    request_id: str
    deadline: float
    listens: bool


class Prioritized(msgspec.Struct, tag="hasten", array_like=True):
    """As `messages.Prioritize`."""

    key: int


class Cancelled(msgspec.Struct, tag="cancel", array_like=True):
    """As `messages.Cancel`."""

    key: int


class Started(msgspec.Struct, tag="start", array_like=True):
    """The first frame to a lane that has loaded."""

    settings: EngineLimits


class Stopped(msgspec.Struct, tag="stop", array_like=True):
    """As `messages.Stop`."""


class Begun(msgspec.Struct, tag="begun", array_like=True):
    """The first frame from a lane, which has yet to say whether its model is there."""

    process_id: int


class Loaded(msgspec.Struct, tag="loaded", array_like=True):
    """Its model is there."""

    limits: Limits


class NotLoaded(msgspec.Struct, tag="not-loaded", array_like=True):
    """Or it is not: what is wrong with the bundle (its name in `path`) or, where that is None, with the settings."""

    path: str | None
    problems: tuple[str, ...]

    @classmethod
    def of(cls, error: BundleError | SettingsError) -> NotLoaded:
        """What an error says."""
        return cls(error.path if isinstance(error, BundleError) else None, error.problems)

    def error(self) -> BundleError | SettingsError:
        """The error that says so."""
        return SettingsError(self.problems) if self.path is None else BundleError(self.path, self.problems)


class Failure(msgspec.Struct, tag="failure", array_like=True):
    """How a sentence ended without a result: `kind` is the name of an error in `app.errors`."""

    kind: str
    message: str


class News(msgspec.Struct, array_like=True):
    """As `TokenNews`."""

    key: int
    position: int
    ids: tuple[int, ...]


class Answer(msgspec.Struct, tag="answer", array_like=True):
    """A sentence's result."""

    result: SequenceResult


class Reported(msgspec.Struct, tag="report", array_like=True):
    """As `messages.Report`; each sentence that ended with its outcome."""

    ended: list[tuple[int, Answer | Failure]]
    steps: list[StepStats]
    news: list[News]


class Exited(msgspec.Struct, tag="exit", array_like=True):
    """The last frame from a lane."""

    has_died: bool


ToLane = Started | Submitted | Joined | Prioritized | Cancelled | Stopped
FromLane = Begun | Loaded | NotLoaded | Reported | Exited

_encoder = msgspec.msgpack.Encoder()


def frame(message: ToLane | FromLane) -> bytes:
    """A message as it goes over the wire."""
    data = _encoder.encode(message)
    return len(data).to_bytes(LENGTH_BYTES, "little") + data


class Frames:
    """Takes bytes as they come and gives whole frames."""

    def __init__(self) -> None:
        self._received = bytearray()

    def first(self, receive: Callable[[], bytes]) -> list[bytes]:
        """The first ones, awaited; none where the other side has gone. receive: the next bytes, none at the end."""
        found: list[bytes] = []
        while not found and (data := receive()):
            found = self.take(data)
        return found

    def take(self, data: bytes) -> list[bytes]:
        """The frames that are whole now."""
        self._received += data
        found, position = [], 0
        while len(self._received) - position >= LENGTH_BYTES:
            begin = position + LENGTH_BYTES
            end = begin + int.from_bytes(self._received[position:begin], "little")
            if end > len(self._received):
                break
            found.append(bytes(self._received[begin:end]))
            position = end
        del self._received[:position]
        return found
