"""A least-recently-used cache of decoded sentences with a limit in bytes."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
# Bytes of an entry beside key and value, measured: the ordered dictionary's node and slot, and the tuple. If smaller
# than the real size, the cache exceeds its limit.
ENTRY_BYTES = 224
# Bytes of a key's object beside its content.
KEY_BYTES = 48


@dataclass(frozen=True)
class CacheStats:
    """The content of a cache, and its counts since it was created. Sizes in bytes."""

    num_entries: int = 0
    num_bytes: int = 0
    num_hits: int = 0
    num_misses: int = 0
    num_evicted: int = 0


class SentenceCache(Generic[T]):
    """Values by key, for use on one event loop. The values must not change, and the caller passes their sizes."""

    def __init__(self, max_bytes: int) -> None:
        """max_bytes: limit of all entries with their keys and bookkeeping. With 0 the cache stays empty."""
        self._max_bytes = max_bytes
        self._entries: OrderedDict[bytes, tuple[T, int]] = OrderedDict()
        self._num_bytes = 0
        self._num_hits = 0
        self._num_misses = 0
        self._num_evicted = 0

    def __contains__(self, key: bytes) -> bool:
        """Whether the key is cached. This counts no hit or miss, and does not mark the key as used."""
        return key in self._entries

    def get(self, key: bytes) -> T | None:
        """Return the value and mark it as the most recently used, or None. Counted as a hit or a miss."""
        entry = self._entries.get(key)
        if entry is None:
            self._num_misses += 1
            return None
        self._entries.move_to_end(key)
        self._num_hits += 1
        return entry[0]

    def put(self, key: bytes, value: T, num_bytes: int) -> None:
        """Add a value of this size, and evict the least recently used ones. A value beyond the limit is not added."""
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
        """Return the current counts."""
        return CacheStats(
            num_entries=len(self._entries),
            num_bytes=self._num_bytes,
            num_hits=self._num_hits,
            num_misses=self._num_misses,
            num_evicted=self._num_evicted,
        )
