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
MAX_PROVISIONAL = 8


class CachedSentences(Protocol):
    """Who knows which sentences are answered without the engine.

    num_provisional: requests that were let in past a full queue, until it is known what they cost.
    """

    num_provisional: int

    @property
    def keeps_results(self) -> bool: ...  # noqa: D102
    def has(self, source_ids: Sequence[int], options: DecodingOptions) -> bool: ...  # noqa: D102


class AdmissionTicket:
    """Held with `with` around the whole of a request's work; given back however that ends.

    Sentences that are known cost nothing. So where the queue is full a request may still go on as far as `settle`,
    which refuses it unless all of its sentences are known.
    """

    def __init__(self, known: CachedSentences, reservation: Reservation) -> None:
        self._cached = known
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
        if self._refusal is None:
            self._scope.__exit__(kind, error, trace)

    def finalize(self, sentences: Iterable[tuple[Sequence[int], DecodingOptions, int]]) -> None:
        """What the request costs: ids, options and likely decodings of all its sentences, to be submitted at once.

        Raises Overloaded where there was no place for it from the start, and where its answer is foreseen to come too
        late now that its length is known.
        """
        self._end_provisional()
        unknown = [
            (max(len(ids), options.min_target_length) * rounds, Cost.of(1, len(ids), options))
            for ids, options, rounds in sentences
            if not self._cached.has(ids, options)
        ]
        if self._refusal is None:
            longest = max((length for length, _ in unknown), default=0)
            self._reservation.resize(Cost.sum(cost for _, cost in unknown), longest=longest)
        elif unknown:
            raise self._refusal

    def _end_provisional(self) -> None:
        if self._is_provisional:
            self._is_provisional = False
            self._cached.num_provisional -= 1
