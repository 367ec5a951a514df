"""Keeps in Redis the counts of what callers use. Servers on several machines may share them."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from app.stores.usage_store import KEPT_S, Batch, Count, UsageStoreError, ends_at, starts_at

if TYPE_CHECKING:
    from redis import Redis

# Seconds that one try of a connection or of a command may take. If larger, an unreachable server is noticed later.
_TIMEOUT_S = 1.0
# The braces put all keys into one slot, so that a proxy of a cluster can run the script. The client itself knows no
# cluster.
_PREFIX = "{transduce-usage}"
# A translation server sends a batch again if Redis's answer was lost. The script adds a batch only if its number is
# above the last one of that server. KEYS: the key of the server's last number, then a hash for each amount. ARGV: the
# batch's number, the seconds for which it is remembered, then for each hash the field, the amount and the seconds for
# which the hash is kept. Seconds are relative, so the clock of Redis may differ from the clocks of the servers.
_ADD = """
if tonumber(redis.call('GET', KEYS[1]) or 0) < tonumber(ARGV[1]) then
    redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
    for i = 2, #KEYS do
        redis.call('HINCRBY', KEYS[i], ARGV[3 * i - 3], ARGV[3 * i - 2])
        redis.call('EXPIRE', KEYS[i], ARGV[3 * i - 1])
    end
end
return 1
"""


class RedisUsageStore:
    """A UsageStore in Redis, with a hash of the callers for each kind and period. The first exchange connects."""

    def __init__(self, url: str) -> None:
        """url: redis://, rediss:// or unix://, with user and password if needed.

        Raises ValueError for a URL with another scheme, an unknown option or a database that is not a number.
        """
        from redis import Redis  # here, because a server without Redis does not need the library
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        self._redis: Redis = Redis.from_url(
            url,
            socket_timeout=_TIMEOUT_S,
            socket_connect_timeout=_TIMEOUT_S,
            # One retry, because a network may have dropped the idle connection. The script adds a repeated batch once.
            retry=Retry(NoBackoff(), 1),
            decode_responses=True,
        )
        _check(url, self._redis)
        self._add = self._redis.register_script(_ADD)
        self._batch_key = f"{_PREFIX}:last_batch:{uuid.uuid4().hex}"

    def exchange(self, batch: Batch | None, time_s: float) -> dict[Count, int]:
        """Add a batch, and read the counts. Raises UsageStoreError."""
        from redis.exceptions import RedisError

        try:
            if batch is not None:
                lives = {count: int(ends_at(count) + KEPT_S - time_s) for count in batch.amounts}
                # The number is remembered as long as any count of the batch is kept. Redis refuses a life of 0 seconds.
                keys, arguments = [self._batch_key], [str(batch.number), str(max([1, *lives.values()]))]
                for count, amount in batch.amounts.items():
                    keys.append(_hash(count.kind, count.starts_at))
                    arguments += [count.caller, str(amount), str(lives[count])]
                self._add(keys=keys, args=arguments)
            starts = starts_at(time_s)
            with self._redis.pipeline(transaction=False) as pipeline:
                for kind, start in starts.items():
                    pipeline.hgetall(_hash(kind, start))
                found = pipeline.execute()
        except (RedisError, UnicodeError) as error:  # UnicodeError: the URL has a name that no host can have
            # Connect anew next time: the address may lead to another server by now, but a primary that became a replica
            # does not close its old connections.
            self._redis.connection_pool.disconnect()
            raise UsageStoreError(f"the usage store failed: {type(error).__name__}") from error
        return {
            Count(caller, kind, start): int(used)
            for (kind, start), row in zip(starts.items(), found, strict=True)
            for caller, used in row.items()
        }

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()


def _check(url: str, redis: Redis) -> None:
    """Raise ValueError, without the URL, for what `Redis.from_url` ignores or notices only at the first command."""
    from redis.exceptions import RedisError

    parts, pool = urlsplit(url), redis.connection_pool
    database = parts.path.strip("/")
    if parts.scheme != "unix" and database and not database.isdecimal():
        raise ValueError("the database is not a number")
    try:
        pool.connection_class(**pool.connection_kwargs)  # it does not connect
        redis.get_encoder().encode("")  # type: ignore[no-untyped-call]
    except (TypeError, LookupError, RedisError) as error:
        raise ValueError("an option is unknown or has no valid value") from error


def _hash(kind: str, start: int) -> str:
    return f"{_PREFIX}:{kind}:{start}"
