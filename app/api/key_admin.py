"""GET /admin/keys: the usage and the limits of each API key."""

from __future__ import annotations

from typing import Annotated, NotRequired

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from app.api.admin import TAG, AdminToken
from app.api.http.error_table import OrjsonResponse
from app.api.native.answers import ErrorAnswer
from app.api.openapi import Errors, operation
from app.observability.key_metrics import KeyFigures
from app.stores.key_limits import CONCURRENT, KINDS, LIMIT_NAMES, format_time
from app.stores.usage import KeyTotals, Usage

KEY_ERRORS = Errors(
    ErrorAnswer,
    {
        401: "the administrator's token is missing or wrong",
        503: "the counts cannot be read; see Retry-After",
    },
)


class KeyCount(TypedDict):
    """The requests or characters that a key has used in the current period."""

    used: int
    limit: NotRequired[Annotated[int, Field(description="left out if the key has no such limit")]]
    next_period_at: Annotated[str, Field(description="RFC 3339, in UTC")]


class ConcurrentCount(TypedDict):
    """The number of a key's requests in progress in this server."""

    used: int
    limit: NotRequired[int]


class KeyAnswer(TypedDict):
    """The usage of the keys of one name (TRANSDUCE_API_KEYS_FILE), or of one key (TRANSDUCE_API_KEYS)."""

    name: str
    requests_per_minute: KeyCount
    requests_per_day: KeyCount
    characters_per_day: KeyCount
    characters_per_month: KeyCount
    concurrent_requests: ConcurrentCount
    refused: Annotated[int, Field(description="requests beyond a limit since this server started")]


class KeysAnswer(TypedDict):
    """All keys."""

    keys: list[KeyAnswer]


def add_key_routes(router: APIRouter, usage: Usage, token: AdminToken) -> None:
    """Add the route. token: what a request must send."""

    @router.get("/admin/keys", **operation(TAG, "What each API key has used", KeysAnswer, errors=KEY_ERRORS))
    async def keys(request: Request) -> Response:
        token.check(request)
        await usage.refresh()
        answer: KeysAnswer = {"keys": [_key_answer(usage, name) for name in usage.limits]}
        return OrjsonResponse(answer)


def key_figures(usage: Usage) -> dict[str, KeyFigures]:
    """The figures of each key for the metrics, by name. The totals of a key without a request since the start are 0."""
    found = {}
    for name, limits in usage.limits.items():
        totals = usage.totals.get(name, KeyTotals())
        set_limits = [limit for limit in LIMIT_NAMES if getattr(limits, limit) is not None]
        found[name] = KeyFigures(
            totals.num_requests,
            totals.num_characters,
            usage.num_in_progress(name),
            {limit: totals.refused[limit] for limit in set_limits},
            {each.kind.name: each.used / each.limit for each in usage.limit_usages(name)},
        )
    return found


def _key_answer(usage: Usage, name: str) -> KeyAnswer:
    limits = usage.limits[name]
    answer: dict[str, object] = {"name": name}
    for kind in KINDS.values():
        limit = getattr(limits, kind.name)
        answer[kind.name] = {
            "used": usage.used(name, kind),
            "next_period_at": format_time(kind.period_at(usage.clock()).ends_at),
            **({} if limit is None else {"limit": limit}),
        }
    most = limits.concurrent_requests
    answer[CONCURRENT] = {
        "used": usage.num_in_progress(name),
        **({} if most is None else {"limit": most}),
    }
    answer["refused"] = usage.totals.get(name, KeyTotals()).refused.total()
    return answer  # type: ignore[return-value]  # the names of KINDS and these three are its fields
