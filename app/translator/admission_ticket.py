"""A request's reservation of engine capacity, which a full queue does not refuse if all sentences are cached."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Protocol

from app.decoding.options import DecodingOptions
from app.engine.admission import Reservation
from app.engine.speed import Cost
from app.errors import Overloaded

# Requests at a time that are split and tokenised although the queue is full, to look their sentences up in the cache.
# Larger: an overloaded server spends more time on requests that it refuses. Smaller: it refuses more cached ones.
MAX_PROVISIONAL = 8


class CachedSentences(Protocol):
    """The cache of results, as admission needs it.

    num_provisional: requests admitted past a full queue until `AdmissionTicket.finalize` knows their cost.
    """

    num_provisional: int

    @property
    def keeps_results(self) -> bool: ...  # noqa: D102
    def has(self, source_ids: Sequence[int], options: DecodingOptions) -> bool: ...  # noqa: D102


class AdmissionTicket:
    """A reservation of engine capacity, held with `with` around all of a request's work.

    Cached sentences cost nothing. If the queue is full, a request is therefore admitted provisionally, and `finalize`
    refuses it unless all of its sentences are cached.
    """

    def __init__(self, cached: CachedSentences, reservation: Reservation) -> None:
        self._cached = cached
        self._scope = self._reservation = reservation
        self._refusal: Overloaded | None = None
        self._is_provisional = False

    def __enter__(self) -> AdmissionTicket:
        """Raises Overloaded."""
        try:
            self._reservation = self._scope.__enter__()
        except Overloaded as refusal:
            if not self._cached.keeps_results or self._cached.num_provisional >= MAX_PROVISIONAL:
                raise
            self._refusal = refusal
            self._is_provisional = True
            self._cached.num_provisional += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_provisional()
        is_admitted = self._refusal is None
        self._refusal = (
            None  # its traceback holds this ticket: only the garbage collector would free the request
        )
        if is_admitted:
            self._scope.__exit__(kind, error, trace)

    def finalize(self, sentences: Iterable[tuple[Sequence[int], DecodingOptions, int]]) -> None:
        """Replace the estimate by the cost of all sentences: ids, options and expected number of decodings of each.

        The sentences must be submitted without waiting, so that those in the cache stay there. Raises Overloaded for a
        provisional request with a sentence that is not cached, and if the result is predicted to miss the deadline.
        """
        self._end_provisional()
        uncached = [
            (max(len(ids), options.min_target_length) * num_decodings, Cost.of(1, len(ids), options))
            for ids, options, num_decodings in sentences
            if not self._cached.has(ids, options)
        ]
        if self._refusal is None:
            longest = max((length for length, _ in uncached), default=0)
            self._reservation.resize(Cost.sum(cost for _, cost in uncached), longest=longest)
        elif uncached:
            raise self._refusal

    def _end_provisional(self) -> None:
        if self._is_provisional:
            self._is_provisional = False
            self._cached.num_provisional -= 1
