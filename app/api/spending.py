"""Counts a request towards the limits of its key, and makes the headers that report these limits."""

from __future__ import annotations

from starlette.types import Scope

from app.stores.usage import Spending, Usage


async def begin_spending(scope: Scope, usage: Usage, num_characters: int) -> Spending:
    """Count a request with this many code points. The caller does the work in the context of the result.

    Raises QuotaExceeded, PayloadTooLarge, UsageUnavailable. The headers of the limits are added to the response, also
    to an error.
    """
    state = scope["state"]
    try:
        return await usage.begin(state["caller"], num_characters)
    finally:
        state["limit_headers"] = limit_headers(usage, state["caller"])


async def spend_characters(scope: Scope, usage: Usage, spending: Spending, num_characters: int) -> None:
    """Count further code points of a request. Raises the errors of `begin_spending`, and updates the same headers."""
    try:
        await usage.count_characters(spending, num_characters)
    finally:
        scope["state"]["limit_headers"] = limit_headers(usage, spending.caller)


def limit_headers(usage: Usage, caller: str) -> list[tuple[bytes, bytes]]:
    """RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers-10; none for a key without limits.

    q: the limit. w: seconds of the period. r: what is left of the limit. t: seconds until the next period begins.
    """
    standings = usage.standings(caller)
    if not standings:
        return []
    now = usage.clock()
    policies, rests = [], []
    for name, limit, remaining, period in (
        (each.kind.name, each.limit, each.remaining, each.period) for each in standings
    ):
        policies.append(f'"{name}";q={limit};w={period.ends_at - period.starts_at}')
        rests.append(f'"{name}";r={remaining};t={max(1, int(period.ends_at - now))}')
    return [
        (b"ratelimit-policy", ", ".join(policies).encode()),
        (b"ratelimit", ", ".join(rests).encode()),
    ]
