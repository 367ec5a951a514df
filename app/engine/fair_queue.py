"""Sentences that wait for rows, and whose turn it is."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, KeysView

from app.engine.sequence import Sequence

# Ordered sets: OrderedDict takes from the front and removes from anywhere in constant time.
Request = OrderedDict[Sequence, None]
Caller = OrderedDict[str, Request]


class FairQueue:
    """Callers take turns, each caller's requests take turns, and a request's sentences come in their order.

    So a request of 128 sentences never blocks one of a single line, whoever sent either. While a sentence
    waits as the i-th of its request, with at most c callers waiting and at most r requests of its own caller, at
    most i * r * c - 1 sentences are taken before it: who comes back, or comes new, goes to the end of the line.
    A sentence that several requests wait for stands in the line of each, and is taken once. A request whose sentences
    were decoded and are to be decoded again is next, for one sentence: each that comes back so adds one to the bound.
    """

    def __init__(self) -> None:
        self._callers: OrderedDict[str, Caller] = OrderedDict()
        self._num_sequences = 0

    def __len__(self) -> int:
        return self._num_sequences

    def push(self, sequence: Sequence) -> None:
        """To the end of its request; a new request goes to the end of its caller's, a new caller to the end."""
        self._stand(sequence, sequence.caller, sequence.request_id)
        self._num_sequences += 1

    def push_again(self, sequence: Sequence, caller: str, request_id: str) -> None:
        """Another request waits for it too, at the end of its own line. Without effect where it does not wait here."""
        if self._stands(sequence, sequence.caller, sequence.request_id):
            sequence.more_places.append((caller, request_id))
            self._stand(sequence, caller, request_id)

    def prioritize(self, sequence: Sequence) -> None:
        """Its request is next, and its caller, for one sentence. Without effect where it does not wait here."""
        if self._stands(sequence, sequence.caller, sequence.request_id):
            self._callers[sequence.caller].move_to_end(sequence.request_id, last=False)
            self._callers.move_to_end(sequence.caller, last=False)

    @property
    def callers(self) -> KeysView[str]:
        """Those that have a sentence here."""
        return self._callers.keys()

    def peek(self, but: Collection[str] = ()) -> tuple[str, Sequence] | None:
        """The caller whose turn it is, and its sentence; None where there is none. but: those that are passed over."""
        for key, caller in self._callers.items():
            if key not in but:
                return key, next(iter(next(iter(caller.values()))))
        return None

    def pop(self, caller_key: str | None = None) -> Sequence:
        """Take a caller's next, by default of the one whose turn it is. There must be one.

        Its request and caller go to the end of their lines.
        """
        if caller_key is None:
            caller_key = next(iter(self._callers))
        caller = self._callers[caller_key]
        request_id, request = next(iter(caller.items()))
        sequence = next(iter(request))
        caller.move_to_end(request_id)
        self._callers.move_to_end(caller_key)
        self.remove(sequence)
        return sequence

    def remove(self, sequence: Sequence) -> None:
        """Take one out of turn: it has no wish to be served any more. Does nothing where it does not wait here."""
        if not self._stands(sequence, sequence.caller, sequence.request_id):
            return
        self._num_sequences -= 1
        for caller, request_id in {(sequence.caller, sequence.request_id), *sequence.more_places}:
            self._leave(sequence, caller, request_id)
        sequence.more_places.clear()

    def _stands(self, sequence: Sequence, caller: str, request_id: str) -> bool:
        requests = self._callers.get(caller)
        return requests is not None and sequence in requests.get(request_id, ())

    def _stand(self, sequence: Sequence, caller: str, request_id: str) -> None:
        requests = self._callers.setdefault(caller, OrderedDict())
        requests.setdefault(request_id, OrderedDict())[sequence] = None

    def _leave(self, sequence: Sequence, caller: str, request_id: str) -> None:
        requests = self._callers[caller]
        del requests[request_id][sequence]
        if not requests[request_id]:
            del requests[request_id]
        if not requests:
            del self._callers[caller]
