"""The stores of counts: what one server adds, another one reads; a store that fails says so and loses nothing."""

from __future__ import annotations

import asyncio
import resource
import shutil
import socket
import sqlite3
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.errors import QuotaExceeded, UsageUnavailable
from app.stores.key_limits import KINDS, KeyLimits
from app.stores.redis_usage_store import RedisUsageStore
from app.stores.usage import Usage
from app.stores.usage_saver import WAIT_S
from app.stores.usage_store import (
    KEPT_S,
    Batch,
    Count,
    SqliteUsageStore,
    UsageStore,
    UsageStoreError,
    starts_at,
)

# Noon of today in UTC.
NOW = time.time() // 86_400 * 86_400 + 43_200
DAY = "characters_per_day"


def count(caller: str = "sales", kind: str = DAY, time_s: float = NOW) -> Count:
    return Count(caller, kind, starts_at(time_s)[kind])


class RedisServer:
    """A Redis that listens on a socket in a folder."""

    def __init__(self, folder: Path) -> None:
        self.url = f"unix://{folder}/socket"
        program = shutil.which("redis-server")
        if program is None:
            pytest.skip("redis-server is not installed")
        self._process = subprocess.Popen(
            [
                program,
                "--port",
                "0",
                "--unixsocket",
                str(folder / "socket"),
                "--save",
                "",
                "--dir",
                str(folder),
            ],
            stdout=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 60
        while not self._listens(folder / "socket"):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                pytest.fail("redis-server does not listen")
            time.sleep(0.02)

    @staticmethod
    def _listens(path: Path) -> bool:
        """Whether the server accepts connections. Its socket exists a moment before it listens."""
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(str(path)) == 0

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", "redis"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[UsageStore, UsageStore]]:
    """Two stores with the same counts, as two servers have them."""
    both: tuple[UsageStore, UsageStore]
    if request.param == "sqlite":
        both = SqliteUsageStore(tmp_path / "usage"), SqliteUsageStore(tmp_path / "usage")
    else:
        url = request.getfixturevalue("redis").url
        both = RedisUsageStore(url), RedisUsageStore(url)
    yield both
    for store in both:
        store.close()


def test_one_server_reads_what_another_one_adds(stores: tuple[UsageStore, UsageStore]) -> None:
    first, second = stores
    assert first.exchange(None, NOW) == {}
    assert first.exchange(Batch(1, {count(): 5, count("shop"): 7}), NOW) == {count(): 5, count("shop"): 7}
    assert second.exchange(Batch(2, {count(): 3}), NOW) == {count(): 8, count("shop"): 7}
    assert first.exchange(Batch(3, {count(): -5}), NOW)[count()] == 3
    assert first.exchange(None, NOW + 86_400) == {}, "the next day has no counts yet"
    assert first.exchange(None, NOW)[count()] == 3


def test_the_counts_outlive_the_server_and_old_ones_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "usage"
    store = SqliteUsageStore(path)
    store.exchange(Batch(1, {count(): 5}), NOW)
    store.close()
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}
    store = SqliteUsageStore(path)
    assert store.exchange(None, NOW)[count()] == 5
    midnight = NOW + 43_200
    store.exchange(Batch(2, {count("shop", DAY, midnight): 1}), midnight + KEPT_S)
    assert store.exchange(None, midnight - 1) == {count(): 5}, "another server's clock may be late"
    later = NOW + 86_400 + KEPT_S
    store.exchange(Batch(3, {count("shop", DAY, later): 1}), later)
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT DISTINCT caller FROM counts").fetchall() == [("shop",)]


def test_all_counts_are_of_one_point_in_time(tmp_path: Path) -> None:
    store, other = (SqliteUsageStore(tmp_path / "usage") for _ in range(2))
    batch = Batch(1, {count(kind=kind): 1 for kind in KINDS})

    def add_between_reads(statement: str) -> None:
        if statement.startswith("SELECT"):
            other.exchange(batch, NOW)

    store.exchange(None, NOW)
    assert store._connection is not None
    store._connection.set_trace_callback(add_between_reads)
    found = store.exchange(None, NOW)
    assert len(found) == len(KINDS) > 1
    assert {*found.values()} == {1}
    for each in (store, other):
        each.close()


