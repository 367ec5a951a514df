"""One sentence on its way through the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from app.decoding.options import DecodingOptions, Hypothesis
from app.decoding.search import Search, guarded_search
from app.errors import ServiceError
from app.runtime.beams import SharedBeam
from app.runtime.interface import Int32s


@dataclass(frozen=True)
class SequenceResult:
    """A sentence's answer.

    hypotheses: best first, num_hypotheses of them (fewer only where the search found fewer).
    queue_time_s: from submission to the first encoding; encode_time_s: the encoder's run that it shared;
    decode_time_s: from there to its end. num_steps: decoder steps that it took part in.
    has_looped: whether the loop guard ended a first attempt, so that this is the second (`DecodingOptions.loop_guard`).
    is_cached: it was decoded for an earlier request; its times and steps are 0.
    """

    hypotheses: list[Hypothesis]
    queue_time_s: float
    encode_time_s: float
    decode_time_s: float
    num_steps: int
    has_looped: bool = False
    is_cached: bool = False


class Status(Enum):
    """Where a sentence stands: waiting for rows, holding rows, or answered (or dropped)."""

    WAITING = auto()
    RUNNING = auto()
    ENDED = auto()


@dataclass(eq=False)
class Sequence:
    """One sentence being decoded. Above the line: written once by whoever submits it. Below: the engine thread's own.

    request_id, caller: in whose turn it is served; more_places: other requests' turns in which it is, caller first.
    deadline, submitted_at: seconds of time.monotonic. Who joins may put off the deadline, on the engine thread.
    rows: cache row of each live hypothesis of `search`, in its order; empty unless RUNNING.
    beam: the search's, while the runner advances it (`app.engine.beams`): until it is taken back the search stands
        where it was, and `rows` are in no order.
    length: columns that each of its rows' self-attention cache holds.
    ancestry: of each step since it spread, which hypothesis before it each one after it continued.
    admitted_at: when it was first given rows; encode_time_s: in the encoder's runs that it shared.
    has_looped: whether the loop guard ended its first attempt.
    is_retry: whether it is the second decoding of what was decoded before; the event loop's own.
    outcome: set when it ENDED by its own doing; None where the caller has gone.
    """

    source_ids: Int32s
    options: DecodingOptions
    request_id: str
    caller: str
    deadline: float
    submitted_at: float
    # ----
    search: Search
    more_places: list[tuple[str, str]] = field(default_factory=list)
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

    @property
    def num_reserved_rows(self) -> int:
        """Rows that are kept for it from admission to its end, so that it can always finish."""
        return self.options.beam_size

    def restart(self) -> None:
        """Forget all progress: its rows are gone. It waits, and starts from its source again."""
        self.search = self.search.fresh()
        self.status = Status.WAITING
        self.rows = []
        self.length = 0
        self.ancestry = []

    def move_row(self, source: int, target: int) -> None:
        """The columns of one of its rows stand in another now."""
        self.rows[self.rows.index(source)] = target
        if self.beam is not None:
            self.beam.move_row(source, target)

    def num_shared_columns(self, one: int, other: int) -> int:
        """The first columns that the rows of two hypotheses hold alike: those they had when they were one.

        The hypotheses are those of before the step whose parents are not in `ancestry` yet. Looks back over the columns
        that they do not share: no more than are to be copied.
        """
        length = self.length
        for parents in reversed(self.ancestry):
            length -= 1
            one, other = parents[one], parents[other]
            if one == other:
                return length
        return 0

    def begin_again_guarded(self) -> None:
        """Its search went round in circles: the second attempt begins in its first row, whose source is there still."""
        self.search = guarded_search(self.search)
        self.has_looped = True
        self.length = 0
        self.ancestry = []
