"""Counts a request towards the limits of its key, and makes the headers that report these limits."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

from starlette.types import Scope

from app.errors import UsageUnavailable
from app.stores.usage import Spending, Usage


async def begin_spending(scope: Scope, usage: Usage, num_characters: int) -> Spending:
    """Count a request with this many code points. The caller does the work in the context of the result.

    Raises QuotaExceeded, PayloadTooLarge, UsageUnavailable. The headers of the limits are added to the response, even
    to an error response, but not for UsageUnavailable. They show the counts when the response begins. If the work
    fails before that, the headers do not include the counts that the spending has given back.
    """
    caller = scope["state"]["caller"]
    with _reported(scope, usage, caller):
        return await usage.begin(caller, num_characters)


async def spend_characters(scope: Scope, usage: Usage, spending: Spending, num_characters: int) -> None:
    """Count further code points of a request. Raises the errors of `begin_spending`, and updates the same headers."""
    with _reported(scope, usage, spending.caller):
        await usage.count_characters(spending, num_characters)


@contextlib.contextmanager
def _reported(scope: Scope, usage: Usage, caller: str) -> Iterator[None]:
    """Add the headers of the limits to the response, even to an error response, unless the counts are unavailable."""
    are_known = True
    try:
        yield
    except UsageUnavailable:
        are_known = False
        raise
    finally:
        scope["state"]["limit_headers"] = lambda: limit_headers(usage, caller) if are_known else []


def limit_headers(usage: Usage, caller: str) -> list[tuple[bytes, bytes]]:
    """RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers-10; none for a key without limits.

    q: the limit. w: seconds of the period. r: what is left of the limit. t: seconds until the next period begins.
    """
    limits = usage.limit_usages(caller)
    if not limits:
        return []
    now = usage.clock()
    policies, rests = [], []
    for name, limit, remaining, period in (
        (each.kind.name, each.limit, each.remaining, each.period) for each in limits
    ):
        policies.append(f'"{name}";q={limit};w={period.ends_at - period.starts_at}')
        rests.append(f'"{name}";r={remaining};t={max(1, math.ceil(period.ends_at - now))}')
    return [
        (b"ratelimit-policy", ", ".join(policies).encode()),
        (b"ratelimit", ", ".join(rests).encode()),
    ]