def test_redis_adds_a_batch_once_however_late_it_is_sent_again(redis: RedisServer) -> None:
    """Redis keeps the number of a store's last batch as long as the counts, and then forgets both."""
    from redis import Redis

    store = RedisUsageStore(f"{redis.url}?db=15")
    now = time.time()
    today, other_day = count(time_s=now), count(time_s=now - 3 * 86_400)
    for batch, expected in ((Batch(1, {today: 5}), 5), (Batch(2, {today: 3}), 8)):
        assert [store.exchange(batch, now) for _ in range(2)] == [{today: expected}] * 2
    with closing(Redis.from_url(f"{redis.url}?db=15")) as client:
        lives = [client.ttl(key) for key in client.scan_iter()]
        assert len(lives) == 2
        assert max(lives) - min(lives) <= 1
        assert 0 < min(lives) <= max(lives) <= 86_400 + KEPT_S
        assert store.exchange(Batch(3, {other_day: 5}), now) == {today: 8}
        assert len(list(client.scan_iter("*:characters_per_day:*"))) == 1
    store.close()


def test_redis_ignores_a_late_copy_of_an_earlier_batch(redis: RedisServer) -> None:
    """A network may deliver the copy of a batch on a broken connection after the server has sent the next batches."""
    with closing(RedisUsageStore(f"{redis.url}?db=14")) as store:
        first, second = Batch(1, {count(): 100}), Batch(2, {count(): 1})
        assert store.exchange(first, NOW) == {count(): 100}
        assert store.exchange(second, NOW) == {count(): 101}
        for late in (first, second, first):
            assert store.exchange(late, NOW) == {count(): 101}
        assert store.exchange(Batch(10, {count(): 2}), NOW) == {count(): 103}
        assert store.exchange(Batch(9, {count(): 1}), NOW) == {count(): 103}


def test_redis_that_has_ended_is_an_error(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    store = RedisUsageStore(server.url)
    store.exchange(None, NOW)
    server.stop()
    with pytest.raises(UsageStoreError, match="ConnectionError"):
        store.exchange(Batch(1, {count(): 5}), NOW)
    store.close()


def test_a_full_disk_is_an_error_and_loses_nothing(tmp_path: Path) -> None:
    store = SqliteUsageStore(tmp_path / "usage")
    store.exchange(Batch(1, {count(): 5}), NOW)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "usage-wal").stat().st_size, hard))
    try:
        with pytest.raises(UsageStoreError, match="SQLITE_"):
            store.exchange(Batch(2, {count(): 3}), NOW)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert store.exchange(Batch(2, {count(): 3}), NOW)[count()] == 8
    store.close()


@pytest.mark.parametrize("content", [None, b"no database" * 1000, "folder"])
def test_a_path_that_is_no_database_is_an_error(tmp_path: Path, content: bytes | str | None) -> None:
    path = tmp_path / "usage"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        path.mkdir()
    else:
        path = tmp_path / "none" / "usage"
    with pytest.raises(UsageStoreError):
        SqliteUsageStore(path)


