"""A request's reservation of engine capacity.

A request whose sentences are all cached is admitted even if the engine has no capacity for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Protocol

from app.decoding.options import DecodingOptions
from app.engine.admission import Reservation
from app.engine.speed import Cost
from app.errors import Overloaded

# The maximum number of provisional requests at the same time. The engine refuses such a request, but the server
# tokenises it to look up its sentences in the cache.
# If larger, an overloaded server spends more time on requests that it refuses. If smaller, it refuses more requests
# whose sentences are all cached.
MAX_PROVISIONAL = 8


class CachedSentences(Protocol):
    """The methods of `CachingSubmitter` that admission calls.

    num_provisional: requests admitted although the engine refuses them, until `AdmissionTicket.finalize` knows their
        cost.
    """

    num_provisional: int

    @property
    def keeps_results(self) -> bool: ...  # noqa: D102
    def has(self, source_ids: Sequence[int], options: DecodingOptions) -> bool: ...  # noqa: D102


class AdmissionTicket:
    """A reservation of engine capacity. A `with` block holds it around all of a request's work.

    Cached sentences cost nothing. If the engine refuses a request, because the queue is full or the result would be
    late, the request is therefore admitted provisionally, but only if results are cached and fewer than MAX_PROVISIONAL
    requests are provisional. `finalize` then refuses it unless all of its sentences are cached.
    """

    def __init__(self, cached: CachedSentences, reservation: Reservation) -> None:
        self._cached = cached
        self._scope = self._reservation = reservation
        self._refusal: Overloaded | None = None
        self._is_provisional = False

    def __enter__(self) -> AdmissionTicket:
        """Raises Overloaded if the engine refuses the request and it is not admitted provisionally."""
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
        # The traceback of the refusal refers to this ticket. If it were kept, only the garbage collector would free the
        # request.
        self._refusal = None
        if is_admitted:
            self._scope.__exit__(kind, error, trace)

    def finalize(
        self, sentences: Iterable[tuple[Sequence[int], DecodingOptions, int]], *, checks_bounds: bool = True
    ) -> None:
        """Replace the estimate by the cost of all sentences.

        sentences: the ids, the options and the expected number of decodings of each sentence. The caller submits them
        soon, because a sentence that leaves the cache before its submission is decoded without a reservation.
        checks_bounds: whether to raise Overloaded if the sentences are more than was estimated and the queue is full.
        Also raises Overloaded if the result is predicted to miss the deadline, and for a provisional request with a
        sentence that is not cached.
        """
        self._end_provisional()
        uncached = [
            (max(len(ids), options.min_target_length) * num_decodings, Cost.of(1, len(ids), options))
            for ids, options, num_decodings in sentences
            if not self._cached.has(ids, options)
        ]
        if self._refusal is None:
            longest = max((length for length, _ in uncached), default=0)
            total = Cost.sum(cost for _, cost in uncached)
            self._reservation.resize(total, longest=longest, checks_bounds=checks_bounds)
        elif uncached:
            raise self._refusal

    def _end_provisional(self) -> None:
        if self._is_provisional:
            self._is_provisional = False
            self._cached.num_provisional -= 1
