"""A sentence on its way through the engine: its request, its search and its rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from app.decoding.options import DecodingOptions, Hypothesis
from app.decoding.search import Search, guarded_search, uses_shortlist, widened_search
from app.errors import ServiceError
from app.runtime.beams import SharedBeam
from app.runtime.interface import Int32s


@dataclass(frozen=True)
class SequenceResult:
    """The result of a sequence.

    hypotheses: best first, num_hypotheses of them (fewer only if the search found fewer).
    queue_time_s: seconds from submission to the first encoding.
    encode_time_s: seconds of the encoder's runs that the sequence was in.
    decode_time_s: seconds from the first encoding to the sequence's end, without encode_time_s.
    num_steps: decoder steps that the sequence was in.
    has_looped: whether the loop guard ended a first attempt. The result is then that of the second attempt
        (`DecodingOptions.loop_guard`).
    is_cached: whether it was decoded for an earlier request; its times and steps are then 0.
    """

    hypotheses: list[Hypothesis]
    queue_time_s: float
    encode_time_s: float
    decode_time_s: float
    num_steps: int
    has_looped: bool = False
    is_cached: bool = False


class RequestKey(NamedTuple):
    """What tells a request from the others of its caller.

    Clients choose the ids, and may give many requests one id. The deadlines of these requests differ, because each
    deadline is counted from its request's arrival.
    """

    request_id: str
    deadline: float


class Status(Enum):
    """Waiting for rows, holding rows, or ended (answered, failed or cancelled)."""

    WAITING = auto()
    RUNNING = auto()
    ENDED = auto()


@dataclass(eq=False)
class Sequence:
    """One sentence being decoded. After its submission only the engine thread changes it, except `is_retry`.

    A worker process has a copy. The server's own object then gets only its outcome, on the event loop.
    request_id: the id of the request that submitted it. request: the key of that request.
    caller: it waits among the requests of this caller. Its rows count for the caller.
    other_queues: callers and keys of other requests that wait for it.
    deadline, submitted_at: seconds of time.monotonic. A request that joins may move the deadline.
    rows: cache row of each live hypothesis of `search`, in the order of the hypotheses; empty unless RUNNING.
    beam: the beam while it is offloaded to the runner (`app.engine.beams`). Until it is reclaimed, `search` is not
        advanced and `rows` are in no order.
    length: the number of columns in the self-attention cache of each of its rows. For a plain greedy search,
        `GreedyRows` has this number, and `length` is set only when rows are moved.
    ancestry: one tuple for each step, from the step that spread its beam on. A tuple has the parent of each hypothesis.
    num_steps: decoder steps so far; those of a plain greedy search are added at its end.
    admitted_at: when it first got rows, in seconds. encode_time_s: seconds of the encoder's runs that it was in.
    has_looped: whether the loop guard ended its first attempt.
    is_retry: whether it decodes a sentence again because of a bad first result. Belongs to the event loop.
    outcome: its result or error once it has ENDED; None when it was cancelled.
    """

    source_ids: Int32s
    options: DecodingOptions
    request_id: str
    caller: str
    deadline: float
    submitted_at: float
    search: Search
    request: RequestKey = field(init=False)
    other_queues: list[tuple[str, RequestKey]] = field(default_factory=list)
    status: Status = Status.WAITING
    rows: list[int] = field(default_factory=list)
    beam: SharedBeam | None = None
    length: int = 0
    ancestry: list[tuple[int, ...]] = field(default_factory=list)
    num_steps: int = 0
    admitted_at: float | None = None
    encode_time_s: float = 0.0
    has_looped: bool = False
    is_retry: bool = False
    outcome: SequenceResult | ServiceError | None = None

    def __post_init__(self) -> None:
        self.request = RequestKey(self.request_id, self.deadline)

    @property
    def num_reserved_rows(self) -> int:
        """Rows reserved from admission to its end, so that it can always finish."""
        return self.options.beam_size

    @property
    def shortlist(self) -> int | None:
        """Which of the shortlist tables its search takes, counted from 0; None: the whole vocabulary."""
        options = self.search.options
        return options.shortlist if uses_shortlist(options) else None

    def result(self, now: float) -> SequenceResult:
        """Return the result of a sequence whose search is done. now: seconds of time.monotonic."""
        assert self.admitted_at is not None
        return SequenceResult(
            hypotheses=self.search.hypotheses(),
            queue_time_s=self.admitted_at - self.submitted_at,
            encode_time_s=self.encode_time_s,
            decode_time_s=now - self.admitted_at - self.encode_time_s,
            num_steps=self.num_steps,
            has_looped=self.has_looped,
        )

    def restart(self) -> None:
        """Discard all progress and rows. The sequence waits again and will start from its source."""
        self.search = self.search.fresh()
        self.status = Status.WAITING
        self.rows = []
        self.length = 0
        self.ancestry = []

    def move_row(self, source: int, target: int) -> None:
        """Replace the row `source` by the row `target`, which gets a copy of its cache."""
        self.rows[self.rows.index(source)] = target
        if self.beam is not None:
            self.beam.move_row(source, target)

    def num_shared_columns(self, one: int, other: int) -> int:
        """Return how many leading columns two hypotheses' rows share: those of their last common ancestor.

        one, other: indices of hypotheses before the current step, which is not in `ancestry` yet. Takes time in
        proportion to the columns that they do not share, which have to be copied.
        """
        length = self.length
        for parents in reversed(self.ancestry):
            length -= 1
            one, other = parents[one], parents[other]
            if one == other:
                return length
        return 0

    def mean_log_probability(self) -> float:
        """Return the best hypothesis' mean log-probability per token. Requires that the search is done."""
        best = self.search.hypotheses()[0]
        return best.log_probability / max(1, len(best.token_log_probabilities))

    def restart_widened(self) -> None:
        """Start again with the whole vocabulary, without encoding again: the first row still holds the source."""
        self.search = widened_search(self.search)
        self.length = 0
        self.ancestry = []

    def restart_guarded(self) -> None:
        """Start the second attempt after a loop, without encoding again: the first row still holds the source."""
        self.search = guarded_search(self.search)
        self.has_looped = True
        self.length = 0
        self.ancestry = []
