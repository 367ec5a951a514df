"""The queue of sequences that wait for rows: round-robin over callers and over each caller's requests."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, KeysView

from app.engine.sequence import RequestKey, Sequence

# Ordered sets: OrderedDict takes from the front and removes from anywhere in constant time.
Request = OrderedDict[Sequence, None]
Caller = OrderedDict[RequestKey, Request]


class FairQueue:
    """Callers take turns, each caller's requests take turns, and a request's sequences are taken in order.

    So a request of 128 sentences never blocks a request of one sentence, of any caller. After its turn, a caller or
    request goes to the end of its queue, and a new caller or request begins at the end. Let at most c callers wait, and
    let one of them have at most r requests. The i-th sequence of a request of this caller is taken after at most
    i * r * c - 1 others.

    A sequence that several requests wait for is in the queue of each, and is taken once. A request that decodes
    sentences a second time is moved to the front until one of its sequences is taken. Each such move adds one to the
    bound. Sequences that are taken while the caller is skipped (`peek`) do not count.
    """

    def __init__(self) -> None:
        self._callers: OrderedDict[str, Caller] = OrderedDict()
        self._num_sequences = 0

    def __len__(self) -> int:
        return self._num_sequences

    def push(self, sequence: Sequence) -> None:
        """Append a sequence to its request. A new request or caller goes to the end of its queue."""
        self._insert(sequence, sequence.caller, sequence.request)
        self._num_sequences += 1

    def add_request(self, sequence: Sequence, caller: str, key: RequestKey) -> None:
        """Append a waiting sequence to another request as well. Does nothing when the sequence is not queued."""
        if self._contains(sequence, sequence.caller, sequence.request):
            sequence.other_queues.append((caller, key))
            self._insert(sequence, caller, key)

    def prioritize(self, sequence: Sequence) -> None:
        """Move a sequence's request and caller to the front until one sequence is taken.

        Does nothing when the sequence is not queued.
        """
        if self._contains(sequence, sequence.caller, sequence.request):
            self._callers[sequence.caller].move_to_end(sequence.request, last=False)
            self._callers.move_to_end(sequence.caller, last=False)

    @property
    def callers(self) -> KeysView[str]:
        """Callers that have a sequence queued."""
        return self._callers.keys()

    def peek(self, skipped: Collection[str] = ()) -> tuple[str, Sequence] | None:
        """Return the caller whose turn it is and its next sequence; None if there is none. skipped: callers to skip."""
        for key, caller in self._callers.items():
            if key not in skipped:
                return key, next(iter(next(iter(caller.values()))))
        return None

    def pop(self, caller_key: str | None = None) -> Sequence:
        """Remove and return a caller's next sequence. Its request and caller go to the end of their queues.

        caller_key: a caller with a queued sequence; None: the caller whose turn it is. The queue must not be empty.
        """
        if caller_key is None:
            caller_key = next(iter(self._callers))
        caller = self._callers[caller_key]
        key, request = next(iter(caller.items()))
        sequence = next(iter(request))
        caller.move_to_end(key)
        self._callers.move_to_end(caller_key)
        self.remove(sequence)
        return sequence

    def remove(self, sequence: Sequence) -> None:
        """Remove a sequence from the queues of all its requests. Does nothing when it is not queued."""
        if not self._contains(sequence, sequence.caller, sequence.request):
            return
        self._num_sequences -= 1
        for caller, key in {(sequence.caller, sequence.request), *sequence.other_queues}:
            self._discard(sequence, caller, key)

    def _contains(self, sequence: Sequence, caller: str, key: RequestKey) -> bool:
        requests = self._callers.get(caller)
        return requests is not None and sequence in requests.get(key, ())

    def _insert(self, sequence: Sequence, caller: str, key: RequestKey) -> None:
        requests = self._callers.setdefault(caller, OrderedDict())
        requests.setdefault(key, OrderedDict())[sequence] = None

    def _discard(self, sequence: Sequence, caller: str, key: RequestKey) -> None:
        requests = self._callers[caller]
        del requests[key][sequence]
        if not requests[key]:
            del requests[key]
        if not requests:
            del self._callers[caller]
