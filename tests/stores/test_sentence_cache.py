"""The cache's limit, eviction order and counts."""

from __future__ import annotations

import random

import pytest

from app.stores.sentence_cache import ENTRY_BYTES, KEY_BYTES, SentenceCache

WEIGHT = 100 + 1 + KEY_BYTES + ENTRY_BYTES  # bytes of an entry: a value of 100 bytes, a key of one byte


def key(number: int) -> bytes:
    return bytes([number])


def filled(count: int, *, room: int) -> SentenceCache[int]:
    """Put `count` entries of WEIGHT bytes into a cache that has room for `room` of them."""
    cache: SentenceCache[int] = SentenceCache(room * WEIGHT)
    for number in range(count):
        cache.put(key(number), number, 100)
    return cache


def test_the_least_recently_used_is_evicted_first() -> None:
    cache = filled(3, room=3)
    assert cache.get(key(0)) == 0
    assert key(1) in cache  # `in` does not count as a use
    cache.put(key(3), 3, 100)
    assert [number for number in range(4) if key(number) in cache] == [0, 2, 3]
    assert cache.get(key(1)) is None
    stats = cache.stats()
    assert (stats.num_hits, stats.num_misses, stats.num_evicted) == (1, 1, 1)
    assert (stats.num_entries, stats.num_bytes) == (3, 3 * WEIGHT)


def test_a_large_value_evicts_several_values_and_a_too_large_value_is_not_added() -> None:
    cache = filled(4, room=4)
    cache.put(b"x", 9, 2 * WEIGHT)
    assert [number for number in range(4) if key(number) in cache] == [3]
    cache.put(b"y", 9, 10 * WEIGHT)
    assert b"y" not in cache
    assert cache.get(b"x") == 9


def test_a_value_may_take_all_of_the_room() -> None:
    cache = filled(1, room=1)
    assert cache.get(key(0)) == 0
    assert cache.stats().num_bytes == WEIGHT


def test_a_repeated_key_replaces_its_value() -> None:
    cache = filled(2, room=4)
    cache.put(key(0), 7, 200)
    assert cache.get(key(0)) == 7
    assert cache.stats().num_bytes == 2 * WEIGHT + 100
    assert cache.stats().num_evicted == 0


def test_a_cache_without_room_stays_empty() -> None:
    cache = filled(2, room=0)
    assert cache.get(key(0)) is None
    assert cache.stats().num_bytes == 0


@pytest.mark.parametrize("seed", range(20))
def test_the_limit_always_holds(seed: int) -> None:
    rng = random.Random(seed)
    cache: SentenceCache[int] = SentenceCache(rng.randrange(10_000))
    for _ in range(300):
        cache.put(bytes([rng.randrange(40)]), 0, rng.randrange(3000))
        stats = cache.stats()
        assert stats.num_bytes <= cache._max_bytes
        assert stats.num_bytes == sum(weight for _, weight in cache._entries.values())
