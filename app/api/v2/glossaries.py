"""Glossaries at /v2: made, listed, read and deleted, each by the key that made it. docs/http-dialects.md."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.api.http.dialect import DialectError
from app.api.http.error_table import OrjsonResponse
from app.api.http.form_body import read_fields
from app.api.http.values import check_misspelt, choice
from app.api.plain_translation import PlainTranslator
from app.api.v2.fields import read_pair
from app.api.v2.languages import base_of
from app.errors import InvalidRequest, NotReady
from app.observability.logging import log_event
from app.stores.glossaries import (
    EntriesError,
    EntriesFormat,
    GlossaryNotFound,
    GlossaryStore,
    GlossaryStoreError,
    GlossaryStoreFull,
    StoredGlossary,
    format_tsv,
    parse_entries,
)

T = TypeVar("T")
FIELDS = ("name", "source_lang", "target_lang", "entries", "entries_format")
TSV = "text/tab-separated-values"
# For another process to let go of the file, or for somebody to make room.
RETRY_AFTER_S = 5.0
logger = logging.getLogger("app.api.v2.glossaries")


def add_v2_glossary_routes(router: APIRouter, plain: PlainTranslator) -> None:
    """Add the routes."""
    store = plain.service.glossaries

    @router.get("/v2/glossary-language-pairs", include_in_schema=False)
    async def language_pairs() -> Response:
        pairs = sorted(
            {(base_of(source).lower(), base_of(target).lower()) for source, target in plain.pairs()}
        )
        rows = [{"source_lang": source, "target_lang": target} for source, target in pairs]
        return OrjsonResponse({"supported_languages": rows})

    @router.post("/v2/glossaries", include_in_schema=False)
    async def create(request: Request) -> Response:
        pairs = plain.pairs()
        fields = await read_fields(request, max_bytes=plain.limits.max_body_bytes)
        check_misspelt(fields, FIELDS)
        name, languages = fields.get("name"), read_pair(fields, pairs)
        entries = fields.get("entries")
        if not isinstance(name, str) or not isinstance(entries, str):
            raise InvalidRequest("name and entries must be strings", field="name")
        entries_format = EntriesFormat(
            choice(fields.get("entries_format"), "entries_format", [each.value for each in EntriesFormat])
        )
        owner = request.state.caller

        def made() -> StoredGlossary:
            terms = parse_entries(entries, entries_format, store.limits)
            return store.create(owner, name, languages, terms)

        return OrjsonResponse(_described(await _stored(made)), status_code=201)

    @router.get("/v2/glossaries", include_in_schema=False)
    async def all_of_them(request: Request) -> Response:
        owner = request.state.caller
        found = await _stored(lambda: store.list(owner))
        return OrjsonResponse({"glossaries": [_described(each) for each in found]})

    _add_routes_of_one(router, store)


def _add_routes_of_one(router: APIRouter, store: GlossaryStore) -> None:
    @router.get("/v2/glossaries/{glossary_id}", include_in_schema=False)
    async def one(request: Request, glossary_id: str) -> Response:
        owner = request.state.caller
        return OrjsonResponse(_described(await _stored(lambda: store.get(owner, glossary_id))))

    @router.get("/v2/glossaries/{glossary_id}/entries", include_in_schema=False)
    async def entries(request: Request, glossary_id: str) -> Response:
        owner = request.state.caller
        terms = await _stored(lambda: store.entries(owner, glossary_id))
        return Response(format_tsv(terms), media_type=TSV)

    @router.delete("/v2/glossaries/{glossary_id}", include_in_schema=False)
    async def delete(request: Request, glossary_id: str) -> Response:
        owner = request.state.caller
        await _stored(lambda: store.delete(owner, glossary_id))
        return Response(status_code=204)


async def _stored(work: Callable[[], T]) -> T:
    """Work with the store, off the event loop. Raises DialectError, and NotReady where it is locked or full."""
    try:
        return await asyncio.to_thread(work)
    except GlossaryNotFound as error:
        raise DialectError(404, str(error)) from error
    except EntriesError as error:
        raise DialectError(400, f"the glossary cannot be used: {error}") from error
    except GlossaryStoreFull as error:
        raise DialectError(400, f"{error}; delete one first") from error
    except GlossaryStoreError as error:
        log_event(logger, logging.ERROR, "glossary_store_failed", error=error)
        raise NotReady("the glossaries cannot be read or written now", retry_after_s=RETRY_AFTER_S) from error


def _described(glossary: StoredGlossary) -> dict[str, object]:
    """Clients need the fraction of the second."""
    created_at = glossary.created_at.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
    return {
        "glossary_id": glossary.glossary_id,
        "name": glossary.name,
        "ready": True,
        "source_lang": base_of(glossary.source_language).lower(),
        "target_lang": base_of(glossary.target_language).lower(),
        "creation_time": f"{created_at}Z",
        "entry_count": glossary.num_terms,
    }
