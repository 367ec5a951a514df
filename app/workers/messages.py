"""Messages between the server and a worker process, as tagged MessagePack structs. `framing` makes frames of them.

A key is the server's number for a sequence. Times are seconds of time.monotonic, which on Linux is the same clock in
all processes.
"""

from __future__ import annotations

import msgspec

from app.decoding.options import DecodingOptions
from app.engine.limits import EngineLimits
from app.engine.sequence import SequenceResult
from app.engine.stats import StepStats
from app.errors import BundleError, SettingsError
from app.runtime.interface import Limits


class SubmitSequence(msgspec.Struct, tag="submit", array_like=True):
    """`app.engine.messages.Submit`. source_ids: int32 in the machine's byte order."""

    key: int
    source_ids: bytes
    options: DecodingOptions
    request_id: str
    caller: str
    deadline: float
    submitted_at: float
    streams: bool


class JoinSequence(msgspec.Struct, tag="join", array_like=True):
    """`app.engine.messages.Join`."""

    key: int
    caller: str
    request_id: str
    deadline: float
    streams: bool


class PrioritizeSequence(msgspec.Struct, tag="prioritize", array_like=True):
    """`app.engine.messages.Prioritize`."""

    key: int


class CancelSequence(msgspec.Struct, tag="cancel", array_like=True):
    """`app.engine.messages.Cancel`."""

    key: int


class StartWorker(msgspec.Struct, tag="start", array_like=True):
    """The first frame to a worker, sent after the worker's ModelLoaded. The worker then starts its engine."""

    settings: EngineLimits


class StopWorker(msgspec.Struct, tag="stop", array_like=True):
    """`app.engine.messages.Stop`."""


class WorkerStarted(msgspec.Struct, tag="begun", array_like=True):
    """The first frame from a worker. By then the fork server has loaded the weights of native kernels."""

    process_id: int


class ModelLoaded(msgspec.Struct, tag="loaded", array_like=True):
    """The second frame from a worker: its model is loaded."""

    limits: Limits


class LoadFailed(msgspec.Struct, tag="not-loaded", array_like=True):
    """A model cannot be loaded. From a worker instead of ModelLoaded, or from the fork server as the only frame.

    bundle_name: None if the problems are those of the server's settings.
    """

    bundle_name: str | None
    problems: tuple[str, ...]

    @classmethod
    def of(cls, error: BundleError | SettingsError) -> LoadFailed:
        """Return the message for an error."""
        return cls(error.path if isinstance(error, BundleError) else None, error.problems)

    def error(self) -> BundleError | SettingsError:
        """Return the error of this message."""
        if self.bundle_name is None:
            return SettingsError(self.problems)
        return BundleError(self.bundle_name, self.problems)


class Failure(msgspec.Struct, tag="failure", array_like=True):
    """The error with which a sequence ended. kind: the name of an error in `app.errors`."""

    kind: str
    message: str


class Delta(msgspec.Struct, array_like=True):
    """`app.engine.token_deltas.TokenDelta`."""

    key: int
    position: int
    ids: tuple[int, ...]


class Answer(msgspec.Struct, tag="answer", array_like=True):
    """A sequence's result."""

    result: SequenceResult


class WorkerReport(msgspec.Struct, tag="report", array_like=True):
    """`app.engine.messages.Report`. ended: key and outcome of each sequence that ended."""

    ended: list[tuple[int, Answer | Failure]]
    steps: list[StepStats]
    deltas: list[Delta]


class WorkerExited(msgspec.Struct, tag="exit", array_like=True):
    """The last frame from a worker. has_died: whether an error ended it."""

    has_died: bool


ToWorker = StartWorker | SubmitSequence | JoinSequence | PrioritizeSequence | CancelSequence | StopWorker
FromWorker = WorkerStarted | ModelLoaded | LoadFailed | WorkerReport | WorkerExited
