"""Answers to sentences that were asked before, as many as fit into so many bytes; the longest unused goes first."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
# Of an entry beside key and value: its node in the ordered dictionary, its slot in the table, and itself; measured.
ENTRY_BYTES = 224
# Above a key's own bytes.
KEY_BYTES = 48


@dataclass(frozen=True)
class CacheStats:
    """What a cache holds, and what it has done since it was made. Sizes in bytes."""

    num_entries: int = 0
    num_bytes: int = 0
    num_hits: int = 0
    num_misses: int = 0
    num_evicted: int = 0


class SentenceCache(Generic[T]):
    """Values by key, of one event loop. Whoever puts one in says what it weighs, and never changes it afterwards."""

    def __init__(self, max_bytes: int) -> None:
        """max_bytes: of all entries together, their keys and bookkeeping counted; 0 holds nothing."""
        self._max_bytes = max_bytes
        self._entries: OrderedDict[bytes, tuple[T, int]] = OrderedDict()
        self._num_bytes = 0
        self._num_hits = 0
        self._num_misses = 0
        self._num_evicted = 0

    def __contains__(self, key: bytes) -> bool:
        """Whether `get` would find it. Neither counted nor a use."""
        return key in self._entries

    def get(self, key: bytes) -> T | None:
        """The value, which is now the latest used; None where there is none. Counted."""
        entry = self._entries.get(key)
        if entry is None:
            self._num_misses += 1
            return None
        self._entries.move_to_end(key)
        self._num_hits += 1
        return entry[0]

    def put(self, key: bytes, value: T, num_bytes: int) -> None:
        """Keep a value of so many bytes in the place of what was unused for longest; one too large is not kept."""
        weight = num_bytes + len(key) + KEY_BYTES + ENTRY_BYTES
        if weight > self._max_bytes:
            return
        if key in self._entries:
            self._num_bytes -= self._entries.pop(key)[1]
        self._entries[key] = (value, weight)
        self._num_bytes += weight
        while self._num_bytes > self._max_bytes:
            self._num_bytes -= self._entries.popitem(last=False)[1][1]
            self._num_evicted += 1

    def stats(self) -> CacheStats:
        """As it stands now."""
        return CacheStats(
            num_entries=len(self._entries),
            num_bytes=self._num_bytes,
            num_hits=self._num_hits,
            num_misses=self._num_misses,
            num_evicted=self._num_evicted,
        )
