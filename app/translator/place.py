"""A request's place in the engine's queue, and the way past a full queue for who needs nothing of the engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Protocol

from app.decoding.options import DecodingOptions
from app.engine.admission import Reservation
from app.engine.speed import Cost
from app.errors import Overloaded

# Requests at once that may find out, past a full queue, whether all their sentences are known: what one costs is
# splitting and tokenising.
MAX_UNDECIDED = 8


class Known(Protocol):
    """Who knows which sentences are answered without the engine.

    num_undecided: requests that were let in past a full queue, until it is known what they cost.
    """

    num_undecided: int

    @property
    def keeps_results(self) -> bool: ...  # noqa: D102
    def has(self, source_ids: Sequence[int], options: DecodingOptions) -> bool: ...  # noqa: D102


class Place:
    """Held with `with` around the whole of a request's work; given back however that ends.

    Sentences that are known cost nothing. So where the queue is full a request may still go on as far as `settle`,
    which refuses it unless all of its sentences are known.
    """

    def __init__(self, known: Known, reservation: Reservation) -> None:
        self._known = known
        self._scope = self._reservation = reservation
        self._refusal: Overloaded | None = None
        self._is_undecided = False

    def __enter__(self) -> Place:
        """Raises Overloaded."""
        try:
            self._reservation = self._scope.__enter__()
        except Overloaded as refusal:
            if not self._known.keeps_results or self._known.num_undecided >= MAX_UNDECIDED:
                raise
            self._refusal = refusal
            self._is_undecided = True
            self._known.num_undecided += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._decide()
        if self._refusal is None:
            self._scope.__exit__(kind, error, trace)

    def settle(self, sentences: Iterable[tuple[Sequence[int], DecodingOptions, int]]) -> None:
        """What the request costs: ids, options and likely decodings of all its sentences, to be submitted at once.

        Raises Overloaded where there was no place for it from the start, and where its answer is foreseen to come too
        late now that its length is known.
        """
        self._decide()
        unknown = [
            (max(len(ids), options.min_target_length) * rounds, Cost.of(1, len(ids), options))
            for ids, options, rounds in sentences
            if not self._known.has(ids, options)
        ]
        if self._refusal is None:
            longest = max((length for length, _ in unknown), default=0)
            self._reservation.resize(Cost.sum(cost for _, cost in unknown), longest=longest)
        elif unknown:
            raise self._refusal

    def _decide(self) -> None:
        if self._is_undecided:
            self._is_undecided = False
            self._known.num_undecided -= 1
