"""Records which sentences held rows, and when. Without a recording, ended sentences are not looked at."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from app.engine.sequence import Sequence, SequenceResult

# The maximum number of sentences in one recording. Larger: a recording of a busy server takes more memory, 250 bytes a
# sentence.
MAX_SPANS = 100_000


class RowSpan(NamedTuple):
    """A sentence that was decoded. Times are seconds of time.monotonic.

    worker: the worker's number in the statistics. began_at: when the sentence got its rows. num_rows: the rows that it
    held until ended_at. num_steps: decoder steps. queue_s, encode_s: its wait for rows, and its time in the encoder.
    """

    worker: int
    request_id: str
    began_at: float
    ended_at: float
    num_rows: int
    num_steps: int
    num_source_tokens: int
    queue_s: float
    encode_s: float


class RowRecorder:
    """Records the sentences of all engines of a server. Every method is called on the event loop.

    is_on: whether a recording is under way.
    """

    def __init__(self) -> None:
        self.is_on = False
        self._recordings: list[list[RowSpan]] = []

    def add(self, worker: int, ended: Iterable[Sequence]) -> None:
        """Record sentences that have ended. Those without a result are left out, because their times are unknown."""
        spans = [
            _span(worker, each, each.outcome) for each in ended if isinstance(each.outcome, SequenceResult)
        ]
        for recording in self._recordings:
            recording += spans[: MAX_SPANS - len(recording)]

    @contextlib.contextmanager
    def recording(self) -> Iterator[list[RowSpan]]:
        """Record until the context ends. The list gets the first MAX_SPANS sentences that end meanwhile."""
        spans: list[RowSpan] = []
        self._recordings.append(spans)
        self.is_on = True
        try:
            yield spans
        finally:
            self._recordings = [each for each in self._recordings if each is not spans]
            self.is_on = bool(self._recordings)


def _span(worker: int, ended: Sequence, result: SequenceResult) -> RowSpan:
    began_at = ended.submitted_at + result.queue_time_s
    return RowSpan(
        worker,
        ended.request_id,
        began_at,
        began_at + result.encode_time_s + result.decode_time_s,
        ended.num_reserved_rows,
        result.num_steps,
        len(ended.source_ids),
        result.queue_time_s,
        result.encode_time_s,
    )