def test_a_complete_file_opens_while_another_process_writes_it(tmp_path: Path) -> None:
    store = SqliteUsageStore(tmp_path / "usage")
    store.exchange(Batch(1, {count(): 5}), NOW)
    with closing(sqlite3.connect(tmp_path / "usage", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        second = SqliteUsageStore(tmp_path / "usage")
        assert second.exchange(None, NOW)[count()] == 5
    for each in (store, second):
        each.close()


def test_a_file_that_takes_the_place_of_a_damaged_one_is_used(tmp_path: Path) -> None:
    path, fresh = tmp_path / "usage", tmp_path / "fresh"
    store = SqliteUsageStore(path)
    store.exchange(Batch(1, {count(): 5}), NOW)
    with closing(sqlite3.connect(path)) as other:
        # The file then has all pages, and the store reads them again.
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("r+b") as file:
        file.write(b"no database")
    with pytest.raises(UsageStoreError, match="SQLITE_"):
        store.exchange(Batch(2, {count(): 3}), NOW)
    SqliteUsageStore(fresh).close()
    fresh.rename(path)
    assert store.exchange(Batch(2, {count(): 3}), NOW) == {count(): 3}
    store.close()


def test_a_missing_file_is_not_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "usage"
    store = SqliteUsageStore(path)
    path.unlink()
    with pytest.raises(UsageStoreError, match="CANTOPEN"):
        store.exchange(None, NOW)
    assert not path.exists()


def test_a_file_that_cannot_be_created_is_an_error_that_says_why(tmp_path: Path) -> None:
    with pytest.raises(UsageStoreError, match=r"^a{256} cannot be created in its folder: File name"):
        SqliteUsageStore(tmp_path / ("a" * 256))
    missing = r"^usage\.sqlite cannot be created in its folder: No such file or directory$"
    with pytest.raises(UsageStoreError, match=missing):
        SqliteUsageStore(tmp_path / "missing" / "usage.sqlite")


def test_while_the_file_is_locked_only_keys_with_limits_are_refused(tmp_path: Path) -> None:
    async def scenario() -> int:
        usage = Usage(SqliteUsageStore(tmp_path / "usage"))
        usage.set_limits({"sales": KeyLimits(characters_per_month=1000), "shop": KeyLimits()})
        with await usage.begin("sales", 10), await usage.begin("shop", 10):
            pass
        with closing(sqlite3.connect(tmp_path / "usage", isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            accepted = 10  # characters
            refused: UsageUnavailable | None = None
            while refused is None:
                try:
                    with await usage.begin("sales", 1):
                        accepted += 1
                    await asyncio.sleep(0.05)
                except UsageUnavailable as error:
                    refused = error
            assert 0 < refused.retry_after_s <= 1
            with await usage.begin("shop", 10):
                pass
            other.execute("ROLLBACK")
        while True:
            try:
                with await usage.begin("sales", 1):
                    accepted += 1
                break
            except UsageUnavailable:
                await asyncio.sleep(0.1)
        await usage.close()
        return accepted

    accepted = asyncio.run(scenario())
    store = SqliteUsageStore(tmp_path / "usage")
    kind = KINDS["characters_per_month"]
    found = store.exchange(None, time.time())
    store.close()
    start = kind.period_at(time.time()).starts_at
    assert found[Count("sales", kind.name, start)] == accepted, "nothing that was accepted is lost"
    assert found[Count("shop", kind.name, start)] == 20


class HeldStore(SqliteUsageStore):
    """Each exchange waits for a permit. begun: set when one begins. done: set when one has ended."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.permits = threading.Semaphore(0)
        self.begun, self.done = threading.Event(), threading.Event()

    def exchange(self, batch: Batch | None, time_s: float) -> dict[Count, int]:
        self.begun.set()
        self.permits.acquire()
        found = super().exchange(batch, time_s)
        self.done.set()
        return found


def test_what_is_used_during_an_exchange_counts_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = HeldStore(tmp_path / "usage")
        usage = Usage(store)
        with await usage.begin("shop", 60):
            pass
        await asyncio.to_thread(store.begun.wait)
        with await usage.begin("shop", 30):
            pass
        store.permits.release()
        await asyncio.to_thread(store.done.wait)
        await asyncio.sleep(0.1)  # the event loop takes the counts
        assert usage.used("shop", KINDS[DAY]) == 90
        store.permits.release(9)
        await usage.close()

    asyncio.run(scenario())


def test_a_scrape_reads_the_counts_of_others_but_does_not_wait_for_a_slow_store(tmp_path: Path) -> None:
    async def scenario() -> None:
        other = Usage(SqliteUsageStore(tmp_path / "usage"))
        with await other.begin("shop", 60):
            pass
        await other.close()
        store = HeldStore(tmp_path / "usage")
        usage = Usage(store)
        started = time.monotonic()
        try:
            await usage.refresh_for_scrape()
        finally:
            store.permits.release(9)
        assert time.monotonic() - started < WAIT_S - 0.5
        assert usage.used("shop", KINDS[DAY]) == 0
        await asyncio.to_thread(store.done.wait)
        await usage.refresh_for_scrape()
        assert usage.used("shop", KINDS[DAY]) == 60
        await usage.close()

    asyncio.run(scenario())


def test_two_servers_share_a_quota(tmp_path: Path) -> None:
    async def scenario() -> None:
        first, second = (Usage(SqliteUsageStore(tmp_path / "usage")) for _ in range(2))
        for usage in (first, second):
            usage.set_limits({"sales": KeyLimits(characters_per_month=100)})
        with await first.begin("sales", 60):
            pass
        await asyncio.sleep(2)  # `first` saves its counts, and the counts that `second` has read become stale
        with pytest.raises(QuotaExceeded):
            await second.begin("sales", 41)
        with await second.begin("sales", 40):
            pass
        await asyncio.sleep(2)
        with pytest.raises(QuotaExceeded):
            await first.begin("sales", 1)
        for usage in (first, second):
            await usage.close()

    asyncio.run(scenario())
