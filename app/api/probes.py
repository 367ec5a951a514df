"""Routes for machines that watch: /livez, /readyz, /metrics, and the description of the API."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable

from fastapi import APIRouter
from starlette.responses import Response
from starlette.routing import Route

from app.api.docs_page import POLICY, docs_page
from app.api.http.error_table import OrjsonResponse
from app.api.openapi import PROBE
from app.api.page import page_paths
from app.api.service import Service
from app.observability.metrics import CONTENT_TYPE

NOT_READY_STATUS = 503


def add_probes(router: APIRouter, service: Service) -> None:
    """Add liveness, readiness and metrics of `service`."""

    @router.get("/livez", openapi_extra=PROBE, summary="503 once this process should be replaced")
    async def livez() -> Response:
        return _probe(service.why_not_live())

    @router.get("/readyz", openapi_extra=PROBE, summary="503 while no traffic should come here")
    async def readyz() -> Response:
        return _probe(service.why_not_ready())

    @router.get("/metrics", summary="Prometheus metrics")
    async def metrics() -> Response:
        return Response(service.metrics.render(), headers={"content-type": CONTENT_TYPE})


def add_docs(router: APIRouter, describe: Callable[[], dict[str, object]]) -> None:
    """Add the OpenAPI document of the native API, and a page of all of the router's routes that loads nothing.

    describe: makes the document, some 30 ms long; called off the event loop for the first who asks.
    """
    page = functools.cache(lambda: docs_page(describe(), api_routes(router)))

    @router.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return OrjsonResponse(await asyncio.to_thread(describe))

    @router.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        text = await asyncio.to_thread(page)
        return Response(text, media_type="text/html", headers={"content-security-policy": POLICY})


def api_routes(router: APIRouter) -> list[tuple[str, str]]:
    """Method and path of every route but the pages for people and what a browser asks before a request."""
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
