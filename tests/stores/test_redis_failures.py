"""Redis that fails over, drops a connection or has another clock: counts are added once, and the store recovers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.stores.redis_usage_store import RedisUsageStore
from app.stores.usage_store import Batch, UsageStoreError
from tests.stores.test_usage_store import NOW, RedisServer, count


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    yield server
    server.stop()


def test_a_primary_that_became_a_replica_is_left(redis: RedisServer, tmp_path: Path) -> None:
    """The address leads to the new primary. The old primary keeps the store's connection open."""
    from redis import Redis

    folder, address = tmp_path / "new", tmp_path / "address"
    folder.mkdir()
    address.symlink_to(tmp_path / "socket")
    store = RedisUsageStore(f"unix://{address}")
    store.exchange(None, NOW)
    new = RedisServer(folder)
    try:
        address.unlink()
        address.symlink_to(folder / "socket")
        with closing(Redis.from_url(redis.url)) as client:
            client.replicaof("127.0.0.1", "1")
        with pytest.raises(UsageStoreError, match="ReadOnlyError"):
            store.exchange(Batch(1, {count(): 5}), NOW)
        assert store.exchange(Batch(1, {count(): 5}), NOW) == {count(): 5}
    finally:
        new.stop()
        store.close()


def test_a_connection_that_does_not_answer_is_replaced_at_once(redis: RedisServer) -> None:
    """Redis answers after the timeout of the first try and before the timeout of the second try."""
    from redis import Redis

    store = RedisUsageStore(redis.url)
    store.exchange(None, NOW)
    with closing(Redis.from_url(redis.url)) as client:
        client.client_pause(1500, all=True)
    assert store.exchange(Batch(1, {count(): 5}), NOW) == {count(): 5}
    store.close()


@pytest.mark.parametrize("hours", [-3, 3])
def test_redis_may_have_another_clock(redis: RedisServer, hours: int) -> None:
    """Counts are kept for as long after their period as if the clocks agreed."""
    time_s = time.time() + hours * 3600
    minute = count(kind="requests_per_minute", time_s=time_s)
    store = RedisUsageStore(redis.url)
    assert store.exchange(Batch(1, {minute: 5}), time_s) == {minute: 5}
    assert store.exchange(Batch(2, {minute: 5}), time_s) == {minute: 10}
    store.close()


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/0",
        "redis://127.0.0.1:1/0?unknown=1",
        "redis://127.0.0.1:1/0?ssl_cert_reqs=none",  # an option of rediss:// only
        "redis://127.0.0.1:1/quota",
        "redis://127.0.0.1:1/\u00b2",
        "redis://127.0.0.1:1/0?protocol=9",
        "redis://127.0.0.1:1/0?encoding=unknown",
        "rediss://127.0.0.1:1/0?ssl_cert_reqs=unknown",
        "redis://127.0.0.1:1/0?db=x",
        "redis://127.0.0.1:port/0",
    ],
)
def test_a_bad_url_is_refused_before_the_first_exchange(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        RedisUsageStore(url)


@pytest.mark.parametrize("url", ["redis://h", "redis://h/", "rediss://u:p@h:1/3", "unix:///a/socket?db=2"])
def test_a_url_may_leave_out_the_database(url: str) -> None:
    RedisUsageStore(url).close()


def test_an_invalid_host_name_is_a_failure_of_the_store() -> None:
    with closing(RedisUsageStore("redis://a..b:6379/0")) as store, pytest.raises(UsageStoreError):
        store.exchange(None, NOW)
