"""The routes for monitoring (/livez, /readyz and /metrics), and those for the OpenAPI document."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from typing_extensions import TypedDict

from app.api.docs_page import POLICY, docs_page
from app.api.http.error_table import OrjsonResponse
from app.api.native.answers import ErrorAnswer
from app.api.openapi import Errors, operation
from app.api.page import page_paths
from app.api.service import Service
from app.observability.metrics import CONTENT_TYPE

Json = dict[str, Any]
NOT_READY_STATUS = 503
TAG = "server"


class ProbeAnswer(TypedDict):
    """The answer of a probe."""

    status: Annotated[str, Field(description="ok, or the reason for status 503")]


_NO_KEY = Errors(ErrorAnswer, {401: "the request has no API key", 403: "the API key is unknown"})
_NOT_OK = Errors(ProbeAnswer, {NOT_READY_STATUS: "the probe fails; `status` says why"})


def add_probes(router: APIRouter, service: Service) -> None:
    """Add /livez, /readyz and /metrics."""

    @router.get(
        "/livez", **operation(TAG, "503 once this process should be replaced", ProbeAnswer, errors=_NOT_OK)
    )
    async def livez(_request: Request) -> Response:
        return _probe(service.why_not_live())

    @router.get(
        "/readyz",
        **operation(TAG, "503 while this server should get no traffic", ProbeAnswer, errors=_NOT_OK),
    )
    async def readyz(_request: Request) -> Response:
        return _probe(service.why_not_ready())

    @router.get("/metrics", **operation(TAG, "Prometheus metrics", "text/plain", errors=_NO_KEY))
    async def metrics(_request: Request) -> Response:
        await service.usage.refresh_for_scrape()
        return Response(service.metrics.render(), headers={"content-type": CONTENT_TYPE})


def add_docs(router: APIRouter, describe: Callable[[], Json]) -> None:
    """Add the routes of the OpenAPI document and of its page, which loads no other file.

    describe: returns the document. A call takes about 100 ms and runs off the event loop. Its result is kept.
    """
    document = functools.cache(describe)
    page = functools.cache(lambda: docs_page(document()))

    @router.get(
        "/openapi.json", **operation(TAG, "This description of the API", "application/json", errors=_NO_KEY)
    )
    async def openapi(_request: Request) -> Response:
        return OrjsonResponse(await asyncio.to_thread(document))

    @router.get("/docs", include_in_schema=False)
    async def docs(_request: Request) -> Response:
        text = await asyncio.to_thread(page)
        return Response(text, media_type="text/html", headers={"content-security-policy": POLICY})


def api_routes(router: APIRouter) -> list[tuple[str, str]]:
    """Method and path of every route, without the web pages and the preflight routes."""
    pages = {"/docs", *page_paths()}
    return [
        (method, route.path)
        for route in router.routes
        if isinstance(route, Route) and route.path not in pages
        for method in sorted(route.methods or ())
        if method not in {"HEAD", "OPTIONS"}
    ]


def _probe(problem: str | None) -> Response:
    if problem is None:
        return OrjsonResponse({"status": "ok"})
    return OrjsonResponse({"status": problem}, status_code=NOT_READY_STATUS)
